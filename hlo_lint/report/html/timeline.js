// The passes of a module and their changes. Helpers are in elements.js.

function groups(lives, chosen) {
  const found = new Map();
  for (const life of lives) {
    const { rule, severity } = findings[life.finding];
    const key =
      chosen === life.finding
        ? "chosen"
        : [rule, severity, life.first, life.last, life.born, life.point].join();
    if (!found.has(key)) found.set(key, { ...life, rule, severity, all: [] });
    found.get(key).all.push(life.finding);
  }
  const rank = (group) =>
    group.all.includes(chosen) ? -1 : ["error", "warning", "info"].indexOf(group.severity);
  return [...found.values()].sort((a, b) => rank(a) - rank(b) || a.first - b.first);
}

const many = (group) => (group.all.length > 1 ? `${group.all.length}× ${group.rule}` : group.rule);

// The timeline: curves of the module's size, and a bar for the life of each finding below them.
function chart(number, chosen, current) {
  const holder = make("div", { class: "panel drawing chart" });
  new ResizeObserver(() => holder.replaceChildren(curves(number, chosen, holder.clientWidth - 34, current))).observe(
    holder,
  );
  return holder;
}

const LANES = 12;
const LANE = 20;
const PANEL = 62;
const HEAD = 20;

function curves(number, chosen, room, current) {
  const { passes, lives } = modules[number].timeline;
  const width = Math.max(280, room);
  const side = width < 480 ? 118 : width < 700 ? 130 : 186;
  const every = (width - side - 14) / passes.length;
  const place = { width, side, every, x: (at) => side + at * every };
  const quantities = [
    ["instructions", (pass) => pass.instructions, (value) => value.toLocaleString("en")],
    ["bytes", (pass) => pass.bytes, bytes],
    ["time", (pass) => pass.microseconds || 0, time],
  ].filter(([name]) => name !== "time" || passes.some((pass) => pass.microseconds));
  const all = groups(lives, chosen);
  const lanes = HEAD + quantities.length * (PANEL + 12);
  const bottom = lanes + Math.min(all.length, LANES + 1) * LANE + 4;
  return draw(
    "svg",
    {
      width,
      height: bottom,
      role: "group",
      "aria-label": "Size of the module and lives of its findings, pass by pass",
    },
    bands(passes, place, bottom),
    quantities.map((quantity, row) => curve(passes, quantity, HEAD + row * (PANEL + 12), place)),
    passes.map((pass, at) =>
      draw(
        "a",
        { href: `#pass-${number}-${at}`, tabindex: -1 },
        draw(
          "rect",
          {
            class: at === current ? "hover current" : "hover",
            x: place.x(at),
            y: HEAD,
            width: every,
            height: bottom - HEAD,
          },
          draw("title", {}, described(pass)),
        ),
      ),
    ),
    all.slice(0, LANES).map((group, lane) => bar(group, chosen, passes, lanes + lane * LANE + 9, place)),
    all.length > LANES &&
      draw(
        "text",
        { class: "muted", x: 0, y: lanes + LANES * LANE + 13 },
        `and ${all.length - LANES} more: see the table`,
      ),
  );
}

const described = (pass) =>
  [
    `${step(pass.step)} ${pass.name}`,
    pass.pipeline,
    count(pass.instructions, "instruction"),
    bytes(pass.bytes),
    time(pass.microseconds),
    pass.what,
  ]
    .filter(Boolean)
    .join("\n");

// The pipelines, every other one shaded.
function bands(passes, { x }, bottom) {
  const parts = [];
  let from = 0;
  let shaded = false;
  passes.forEach((pass, at) => {
    if (at + 1 < passes.length && passes[at + 1].pipeline === pass.pipeline) return;
    const width = x(at + 1) - x(from);
    if (shaded)
      parts.push(draw("rect", { class: "band", x: x(from), y: HEAD, width, height: bottom - HEAD }));
    const letters = Math.floor(width / 6.7) - 1;
    if (letters > 3) {
      parts.push(
        draw(
          "text",
          { class: "muted", x: x(from) + 2, y: HEAD - 7 },
          cut(pass.pipeline || pass.name, letters),
        ),
      );
    }
    shaded = !shaded;
    from = at + 1;
  });
  return parts;
}

