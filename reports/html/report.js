// The report of a run: its charts, its filters and its table.

const dataOf = (page) => JSON.parse(page.getElementById("data").textContent);
let data = dataOf(document);
const at = Object.fromEntries(data.columns.map((name, i) => [name, i]));
const text = (row, column) => data.rows[row][at[column]];
// A field of sweep.csv as a number: NaN where nothing was measured.
const number = (row, column) => {
	const s = text(row, column);
	return s === "" ? NaN : Number(s.replace("Inf", "Infinity"));
};

// What is drawn against length. A value has the ends of its interval, or NaN.
const metrics = [
	{title: "Time of one call", define: "time", show: seconds, value: (r) => ["ns_median", "ns_lo", "ns_hi"].map((c) => number(r, c) / 1e9)},
	{title: "Rate, GFLOP/s", define: "rate", show: rate, tick: digits, limit: "peak_gflops", limitName: "peak: the multiply-add probe",
		value: (r) => [number(r, "gflops"), number(r, "flop") / number(r, "ns_hi"), number(r, "flop") / number(r, "ns_lo")]},
	{title: "Fraction of the peak", define: "peak", show: percent, value: (r) => ["peak_frac", "peak_frac_lo", "peak_frac_hi"].map((c) => number(r, c))},
	{title: "Fraction of the bandwidth", define: "bandwidth", show: percent, value: (r) => [number(r, "bandwidth_frac"), NaN, NaN]},
	{title: "Scratch memory of a plan", define: "scratch", show: bytes, base: 2, value: (r) => [number(r, "scratch_bytes"), NaN, NaN]},
	{title: "Peak resident memory over the inputs", define: "rss", show: bytes, base: 2, value: (r) => [number(r, "peak_rss_bytes"), NaN, NaN]},
	{title: "Worst error over tolerance", define: "err", show: digits, one: true, value: (r) => [number(r, "err_ratio"), NaN, NaN]},
];

const hidden = new Set(); // labels of the series that are switched off
const shown = (s) => !hidden.has(s.label);
const timed = (r) => text(r, "status") === "ok" && number(r, "ns_median") > 0;

// One quantity of one group against length.
const drawMetric = (m, group) => {
	const lines = [], zeros = [];
	for (const s of group.series) {
		const points = [];
		for (const r of s.rows) {
			const [y, lo, hi] = m.value(r);
			if (text(r, "status") !== "ok") continue;
			if (y > 0 && y < Infinity) points.push({r, x: number(r, "seq_kv"), y, lo, hi});
			else if (y === 0) zeros.push(s.label);
		}
		if (points.length > 0) lines.push({s, points});
	}
	if (lines.length === 0 && zeros.length === 0) return;
	const note = zeros.length > 0 ? [html("span", {class: "note"}, "Zero, so not on this logarithmic axis: " + [...new Set(zeros)].join(", "))] : [];
	const figure = html("figure", {}, html("figcaption", {}, html("a", {href: "#define-" + m.define}, m.title), ...note));
	byId("figures").append(figure);
	if (lines.length === 0) return;

	// The axes do not change when a series is switched off.
	let low = Infinity, high = 0, limit = 0;
	const lengths = new Set();
	for (const l of lines) {
		for (const p of l.points) {
			low = Math.min(low, p.y, Math.max(p.lo || p.y, p.y / 3));
			high = Math.max(high, p.y, Math.min(p.hi || p.y, p.y * 3));
			lengths.add(p.x);
			if (m.limit) limit = Math.max(limit, number(p.r, m.limit) || 0);
		}
	}
	if (m.one) limit = 1;
	[low, high] = [low / 1.4, Math.max(high, limit) * 1.4];
	const xs = [...lengths].sort((a, b) => a - b);
	const f = frame(figure, m.title + " against length", 270,
		{low: xs[0] / 1.15, high: xs[xs.length - 1] * 1.15, ticks: xs, show: String, label: "sequence length"},
		{low, high, ticks: ticks(low, high, m.base || 10), show: (v) => (m.tick || m.show)(v)});
	if (limit > 0) {
		f.root.append(svg("line", {class: "limit", x1: f.left, x2: f.right, y1: f.Y(limit), y2: f.Y(limit)}),
			svg("text", {x: f.left + 4, y: f.Y(limit) - 4}, m.one ? "the error that float32 may leave" : m.limitName));
	}
	const stops = [];
	for (const {s, points} of lines.filter((l) => shown(l.s))) {
		const g = svg("g", {class: hueClass(s)});
		const clamp = (v) => Math.min(Math.max(f.Y(v), f.top), f.bottom);
		const sure = points.filter((p) => p.lo > 0 && p.hi >= p.y);
		if (sure.length > 1) {
			g.append(svg("path", {class: "band", d: "M" + [...sure.map((p) => f.X(p.x) + " " + clamp(p.hi)),
				...[...sure].reverse().map((p) => f.X(p.x) + " " + clamp(p.lo))].join("L") + "z"}));
		}
		for (const p of sure) g.append(svg("line", {class: "whisker", x1: f.X(p.x), x2: f.X(p.x), y1: clamp(p.lo), y2: clamp(p.hi)}));
		g.append(path(s, "M" + points.map((p) => f.X(p.x) + " " + f.Y(p.y)).join("L")));
		f.root.append(g);
		stops.push(points.map((p) => {
			let words = `${s.label}, length ${p.x}\n${m.title}: ${m.show(p.y, 4)}`;
			if (p.lo > 0 && p.hi > 0) words += `\n95 % interval ${m.show(p.lo, 4)} to ${m.show(p.hi, 4)}`;
			return speaking(s, f.X(p.x), f.Y(p.y), words);
		}));
	}
	f.root.append(...stops.flat());
	walk(f.root, stops);
};

