// ONNX Runtime as a peer: MultiHeadAttention, and GroupQueryAttention for causal masks, where it is
// the faster operator for long sequences; LinearAttention for linear problems. Rows are turned, and
// those of linear problems normalised, before the clock runs. In this folder:
//
//   npm install --ignore-scripts        (the script downloads what only GPUs need)
//
// and in the root of the repository:
//
//   benchrun sweep --peer 'onnxruntime=node peers/onnxruntime/peer.mjs' \
//       --kernel flash,onnxruntime ...
//
// Package peers documents the requests and answers.
import { readSync, writeSync } from 'node:fs';
import ort from 'onnxruntime-node';

// An ONNX model is a protocol buffer. These functions write the kinds of field that a model of one
// node has.
const varint = n => {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push(n % 128 + 128);
  return Buffer.from([...out, n]);
};
const number = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const bytes = (field, ...parts) => {
  const all = Buffer.concat(parts.map(p => Buffer.from(p)));
  return Buffer.concat([varint(field << 3 | 2), varint(all.length), all]);
};
const float = (field, x) => {
  const b = Buffer.alloc(4);
  b.writeFloatLE(x);
  return Buffer.concat([varint(field << 3 | 5), b]);
};
const FLOAT = 1, INT32 = 6;
const attribute = (name, value) => {
  switch (typeof value) {
    case 'bigint': return bytes(5, bytes(1, name), number(3, Number(value)), number(20, 2));
    case 'string': return bytes(5, bytes(1, name), bytes(4, value), number(20, 3));
  }
  return bytes(5, bytes(1, name), float(2, value), number(20, 1));
};
const operand = (field, { name, type = FLOAT, dims }) =>
  bytes(field, bytes(1, name), bytes(2, bytes(1, number(1, type), bytes(2, ...dims.map(d => bytes(1, number(1, d)))))));

// model returns a graph of one node with an operator of ONNX Runtime. An input without dimensions
// is left out.
const model = (op, attributes, inputs, outputs) => bytes(7,
  bytes(1, ...inputs.map(i => bytes(1, i.name)), ...outputs.map(o => bytes(2, o.name)), bytes(4, op), bytes(7, 'com.microsoft'),
    ...Object.entries(attributes).map(([name, value]) => attribute(name, value))),
  bytes(2, 'attention'),
  ...inputs.filter(i => i.dims).map(i => operand(11, i)),
  ...outputs.map(o => operand(12, o)));
const file = graph => Buffer.concat([number(1, 8), bytes(8, bytes(1, ''), number(2, 17)), bytes(8, bytes(1, 'com.microsoft'), number(2, 1)), graph]);

// refusal returns why a problem is not computed, or '' if it is.
function refusal(p) {
  if (Object.values(p).includes(0)) return 'something has no size';
  if (p.linear) return refusalOfRule(p, p.linear);
  if (p.seq_q === 1 && p.seq_kv > 1) return 'a single query reads a cache, which the JavaScript interface copies at each call: other languages need not';
  if (p.mask === 'full') return p.heads_q === p.heads_kv ? '' : 'MultiHeadAttention wants as many key heads as query heads';
  if (p.mask !== 'causal' && p.mask !== 'causal-topleft') return `no mask ${p.mask}`;
  if (p.seq_q !== p.seq_kv) return 'a causal mask wants as many queries as keys';
  return p.dim === p.dim_v && p.dim % 8 === 0 ? '' : 'GroupQueryAttention wants keys and values of one size, a multiple of 8';
}

// refusalOfRule returns why a linear problem is not computed, or ''.
function refusalOfRule(p, l) {
  if (!l.unnormalised || l.feature !== 'identity') return 'LinearAttention has no features and no normalised outputs';
  if (!l.state) return 'LinearAttention wants a causal mask and as many queries as keys';
  if (l.heads_v !== p.heads_kv) return 'LinearAttention wants as many value heads as key heads';
  return '';
}

// ruleOf returns the name of a rule, which says whether there are gates and beta.
const ruleOf = l => (l.delta ? (l.gate === 'none' ? 'delta' : 'gated_delta') : (l.gate === 'none' ? 'linear' : 'gated'));

// turned exchanges two axes: rows are sent as [batch][head][row][column], and ONNX Runtime uses
// [batch][row][head][column].
function turned(from, batch, outer, inner, columns) {
  const to = new Float32Array(from.length);
  for (let b = 0, at = 0; b < batch; b++)
    for (let i = 0; i < inner; i++)
      for (let o = 0; o < outer; o++, at += columns) {
        const begin = ((b * outer + o) * inner + i) * columns;
        to.set(from.subarray(begin, begin + columns), at);
      }
  return to;
}

let problem, session, feeds, fetches;