function curve(passes, [name, value, say], top, { width, side, every, x }) {
  const most = Math.max(1, ...passes.map(value));
  const base = top + PANEL;
  const y = (pass) => top + 6 + (PANEL - 6) * (1 - value(pass) / most);
  const parts = [
    draw("text", { class: "sans", x: 0, y: top + 18 }, name),
    draw("text", { class: "muted", x: 0, y: top + 34 }, `at most ${say(most)}`),
    draw("path", { class: "axis", d: `M${side} ${base}H${width - 14}` }),
  ];
  if (name === "time") {
    return parts.concat(
      passes.map((pass, at) =>
        draw("rect", {
          class: "bar",
          x: x(at) + every * 0.15,
          y: y(pass),
          width: Math.max(1, every * 0.7),
          height: base - y(pass),
        }),
      ),
    );
  }
  const line = passes.map((pass, at) => `${at ? "V" : `M${side} `}${y(pass)}H${x(at + 1)}`).join("");
  return [
    ...parts,
    draw("path", { class: "area", d: `${line}V${base}H${side}Z` }),
    draw("path", { class: "curve", d: line }),
  ];
}

function bar(group, chosen, passes, y, { width, side, every, x }) {
  const start = x(group.first) + every / 2;
  const end = group.point ? start : group.last === null ? width - 20 : x(group.last) + every / 2;
  const said = many(group);
  const faint = chosen !== undefined && !group.all.includes(chosen);
  return draw(
    "a",
    { href: `#finding-${findings[group.all[0]].id}` },
    draw("text", { x: 0, y: y + 4 }, draw("title", {}, said), cut(said, Math.floor((side - 8) / 6.9))),
    draw(
      "g",
      { class: `life ${group.severity}${faint ? " faint" : ""}` },
      draw("title", {}, `${said}: ${story(group, passes)}`),
      draw("line", { x1: start, x2: end, y1: y, y2: y, class: group.born ? "" : "older" }),
      draw("circle", { cx: start, cy: y, r: 5, class: group.born ? "" : "older" }),
      group.last !== null && draw("path", { d: `M${end - 5} ${y - 5}l10 10m0 -10l-10 10` }),
      group.last === null && !group.point && draw("path", { d: `M${end - 2} ${y - 5}l6 5l-6 5` }),
    ),
  );
}

function story(life, passes) {
  const at = (number) =>
    `${passes[number].name}${passes[number].step === null ? "" : ` (step ${step(passes[number].step)})`}`;
  if (life.point) return `found after ${at(life.first)}; the rule checks no other dump`;
  return `${life.born ? `introduced by ${at(life.first)}` : `present since ${at(life.first)} or earlier`}, ${life.last === null ? "present at the end" : `resolved by ${at(life.last)}`}`;
}

const whatChanged = (pass) =>
  pass.what || { names: "names only", yes: "operands or attributes" }[pass.changed] || "";

// Links to the findings that each pass introduced or resolved.
function eventsOf(number) {
  const { passes, lives } = modules[number].timeline;
  const events = passes.map(() => []);
  for (const group of groups(lives)) {
    const link = (sign, what) =>
      make(
        "a",
        { class: `${what} ${group.severity}`, href: `#finding-${findings[group.all[0]].id}` },
        make("span", { class: "severity" }, sign),
        ` ${many(group)}`,
      );
    events[group.first].push(link(group.born ? "●" : "○", "born"));
    if (group.last !== null) events[group.last].push(link("✕", "died"));
  }
  return events;
}

function table(number) {
  const { passes } = modules[number].timeline;
  const events = eventsOf(number);
  const timed = passes.some((pass) => pass.microseconds !== null);
  const rows = passes.flatMap((pass, at) => [
    pass.pipeline && pass.pipeline !== passes[at - 1]?.pipeline
      ? make("tr", { class: "pipeline" }, make("th", { colspan: timed ? 6 : 5, scope: "rowgroup" }, pass.pipeline))
      : null,
    make(
      "tr",
      { class: `${pass.changed}${events[at].length ? " marked" : ""}` },
      make("td", { class: "number" }, step(pass.step)),
      make("td", {}, make("a", { href: `#pass-${number}-${at}` }, code(pass.name)), ...events[at]),
      make(
        "td",
        { class: "what" },
        whatChanged(pass),
        pass.left_out ? make("div", {}, `${count(pass.left_out, "dump")} before it changed nothing`) : null,
      ),
      make("td", { class: "number" }, pass.instructions.toLocaleString("en")),
      make("td", { class: "number size" }, bytes(pass.bytes)),
      timed && make("td", { class: "number size" }, time(pass.microseconds)),
    ),
  ]);
  const heads = ["step", "pass", "what changed", "instructions", "bytes", timed && "time"];
  return panel(heads, ["step", "instructions", "bytes", "time"], rows.filter(Boolean), "passes");
}

