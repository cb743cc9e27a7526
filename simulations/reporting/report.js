// What a report does in a browser, beside what is written there: vegaEmbed is known.

// Charts tell their values from when they come into sight. Until then, on paper and where
// no script runs, they are as they were drawn when the page was written.
async function draw(chart) {
  const data = chart.nextElementSibling;
  const live = document.createElement("div");
  live.className = "live";
  live.style.minHeight = chart.style.minHeight;
  const description = chart.firstElementChild.getAttribute("aria-label");
  chart.after(live);
  const spec = { ...JSON.parse(data.textContent), width: "container", description };
  const { view } = await vegaEmbed(live, spec, {
    actions: false, defaultStyle: false, renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  if (spec.params.some(each => each.name === "isolated")) follow_methods(chart, view);
}

// A method that is clicked, or whose name is pointed at, is set off in all charts of its
// data. A second click, or Escape, ends that.
const views = new WeakMap();  // of each section
const chosen = new WeakMap();
function isolate(section, method) {
  for (const view of views.get(section) ?? []) view.signal("isolated", method).runAsync();
}
function pin(section, method) {
  const now = chosen.get(section) === method ? null : method;
  chosen.set(section, now);
  for (const button of section.querySelectorAll(".methods button")) {
    button.setAttribute("aria-pressed", button.value === now);
  }
  isolate(section, now);
}
function follow_methods(chart, view) {
  const section = chart.closest("section");
  views.set(section, [...views.get(section) ?? [], view]);
  const method = item => item?.datum?.datum?.method ?? item?.datum?.method;
  view.addEventListener("click", (_, item) => method(item) && pin(section, method(item)));
  view.addEventListener("pointerover", (_, item) => {
    if (item?.mark.marktype === "text" && method(item)) isolate(section, method(item));
  });
  view.addEventListener("pointerout", (_, item) => {
    if (item?.mark.marktype === "text") isolate(section, chosen.get(section) ?? null);
  });
  view.signal("isolated", chosen.get(section) ?? null).runAsync();
}
for (const group of document.querySelectorAll(".methods")) {
  const section = group.closest("section");
  group.hidden = false;
  for (const button of group.children) {
    button.addEventListener("click", () => pin(section, button.value));
    button.addEventListener("pointerenter", () => isolate(section, button.value));
    button.addEventListener("pointerleave",
      () => isolate(section, chosen.get(section) ?? null));
  }
  section.addEventListener("keydown", event => {
    if (event.key === "Escape" && chosen.get(section)) pin(section, chosen.get(section));
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
function follow() {  // a link to what is in another tab, or folded
  const aim = document.getElementById(location.hash.slice(1));
  if (aim?.tagName === "DETAILS") aim.open = true;
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
}
follow();
addEventListener("hashchange", follow);

// What is folded is unfolded on paper.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll(".folded:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});

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
