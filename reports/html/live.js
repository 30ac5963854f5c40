
// A page that is served while its run goes on. As the journal grows, the page is fetched again and replaces what is shown. What the reader chose stays:
// problem, kernels, order, focus, and how far tables are scrolled.
const live = byId("live");
const renew = (page) => {
	const box = document.activeElement.closest("#filters, #legend, #figures");
	const stops = () => [...box.querySelectorAll("select, button, a, [tabindex]")];
	const place = box ? stops().indexOf(document.activeElement) : -1;
	const scrolled = new Map([...document.querySelectorAll(".scroll")].map((e) => [e.getAttribute("aria-label"), [e.scrollLeft, e.scrollTop]]));

	data = dataOf(page);
	for (const id of ["before", "after", "end"]) {
		if (byId(id).innerHTML !== page.getElementById(id).innerHTML) byId(id).replaceWith(page.getElementById(id));
	}
	byId("points").tBodies[0].replaceWith(page.getElementById("points").tBodies[0]);
	rows = [...byId("points").tBodies[0].rows];
	sortRows();
	drawAll();

	for (const e of document.querySelectorAll(".scroll")) [e.scrollLeft, e.scrollTop] = scrolled.get(e.getAttribute("aria-label")) || [0, 0];
	if (place >= 0) stops()[place]?.focus({preventScroll: true});
};

let busy = false, late = false; // an event during a renewal causes one more renewal
const events = new EventSource("events?seen=" + live.dataset.seen);
events.onmessage = async () => {
	late = true;
	if (busy) return;
	busy = true;
	while (late) {
		late = false;
		try {
			const answer = await fetch("."), words = await answer.text();
			if (!answer.ok) throw new Error(words);
			renew(new DOMParser().parseFromString(words, "text/html"));
			live.textContent = "Live, as of " + new Date().toLocaleTimeString("en-GB") + ".";
		} catch (e) {
			live.textContent = "Not renewed: " + e.message;
		}
	}
	busy = false;
};
events.onerror = () => { live.textContent = "Not connected; benchrun report --serve has ended, or cannot be reached."; };
