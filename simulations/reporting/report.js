// What a report does in a browser, beside what is written there: vegaEmbed is known.

// Charts tell their values from when they come into sight. Until then, on paper and where
// no script runs, they are as they were drawn when the page was written.
function draw(chart) {
  const spec = JSON.parse(chart.nextElementSibling.textContent);
  const description = chart.firstElementChild.getAttribute("aria-label");
  vegaEmbed(chart, { ...spec, width: "container", description }, {
    actions: false, defaultStyle: false, renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
}
const sight = new IntersectionObserver(found => {
  for (const { isIntersecting, target } of found) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });
document.querySelectorAll(".chart").forEach(chart => sight.observe(chart));

// Links to the streams of data become tabs: one stream is in sight, on paper all are.
const tabs = [...document.querySelectorAll(".tabs a")];
const panel = tab => document.getElementById(tab.hash.slice(1)).closest("section");
function choose(tab) {
  for (const each of tabs) {
    each.setAttribute("aria-selected", each === tab);
    each.tabIndex = each === tab ? 0 : -1;
    panel(each).hidden = each !== tab;
  }
}
function follow() {  // a link to what is in another tab
  const aim = document.getElementById(location.hash.slice(1));
  const tab = tabs.find(each => panel(each).contains(aim));
  if (!tab || !panel(tab).hidden) return;
  choose(tab);
  aim.scrollIntoView();
}
for (const tab of tabs) {
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", panel(tab).id);
  panel(tab).setAttribute("role", "tabpanel");
  tab.addEventListener("click", event => {
    event.preventDefault();
    choose(tab);
  });
  tab.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs.at((tabs.indexOf(tab) + step) % tabs.length);
    choose(next);
    next.focus();
  });
}
if (tabs.length) {
  tabs[0].parentElement.setAttribute("role", "tablist");
  choose(tabs[0]);
  follow();
  addEventListener("hashchange", follow);
}

// A click on a heading sorts the table by that column, a second one the other way.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") === "descending";
    const value = row => {
      const text = row.cells[head.cellIndex].textContent, number = parseFloat(text);
      return Number.isNaN(number) ? text : number;
    };
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0)
                                                    : (typeof a === "string" ? -1 : 1);
    const rows = [...body.rows].sort((a, b) => compare(value(a), value(b)));
    body.append(...(up ? rows : rows.reverse()));
  });
}