// Every point of the run against the limits of the machine.
const drawRoofline = (group) => {
	const lines = [];
	for (const g of data.groups) {
		for (const s of g.series) {
			const points = s.rows.filter(timed).map((r) => ({r, x: number(r, "flop") / number(r, "bytes"), y: number(r, "gflops")}))
				.filter((p) => p.x > 0 && p.x < Infinity && p.y > 0);
			if (points.length > 0) lines.push({s, points, title: g.title, aside: g !== group});
		}
	}
	if (lines.length === 0) return;
	const all = lines.flatMap((l) => l.points);
	const peak = Math.max(0, ...data.peaks.map((p) => p.rate));
	const ridges = data.bandwidths.map((b) => peak / b.rate).filter((v) => v > 0);
	let low = Math.min(...all.map((p) => p.y)), high = Math.max(peak, ...all.map((p) => p.y));
	let from = Math.min(...all.map((p) => p.x), ...ridges), to = Math.max(...all.map((p) => p.x), ...ridges);
	[low, high, from, to] = [low / 1.5, high * 1.6, from / 1.6, to * 1.6];
	const limits = [...data.peaks.map((p) => `${p.label}: ${digits(p.rate, 4)} GFLOP/s`), ...data.bandwidths.map((b) => `${b.label}: ${digits(b.rate, 4)} GB/s`)];
	const figure = html("figure", {class: "wide"}, html("figcaption", {}, html("a", {href: "#define-intensity"}, "Roofline: GFLOP/s of every point against its operations per byte of operands"),
		html("span", {class: "note"}, (limits.length > 0 ? "Dashed, " + limits.join("; ") + ". " : "The run measured no limit of this machine. ") + "Pale marks are of the problems that are not chosen.")));
	byId("figures").append(figure);
	const f = frame(figure, "Roofline", 360,
		{low: from, high: to, ticks: ticks(from, to, 10), show: (v) => digits(v), label: "FLOP per byte"},
		{low, high, ticks: ticks(low, high, 10), show: (v) => digits(v)});
	const labels = []; // heights that already have a text
	for (const p of data.peaks) {
		if (p.rate < low) continue;
		const y = f.Y(p.rate);
		f.root.append(svg("line", {class: "limit", x1: f.left, x2: f.right, y1: y, y2: y}));
		if (labels.some((v) => Math.abs(v - y) < 12)) continue;
		labels.push(y);
		f.root.append(svg("text", {x: f.right - 2, y: y - 3, "text-anchor": "end"}, p.label));
	}
	for (const b of data.bandwidths) {
		const start = Math.max(from, low / b.rate), end = Math.min(to, (peak || high) / b.rate);
		if (end > start) f.root.append(svg("line", {class: "limit", x1: f.X(start), y1: f.Y(b.rate * start), x2: f.X(end), y2: f.Y(b.rate * end)}));
	}
	const stops = lines.filter((l) => shown(l.s)).sort((a, b) => b.aside - a.aside).map((l) => l.points.sort((a, b) => a.x - b.x).map((p) =>
		speaking(l.s, f.X(p.x), f.Y(p.y), `${l.s.label}, length ${text(p.r, "seq_kv")}\n${l.title}\n${rate(p.y, 4)} at ${digits(p.x)} FLOP per byte`, l.aside)));
	f.root.append(...stops.flat());
	walk(f.root, stops);
};

