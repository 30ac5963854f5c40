"use strict";
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);
	const at = Object.fromEntries(data.columns.map((name, i) => [name, i]));
	const text = (row, column) => data.rows[row][at[column]];
	// A field of sweep.csv as a number: NaN where nothing was measured.
	const number = (row, column) => {
		const s = text(row, column);
		return s === "" ? NaN : Number(s.replace("Inf", "Infinity"));
	};

	// Numbers for people.
	const digits = (x, n = 3) => String(Number(x.toPrecision(n)));
	const scaled = (x, units, n) => {
		const [size, name] = units.find(([size]) => x >= 0.9995 * size) || units[units.length - 1];
		return digits(x / size, n) + " " + name;
	};
	const seconds = (x, n) => scaled(x, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], n);
	const bytes = (x, n = 4) => scaled(x, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], n);
	const percent = (x, n) => digits(100 * x, n) + " %";
	const rate = (x, n) => digits(x, n) + " GFLOP/s";

	// What is drawn against length. A value comes with the ends of its interval where it has one.
	const metrics = [
		{title: "Time of one call", show: seconds, value: (r) => ["ns_median", "ns_lo", "ns_hi"].map((c) => number(r, c) / 1e9)},
		{title: "Rate, GFLOP/s", show: rate, tick: digits, limit: "peak_gflops", limitName: "what the multiply-add probe reached",
			value: (r) => [number(r, "gflops"), number(r, "flop") / number(r, "ns_hi"), number(r, "flop") / number(r, "ns_lo")]},
		{title: "Fraction of the peak", show: percent, value: (r) => ["peak_frac", "peak_frac_lo", "peak_frac_hi"].map((c) => number(r, c))},
		{title: "Fraction of the bandwidth", show: percent, value: (r) => [number(r, "bandwidth_frac"), NaN, NaN]},
		{title: "Scratch memory of a plan", show: bytes, base: 2, value: (r) => [number(r, "scratch_bytes"), NaN, NaN]},
		{title: "Peak resident memory over the inputs", show: bytes, base: 2, value: (r) => [number(r, "peak_rss_bytes"), NaN, NaN]},
		{title: "Worst error over tolerance", show: digits, one: true, value: (r) => [number(r, "err_ratio"), NaN, NaN]},
	];

	// Elements.
	const svgSpace = "http://www.w3.org/2000/svg";
	const fill = (e, attributes, children) => {
		for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
		e.append(...children);
		return e;
	};
	const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(svgSpace, name), attributes, children);
	const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
	const byId = (id) => document.getElementById(id);

	// The look of a series: a colour for the kernel, a dash and a shape for the instruction set.
	const hues = 7;
	const dashes = ["", "7 3", "2 2", "9 3 2 3", "1 3"];
	const shapes = [
		(x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
		(x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
		(x, y, r) => `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
		(x, y, r) => `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z`,
		(x, y, r) => `M${x} ${y + 1.2 * r}l${1.2 * r} ${-2.1 * r}h${-2.4 * r}z`,
	];
	const hueClass = (s) => "hue" + s.colour % hues;
	const path = (s, d) => svg("path", {class: "path", d, "stroke-dasharray": dashes[s.shape % dashes.length]});
	const mark = (s, x, y, r = 3.4) => svg("path", {
		class: s.shape >= shapes.length ? "mark open" : "mark", d: shapes[s.shape % shapes.length](x, y, r),
	});

	// One tip for all marks: beside the one under the pointer or in focus.
	const tip = byId("tip");
	const showTip = (e, words) => {
		tip.textContent = words;
		tip.hidden = false;
		const box = e.getBoundingClientRect();
		const left = Math.min(Math.max(4, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 4);
		const above = box.top - tip.offsetHeight - 6;
		tip.style.left = left + "px";
		tip.style.top = (above > 4 ? above : box.bottom + 6) + "px";
	};
	const hideTip = () => { tip.hidden = true; };
	document.addEventListener("keydown", (e) => { if (e.key === "Escape") hideTip(); });
	document.addEventListener("scroll", hideTip, {passive: true});

	// A mark that says its value. All marks of a chart are one stop of the Tab key; arrows go from one to the next.
	const speaking = (s, x, y, words, aside) => {
		const g = svg("g", {tabindex: -1, role: "img", "aria-label": words.replaceAll("\n", ", "), class: hueClass(s) + (aside ? " aside" : "")},
			svg("circle", {class: "hit", cx: x, cy: y, r: 9}), mark(s, x, y));
		g.addEventListener("mouseenter", () => showTip(g, words));
		g.addEventListener("focus", () => showTip(g, words));
		g.addEventListener("mouseleave", hideTip);
		g.addEventListener("blur", hideTip);
		return g;
	};
	// lines holds the marks of each line, from left to right.
	const walk = (root, lines) => {
		if (lines.length === 0) return;
		lines[0][0].setAttribute("tabindex", 0);
		root.addEventListener("keydown", (e) => {
			const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[e.key];
			const line = lines.findIndex((l) => l.includes(e.target));
			if (!step || line < 0) return;
			e.preventDefault();
			const to = lines[Math.min(Math.max(line + step[0], 0), lines.length - 1)];
			const next = to[Math.min(Math.max(lines[line].indexOf(e.target) + step[1], 0), to.length - 1)];
			e.target.setAttribute("tabindex", -1);
			next.setAttribute("tabindex", 0);
			next.focus();
		});
	};

	// Ticks of a logarithmic axis: powers of the base, and some multiples of them where the range is short.
	const ticks = (low, high, base) => {
		const decades = Math.log(high / low) / Math.log(base);
		let factors = [1];
		if (base === 10 && decades < 1) factors = [1, 1.5, 2, 3, 4, 5, 7];
		else if (base === 10 && decades < 2.5) factors = [1, 2, 5];
		const step = factors.length > 1 ? 1 : Math.max(1, Math.ceil(decades / 8));
		const list = [];
		for (let e = Math.floor(Math.log(low) / Math.log(base)); base ** e <= high; e++) {
			if (e % step !== 0) continue;
			for (const f of factors) if (f * base ** e >= low && f * base ** e <= high) list.push(f * base ** e);
		}
		return list;
	};

	// An empty chart with its axes: where x and y lie, and the picture to draw into.
	const frame = (figure, label, height, x, y) => {
		const width = Math.max(280, figure.clientWidth), left = 62, right = width - 10, top = 8, bottom = height - 38;
		const place = (axis, from, to) => (v) => from + (to - from) * Math.log(v / axis.low) / Math.log(axis.high / axis.low);
		const X = place(x, left, right), Y = place(y, bottom, top);
		const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label});
		let last = Infinity;
		for (const v of [...x.ticks].reverse()) {
			root.append(svg("line", {class: "grid", x1: X(v), x2: X(v), y1: top, y2: bottom}));
			const name = x.show(v), half = 3.2 * name.length + 3;
			if (X(v) + half > last) continue; // no room beside the one on the right
			last = X(v) - half;
			root.append(svg("text", {x: X(v), y: bottom + 15, "text-anchor": "middle"}, name));
		}
		for (const v of y.ticks) {
			root.append(svg("line", {class: "grid", x1: left, x2: right, y1: Y(v), y2: Y(v)}),
				svg("text", {x: left - 6, y: Y(v) + 4, "text-anchor": "end"}, y.show(v)));
		}
		root.append(svg("text", {x: (left + right) / 2, y: height - 4, "text-anchor": "middle"}, x.label));
		figure.append(root);
		return {root, X, Y, left, right, top, bottom};
	};

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
		const note = zeros.length > 0 ? [html("span", {class: "note"}, "Not on a logarithmic axis, because zero: " + [...new Set(zeros)].join(", "))] : [];
		const figure = html("figure", {}, html("figcaption", {}, m.title, ...note));
		byId("figures").append(figure);
		if (lines.length === 0) return;

		// The axes stay where they are when a series is switched off.
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
				svg("text", {x: f.left + 4, y: f.Y(limit) - 4}, m.one ? "what float32 is entitled to" : m.limitName));
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

	// Every cell of the run against what the machine can do.
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
		const figure = html("figure", {class: "wide"}, html("figcaption", {}, "Roofline: every cell, by the operations it does for a byte of its operands",
			html("span", {class: "note"}, (limits.length > 0 ? "Dashed, " + limits.join("; ") + ". " : "The run knows no limit of this machine. ") + "Pale marks are of other problems than the one chosen.")));
		byId("figures").append(figure);
		const f = frame(figure, "Roofline", 360,
			{low: from, high: to, ticks: ticks(from, to, 10), show: (v) => digits(v), label: "FLOP per byte"},
			{low, high, ticks: ticks(low, high, 10), show: (v) => digits(v)});
		const labels = []; // heights that have a text already
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

	let group = data.groups[0];
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
			if (s.slope) button.append(html("small", {title: "time grows with this power of the length"}, "n^" + s.slope));
			button.addEventListener("click", () => {
				if (!hidden.delete(s.label)) hidden.add(s.label);
				button.setAttribute("aria-pressed", shown(s));
				draw();
			});
			return button;
		}));
	};

	// Filters. Choosing a value goes to the group that has it and differs least in the rest from the one shown.
	const selects = new Map();
	const rows = [...byId("points").tBodies[0].rows];
	const only = byId("only").querySelector("input");
	const choose = (g) => {
		group = g;
		for (const [key, select] of selects) select.value = g.keys[key];
		byId("problem").textContent = g.title;
		drawLegend();
		draw();
		showRows();
	};
	const showRows = () => {
		const chosen = new Set(group ? group.series.flatMap((s) => s.rows) : []);
		for (const tr of rows) tr.hidden = only.checked && !chosen.has(Number(tr.dataset.row));
	};
	const nearest = (key, value) => {
		const same = (g) => [...selects.keys()].filter((k) => g.keys[k] === group.keys[k]).length;
		return data.groups.filter((g) => g.keys[key] === value).reduce((a, b) => same(b) > same(a) ? b : a);
	};
	if (group) {
		for (const key of Object.keys(group.keys)) {
			const values = [...new Set(data.groups.map((g) => g.keys[key]))];
			if (values.length === 1 && values[0] === "") continue;
			const numeric = values.every((v) => v !== "" && !isNaN(v));
			if (numeric) values.sort((a, b) => a - b);
			const select = html("select", {}, ...values.map((v) => html("option", {value: v}, v || "nothing")));
			select.disabled = values.length === 1;
			select.addEventListener("change", () => choose(nearest(key, select.value)));
			selects.set(key, select);
			byId("filters").append(html("label", {}, key, select));
		}
		byId("charts").hidden = false;
		byId("only").hidden = data.groups.length === 1;
		only.addEventListener("change", showRows);
		choose(group);
		let width = byId("figures").clientWidth;
		new ResizeObserver(() => {
			if (width === byId("figures").clientWidth) return;
			width = byId("figures").clientWidth;
			draw();
		}).observe(byId("figures"));
	}

	// Sorting: by the figures of sweep.csv, not by what is shown of them; what was not measured comes last.
	const heads = [...byId("points").tHead.rows[0].cells];
	heads.forEach((th, i) => {
		const button = html("button", {type: "button"}, th.textContent);
		th.replaceChildren(button);
		const value = (tr) => th.dataset.column ? text(tr.dataset.row, th.dataset.column) : tr.cells[i].textContent;
		const compare = th.classList.contains("number")
			? (a, b) => number(a.dataset.row, th.dataset.column) - number(b.dataset.row, th.dataset.column)
			: (a, b) => value(a).localeCompare(value(b), "en", {numeric: true});
		button.addEventListener("click", () => {
			const down = th.getAttribute("aria-sort") === "ascending";
			for (const other of heads) other.removeAttribute("aria-sort");
			th.setAttribute("aria-sort", down ? "descending" : "ascending");
			const [known, unknown] = [rows.filter((tr) => value(tr) !== ""), rows.filter((tr) => value(tr) === "")];
			known.sort((a, b) => down ? compare(b, a) : compare(a, b));
			byId("points").tBodies[0].append(...known, ...unknown);
		});
	});

	// The download is sweep.csv as benchrun writes it.
	byId("download").hidden = false;
	byId("download").addEventListener("click", () => {
		const field = (s) => /[",\r\n]|^\s/.test(s) ? '"' + s.replaceAll('"', '""').replace(/\r?\n/g, "\r\n") + '"' : s;
		const lines = [data.columns, ...data.rows].map((row) => row.map(field).join(",") + "\r\n");
		const link = html("a", {href: URL.createObjectURL(new Blob(lines, {type: "text/csv"})), download: "sweep.csv"});
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href));
	});
})();
