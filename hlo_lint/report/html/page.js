// The pages of a module and of the report, and navigation between pages.

const MODULES = 12;

const about = (module) =>
  [module.folder, module.release, module.state, count(module.dumps, "dump"), sums(module)]
    .filter(Boolean)
    .join(" · ");
const sums = (module) =>
  Object.entries(module.counts)
    .map(([kind, number]) => (kind === "resolved" ? `${number} resolved` : count(number, kind)))
    .join(", ") || "no findings";

function showModule(number) {
  const module = modules[number];
  show(module.title, [
    make("h2", { class: "title" }, module.title),
    make("p", { class: "above" }, about(module)),
    ...timeline(number, ""),
    wholeModule(number, ""),
  ]);
}

function moduleTable(numbers) {
  const folders = modules.some((module) => module.folder);
  // The head of the page names a single release.
  const releases = new Set(modules.map((module) => module.release)).size > 1;
  const states = modules.some((module) => module.state);
  const sizes = modules.some((module) => module.timeline.passes.length);
  const rows = numbers.map((number) => {
    const module = modules[number];
    const last = module.timeline.passes.at(-1);
    return make(
      "tr",
      {},
      make("td", {}, make("a", { href: `#module-${number}` }, soft(module.title))),
      folders && make("td", {}, module.folder),
      releases && make("td", { class: "size" }, module.release),
      states && make("td", { class: "size" }, module.state),
      make("td", { class: "number size" }, String(module.dumps)),
      sizes && make("td", { class: "number" }, last ? last.instructions.toLocaleString("en") : ""),
      make("td", {}, sums(module)),
    );
  });
  return panel(
    ["module", folders && "folder", releases && "compiler", states && "state", "dumps", sizes && "instructions", "findings"],
    ["dumps", "instructions"],
    rows,
    "modules",
  );
}

function showAll() {
  const numbers = [...modules.keys()];
  const holder = make("div", {}, moduleTable(numbers.slice(0, MODULES)));
  if (numbers.length > MODULES) {
    const rest = make("button", { type: "button" }, `Show all ${numbers.length} modules`);
    rest.addEventListener("click", () => holder.replaceChildren(moduleTable(numbers)));
    holder.append(rest);
  }
  const parts = [
    section(
      "Modules",
      null,
      holder,
      index.quiet &&
        make(
          "p",
          { class: "hint" },
          `Not listed: ${count(index.quiet, "autotuner module")} without findings.`,
        ),
    ),
  ];
  // The first has the worst finding, or is the largest.
  if (modules.length) parts.push(...timeline(0, ` of ${modules[0].title}`));
  const said = [
    ...index.left_out.map((items) => `Left out: ${items}`),
    ...index.allowed.map((what) => `Allowed: ${what}`),
    ...index.skipped.map(([path, reason]) => `Skipped: ${path}: ${reason}`),
  ];
  if (said.length)
    parts.push(
      section(
        "Not on this page",
        null,
        make("ul", { class: "notes" }, ...said.map((line) => make("li", {}, line))),
      ),
    );
  show("report", parts);
}

// Navigation

let routed = null;

// Shows the page that the address names, and scrolls to it if the reader asked for it: a phone
// begins at the title.
function route(asked = true) {
  routed = location.hash;
  const [, kind, name] = /^#(finding|module|pass)-(.*)$/.exec(location.hash) || [];
  if (kind === "finding" && ids.has(name)) showFinding(ids.get(name));
  else if (kind === "module" && modules[Number(name)]) showModule(Number(name));
  else if (kind === "pass" && passAt(name)) showPass(...passAt(name));
  else if (location.hash === "#main") return byId("main").focus();
  else showAll();
  select();
  if (kind && asked) {
    byId("main").focus({ preventScroll: true });
    byId("main").scrollIntoView({ behavior: "instant", block: innerWidth > 960 ? "nearest" : "start" });
    if (innerWidth > 960) scrollTo({ top: 0, behavior: "instant" });
  }
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
  if (moduleView && moduleView.holder.isConnected) moduleView.draw();
}

fill(
  byId("rule"),
  "All rules",
  tally((found) => found.rule).map(([rule, number]) => [rule, rule, number]),
);
fill(
  byId("module"),
  "All modules",
  tally((found) => found.module).map(([at, number]) => [at, modules[at].title, number]),
);
fill(
  byId("pass"),
  "All passes",
  tally(passOf).map(([pass, number]) => [pass, pass, number]),
);
byId("filters").addEventListener("input", filter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("more").addEventListener("click", lengthen);
byId("theme").addEventListener("click", () => theme(byId("theme").textContent === "Dark"));
theme(matchMedia("(prefers-color-scheme: dark)").matches);
addEventListener("hashchange", () => location.hash !== routed && route());
// At once: hashchange comes later, and until then the page would differ from its address.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = link.getAttribute("href");
  route();
});
const asked = Boolean(location.hash);
if (!asked && findings.length && findings[0].severity !== "info") {
  history.replaceState(null, "", `#finding-${findings[0].id}`); // the worst is the first
}
document.addEventListener("keydown", (event) => {
  const writing = event.target.matches("input[type=search], select");
  if (event.key === "/" && !writing) {
    event.preventDefault();
    byId("search").focus();
  } else if (event.key === "Escape" && event.target === byId("search")) {
    byId("search").value = "";
    filter();
  } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !writing && !event.altKey) {
    document.querySelector(`.beside a[rel=${event.key === "ArrowLeft" ? "prev" : "next"}]`)?.click();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("#list")) {
    event.preventDefault();
    const links = [...byId("list").querySelectorAll("a, summary")].filter((link) => link.checkVisibility());
    links[links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }
});
byId("filters").hidden = !findings.length;
const severities = new Set(findings.map((found) => found.severity));
for (const box of document.querySelectorAll("[name=severity]")) {
  box.parentElement.hidden = severities.size < 2 || !severities.has(box.value);
}
filter();
route(asked);