let group; // the one that is shown
const draw = () => {
	hideTip();
	byId("figures").replaceChildren();
	for (const m of metrics) drawMetric(m, group);
	drawRoofline(group);
};
const drawLegend = () => {
	byId("legend").replaceChildren(...group.series.map((s) => {
		const button = html("button", {type: "button", "aria-pressed": shown(s)},
			svg("svg", {viewBox: "0 0 34 14", "aria-hidden": true, class: hueClass(s)}, path(s, "M0 7H34"), mark(s, 17, 7)), s.label);
		if (s.slope) button.append(html("small", {title: "time grows with this power of the length"}, "n", html("sup", {}, s.slope)));
		button.addEventListener("click", () => {
			if (!hidden.delete(s.label)) hidden.add(s.label);
			button.setAttribute("aria-pressed", shown(s));
			draw();
		});
		return button;
	}));
};

// Filters. Choosing a value shows the group that has it and differs least in the other properties.
const selects = new Map();
const only = byId("only").querySelector("input");
let rows = [...byId("points").tBodies[0].rows];
const choose = (g) => {
	group = g;
	for (const [key, select] of selects) select.value = g.keys[key];
	if (byId("problem").textContent !== g.title) byId("problem").textContent = g.title;
	drawLegend();
	draw();
	showRows();
};
const showRows = () => {
	const chosen = new Set(group ? group.series.flatMap((s) => s.rows) : []);
	for (const tr of rows) tr.hidden = only.checked && !chosen.has(Number(tr.dataset.row));
};
only.addEventListener("change", showRows);
const nearest = (keys, wanted) => {
	const same = (g) => [...selects.keys()].filter((k) => g.keys[k] === keys[k]).length;
	return data.groups.filter(wanted).reduce((a, b) => same(b) > same(a) ? b : a);
};
const drawFilters = () => {
	selects.clear();
	byId("filters").replaceChildren();
	for (const key of Object.keys(data.groups[0].keys)) {
		const values = [...new Set(data.groups.map((g) => g.keys[key]))];
		if (values.length === 1 && values[0] === "") continue;
		const numeric = values.every((v) => v !== "" && !isNaN(v));
		if (numeric) values.sort((a, b) => a - b);
		const select = html("select", {}, ...values.map((v) => html("option", {value: v}, v || "none")));
		select.disabled = values.length === 1;
		select.addEventListener("change", () => choose(nearest(group.keys, (g) => g.keys[key] === select.value)));
		selects.set(key, select);
		byId("filters").append(html("label", {}, key, select));
	}
};
const drawAll = () => {
	if (data.groups.length === 0) return;
	drawFilters();
	byId("charts").hidden = false;
	byId("only").hidden = data.groups.length === 1;
	choose(nearest((group || data.groups[0]).keys, () => true));
};
drawAll();
let width = byId("figures").clientWidth;
new ResizeObserver(() => {
	if (!group || width === byId("figures").clientWidth) return;
	width = byId("figures").clientWidth;
	draw();
}).observe(byId("figures"));

// Rows are sorted by the figures of sweep.csv, not by the texts shown. Rows without a figure are last.
const heads = [...byId("points").tHead.rows[0].cells];
const sortRows = () => {
	const i = heads.findIndex((th) => th.hasAttribute("aria-sort"));
	if (i < 0) return;
	const th = heads[i], down = th.getAttribute("aria-sort") === "descending";
	const value = (tr) => th.dataset.column ? text(tr.dataset.row, th.dataset.column) : tr.cells[i].textContent;
	const compare = th.classList.contains("number")
		? (a, b) => number(a.dataset.row, th.dataset.column) - number(b.dataset.row, th.dataset.column)
		: (a, b) => value(a).localeCompare(value(b), "en", {numeric: true});
	const [known, unknown] = [rows.filter((tr) => value(tr) !== ""), rows.filter((tr) => value(tr) === "")];
	known.sort((a, b) => down ? compare(b, a) : compare(a, b));
	byId("points").tBodies[0].append(...known, ...unknown);
};
for (const th of heads) {
	const name = th.querySelector("span"), button = html("button", {type: "button"}, name.textContent);
	name.replaceWith(button);
	button.addEventListener("click", () => {
		const down = th.getAttribute("aria-sort") === "ascending";
		for (const other of heads) other.removeAttribute("aria-sort");
		th.setAttribute("aria-sort", down ? "descending" : "ascending");
		sortRows();
	});
}

// The download is sweep.csv as benchrun writes it.
byId("download").hidden = false;
byId("download").addEventListener("click", () => {
	const field = (s) => /[",\r\n]|^\s/.test(s) ? '"' + s.replaceAll('"', '""').replace(/\r?\n/g, "\r\n") + '"' : s;
	const lines = [data.columns, ...data.rows].map((row) => row.map(field).join(",") + "\r\n");
	const link = html("a", {href: URL.createObjectURL(new Blob(lines, {type: "text/csv"})), download: "sweep.csv"});
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href));
});
