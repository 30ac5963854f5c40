// The history of the kept runs: one chart a cell, and which of them are shown.

const machines = JSON.parse(byId("data").textContent);
const cells = machines.flatMap((m) => m.cells.map((c) => ({...c, runs: m.runs})));

// Some five round values of a linear axis.
const evenTicks = (low, high) => {
	const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
	const step = power * [1, 2, 5, 10].find((f) => f * power >= rough);
	const list = [];
	for (let k = Math.ceil(low / step); k * step <= high; k++) list.push(k * step);
	return list;
};

const drawTrend = (c, number) => {
	const show = c.share ? percent : (x, n) => digits(x, n) + "/s";
	const words = c.steps.map((s) => `${s.change} at ${c.runs[s.begin].commit}`).join(", ");
	const figure = html("figure", {}, html("figcaption", {}, c.title, html("span", {class: "note"}, words === "" ? c.by : c.by + ": " + words)));
	byId("figures").append(figure);
	// A chart spans at least a tenth of its values, so that small noise looks small.
	const middle = [...c.values].sort((a, b) => a - b)[c.values.length >> 1];
	const low = Math.min(0.95 * middle, ...c.values), high = Math.max(1.05 * middle, ...c.values), room = 0.08 * (high - low) || 1;
	const last = c.runs.length - 1;
	const f = frame(figure, `${c.title}, run by run`, 210,
		{linear: true, low: -0.6, high: last + 0.6, ticks: [...new Set([0, ...c.steps.map((s) => s.begin), last])], show: (i) => c.runs[i].commit.slice(0, 7), label: "runs, by commit"},
		{linear: true, low: low - room, high: high + room, ticks: evenTicks(low - room, high + room), show: (v) => show(v)});
	const look = {colour: number, shape: 0}, g = svg("g", {class: hueClass(look)});
	f.root.append(g);
	let from = 0;
	for (const s of [...c.steps, null]) {
		const to = s ? s.begin : last + 1, level = s ? s.was : c.steps.length > 0 ? c.steps[c.steps.length - 1].is : middle;
		g.append(svg("path", {class: "path", d: `M${f.X(from - 0.5)} ${f.Y(level)}L${f.X(to - 0.5)} ${f.Y(level)}`}));
		if (!s) break;
		const slower = s.is < s.was;
		f.root.append(svg("line", {class: slower ? "step slower" : "step", x1: f.X(to - 0.5), x2: f.X(to - 0.5), y1: f.top, y2: f.bottom}),
			svg("text", {class: slower ? "slower" : "faster", x: f.X(to - 0.5) + (to > last / 2 ? -5 : 5), y: f.top + 11, "text-anchor": to > last / 2 ? "end" : "start"}, s.change));
		from = to;
	}
	const stops = c.at.map((run, i) => speaking(look, f.X(run), f.Y(c.values[i]), `${c.runs[run].commit}, ${c.runs[run].day}\n${c.by}: ${show(c.values[i], 4)}`));
	f.root.append(...stops);
	walk(f.root, [stops]);
};

const stepped = byId("stepped");
const selects = new Map();
const draw = () => {
	hideTip();
	const chosen = cells.filter((c) => (!stepped.checked || c.steps.length > 0) && [...selects].every(([key, select]) => select.value === "" || select.value === "=" + c.keys[key]));
	byId("problem").textContent = `${chosen.length} of ${cells.length} cells`;
	byId("figures").replaceChildren();
	const kernels = [...new Set(cells.map((c) => c.keys.kernel))];
	for (const c of chosen) drawTrend(c, kernels.indexOf(c.keys.kernel));
};
if (cells.length > 0) {
	for (const key of Object.keys(cells[0].keys)) {
		const values = [...new Set(cells.map((c) => c.keys[key]))];
		if (values.length === 1) continue;
		if (values.every((v) => v !== "" && !isNaN(v))) values.sort((a, b) => a - b);
		const select = html("select", {}, html("option", {value: ""}, "all"), ...values.map((v) => html("option", {value: "=" + v}, v || "none")));
		select.addEventListener("change", draw);
		selects.set(key, select);
		byId("filters").append(html("label", {}, key, select));
	}
	stepped.checked = cells.some((c) => c.steps.length > 0);
	stepped.addEventListener("change", draw);
	byId("charts").hidden = false;
	draw();
	let width = byId("figures").clientWidth;
	new ResizeObserver(() => {
		if (width === byId("figures").clientWidth) return;
		width = byId("figures").clientWidth;
		draw();
	}).observe(byId("figures"));
}