function timeline(number, of) {
  const { passes, lives, trouble } = modules[number].timeline;
  if (trouble) return [make("p", { class: "hint" }, `No timeline: ${trouble}`)];
  if (!passes.length) return [];
  return [
    section(
      `Timeline${of}`,
      lives.length ? "● the pass introduced a finding, ✕ the pass resolved it, ○ the first dump that shows it." : null,
      chart(number),
    ),
    section("Passes that changed the module", "A click on a pass shows what it changed.", table(number)),
  ];
}


// A pass

/** The numbers of a module and of a pass in its timeline: `3-17`. */
function passAt(name) {
  const numbers = name.split("-").map(Number);
  return modules[numbers[0]]?.timeline.passes[numbers[1]] ? numbers : null;
}

const passLink = (number, at) => {
  const pass = modules[number].timeline.passes[at];
  return make("a", { href: `#pass-${number}-${at}` }, code(named(pass)));
};

/** The pass that introduced a finding, as far as the dumps tell. */
function since(number) {
  const { module, born } = findings[number];
  const { passes, lives } = modules[module].timeline;
  const first = lives.find((life) => life.finding === number)?.first ?? null;
  if (born) return behind(born, module);
  if (!first) return "unknown: the first dump has it";
  return ["an unknown pass between ", passLink(module, first - 1), " and ", passLink(module, first)];
}

const named = (pass) => (pass.step === null ? pass.name : `${step(pass.step)} ${pass.name}`);

function showPass(number, at) {
  const { passes } = modules[number].timeline;
  const pass = passes[at];
  const before = passes[at - 1];
  const became = (key, say) =>
    before && before[key] !== pass[key] ? `${say(before[key])} → ${say(pass[key])}` : say(pass[key]);
  const beside = (to, sign, rel) =>
    passes[to] && make("a", { href: `#pass-${number}-${to}`, rel }, sign(code(named(passes[to]))));
  const holder = make("div", { class: "difference" });
  const events = eventsOf(number)[at];
  show(pass.name, [
    make(
      "p",
      { class: "above" },
      make("a", { href: `#module-${number}` }, modules[number].title),
      pass.pipeline && make("span", {}, pass.pipeline),
      pass.step !== null && make("span", {}, `step ${step(pass.step)}`),
    ),
    make("h2", { class: "title" }, pass.name),
    facts([
      ["instructions", became("instructions", (value) => value.toLocaleString("en"))],
      ["bytes", became("bytes", bytes)],
      ["time", time(pass.microseconds)],
      ["what changed", whatChanged(pass)],
      ["findings", events.length && make("div", { class: "events" }, ...events)],
    ]),
    make(
      "nav",
      { class: "beside", "aria-label": "Passes" },
      beside(at - 1, (name) => ["← ", name], "prev"),
      beside(at + 1, (name) => [name, " →"], "next"),
    ),
    make("section", {}, chart(number, undefined, at)),
    holder,
  ]);
  difference(number, at).then((parts) => holder.replaceChildren(...parts.filter(Boolean)));
}

async function difference(number, at) {
  const { timeline } = modules[number];
  const pass = timeline.passes[at];
  const held = byId(`differences-${number}`) && (await unpacked(`differences-${number}`))[at];
  const hint = (text) => make("p", { class: "hint" }, text);
  if (pass.changed === "first") return [hint("The first dump: no dump before it to compare.")];
  if (pass.changed === "no") return [hint("No change.")];
  if (pass.changed === "names") return [hint("Only names and metadata differ.")];
  if (!held) return [hint("Left out: see “Not on this page” on the first page.")];
  return [
    section(
      "What changed",
      `${held.summary}; names and metadata are not compared.`,
      held.notes.length && make("ul", { class: "notes" }, ...held.notes.map((note) => make("li", {}, note))),
    ),
    ...held.computations.map((computation) =>
      make(
        "section",
        { class: "computation" },
        make("h4", {}, code(computation.title)),
        computation.notes.length && hint(computation.notes.join("; ")),
        computation.rows.length && sides(computation.rows, held.before, held.after),
      ),
    ),
    held.left_out > 0 && hint(`Left out: ${count(held.left_out, "more line")} that differ.`),
  ];
}
