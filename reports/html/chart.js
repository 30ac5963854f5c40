// The parts of the charts on all pages.

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

// One tip for all marks, beside the mark under the pointer or in focus.
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

// A mark that shows its value. All marks of a chart are one stop of the Tab key; arrow keys move between them.
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

// An empty chart with its axes: the scales of x and y, and the picture to draw into. Axes are logarithmic unless they say linear.
const frame = (figure, label, height, x, y) => {
	const style = getComputedStyle(figure);
	const width = Math.max(240, figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
	const left = 62, right = width - 8, top = 8, bottom = height - 38;
	const place = (axis, from, to) => axis.linear
		? (v) => from + (to - from) * (v - axis.low) / (axis.high - axis.low)
		: (v) => from + (to - from) * Math.log(v / axis.low) / Math.log(axis.high / axis.low);
	const X = place(x, left, right), Y = place(y, bottom, top);
	const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label});
	let last = Infinity;
	for (const v of [...x.ticks].reverse()) {
		root.append(svg("line", {class: "grid", x1: X(v), x2: X(v), y1: top, y2: bottom}));
		const name = x.show(v), half = 3.2 * name.length + 3;
		if (X(v) + half > last) continue; // no room beside the one on the right
		last = X(v) - half;
		root.append(svg("text", {x: Math.min(X(v), width - half), y: bottom + 15, "text-anchor": "middle"}, name));
	}
	for (const v of y.ticks) {
		root.append(svg("line", {class: "grid", x1: left, x2: right, y1: Y(v), y2: Y(v)}),
			svg("text", {x: left - 6, y: Y(v) + 4, "text-anchor": "end"}, y.show(v)));
	}
	root.append(svg("text", {x: (left + right) / 2, y: height - 4, "text-anchor": "middle"}, x.label));
	figure.append(root);
	return {root, X, Y, left, right, top, bottom};
};