async function plan(p, threads) {
  await session?.release();
  problem = p;
  const q = { name: 'q', dims: [p.batch, p.seq_q, p.heads_q * p.dim] };
  const k = { name: 'k', dims: [p.batch, p.seq_kv, p.heads_kv * p.dim] };
  const v = { name: 'v', dims: [p.batch, p.seq_kv, p.heads_kv * p.dim_v] };
  const out = { name: 'out', dims: [p.batch, p.seq_q, p.heads_q * p.dim_v] };
  let graph;
  feeds = {};
  fetches = { out: room(out) };
  if (p.linear) {
    const l = p.linear, none = { name: '' };
    const past = { name: 'past', dims: [p.batch, p.heads_kv, p.dim, p.dim_v] }, present = { ...past, name: 'present' };
    const decay = l.gate === 'none' ? none : { name: 'decay', dims: [p.batch, p.seq_kv, p.heads_kv * (l.gate === 'key' ? p.dim : 1)] };
    const beta = l.delta ? { name: 'beta', dims: [p.batch, p.seq_kv, p.heads_kv] } : none;
    const inputs = [q, k, v, past, decay, beta];
    while (!inputs.at(-1).dims) inputs.pop();
    graph = model('LinearAttention', { q_num_heads: BigInt(p.heads_q), kv_num_heads: BigInt(p.heads_kv), update_rule: ruleOf(l), scale: p.scale }, inputs, [out, present]);
    fetches.present = room(present);
  } else if (p.mask === 'full') {
    graph = model('MultiHeadAttention', { num_heads: BigInt(p.heads_q), scale: p.scale }, [q, k, v], [out]);
  } else { // the outputs keys and values are a cache that holds all keys afterwards; it is not used
    const cache = name => ({ name, dims: [p.batch, p.heads_kv, p.seq_kv, p.dim] });
    const lengths = { name: 'lengths', type: INT32, dims: [p.batch] }, total = { name: 'total', type: INT32, dims: [] };
    const none = { name: '' };
    graph = model('GroupQueryAttention', { num_heads: BigInt(p.heads_q), kv_num_heads: BigInt(p.heads_kv), scale: p.scale },
      [q, k, v, none, none, lengths, total], [out, cache('keys'), cache('values')]);
    feeds.lengths = new ort.Tensor('int32', new Int32Array(p.batch).fill(p.seq_kv - 1), lengths.dims);
    feeds.total = new ort.Tensor('int32', Int32Array.of(p.seq_kv), total.dims);
  }
  session = await ort.InferenceSession.create(file(graph), { intraOpNumThreads: threads, interOpNumThreads: 1, executionMode: 'sequential' });
}

const room = ({ dims }) => new ort.Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b)), dims);

// normalise divides rows by their length, as the problem's norm defines it.
function normalise(x, columns, { norm, norm_eps }) {
  for (let at = 0; at < x.length; at += columns) {
    const row = x.subarray(at, at + columns);
    const sum = row.reduce((s, e) => s + e * e, 0);
    const by = norm === 'sum' ? Math.sqrt(sum + norm_eps) : Math.max(Math.sqrt(sum), norm_eps);
    for (let c = 0; c < columns; c++) row[c] /= by;
  }
}

function load() {
  const p = problem, l = p.linear;
  const operands = [['q', p.seq_q, p.heads_q, p.dim], ['k', p.seq_kv, p.heads_kv, p.dim], ['v', p.seq_kv, p.heads_kv, p.dim_v]];
  if (l && l.gate !== 'none') operands.push(['decay', p.seq_kv, p.heads_kv, l.gate === 'key' ? p.dim : 1]);
  if (l?.delta) operands.push(['beta', p.seq_kv, p.heads_kv, 1]);
  for (const [name, rows, heads, columns] of operands) {
    const size = p.batch * rows * heads * columns;
    const from = new Float32Array(size);
    receive(new Uint8Array(from.buffer));
    if (l && l.norm !== 'none' && (name === 'q' || name === 'k')) normalise(from, columns, l);
    feeds[name] = new ort.Tensor('float32', turned(from, p.batch, heads, rows, columns), [p.batch, rows, heads * columns]);
  }
  if (!l) return;
  feeds.past = room(fetches.present);
  receive(new Uint8Array(feeds.past.data.buffer));
}

async function run(calls) {
  const begun = process.hrtime.bigint(), cpu = process.cpuUsage();
  for (let i = 0; i < calls; i++) await session.run(feeds, fetches);
  const wall = process.hrtime.bigint() - begun, used = process.cpuUsage(cpu);
  return { wall_ns: Number(wall), cpu_ns: 1000 * (used.user + used.system) };
}

// pending is standard input that has been read and not used yet.
let pending = Buffer.alloc(0);
const chunk = Buffer.alloc(1 << 16);
function more(into) {
  const n = readSync(0, into);
  if (n === 0) process.exit(0);
  return n;
}
function line() {
  let end;
  while ((end = pending.indexOf(10)) < 0) pending = Buffer.concat([pending, chunk.subarray(0, more(chunk))]);
  const text = pending.toString('utf8', 0, end);
  pending = pending.subarray(end + 1);
  return text;
}
function receive(to) {
  let have = pending.copy(to);
  pending = pending.subarray(have);
  while (have < to.length) have += more(to.subarray(have));
}
function send(from) {
  for (let sent = 0; sent < from.length;) sent += writeSync(1, from, sent);
}

for (;;) {
  const q = JSON.parse(line());
  let answer = {}, tensors = [];
  try {
    switch (q.do) {
      case 'about': answer = { about: `ONNX Runtime ${ort.env.versions.node}, MultiHeadAttention, GroupQueryAttention and LinearAttention`, linear: true }; break;
      case 'check': answer = { refused: refusal(q.problem) }; break;
      case 'plan': await plan(q.problem, q.threads); break;
      case 'load': load(); break;
      case 'run': answer = await run(q.calls); break;
      case 'store':
        tensors = [turned(fetches.out.data, problem.batch, problem.seq_q, problem.heads_q, problem.dim_v)];
        if (problem.linear) tensors.push(fetches.present.data);
        break;
      default: answer = { error: 'not known' };
    }
  } catch (e) {
    answer = { error: e.message };
  }
  send(Buffer.from(JSON.stringify({ id: q.id, ...answer }) + '\n'));
  for (const t of tensors) send(new Uint8Array(t.buffer));
}
