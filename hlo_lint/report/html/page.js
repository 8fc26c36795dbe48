"use strict";

// Nothing of the dump becomes markup: `make` and `draw` put every text into a text node.

const byId = (id) => document.getElementById(id);
const index = JSON.parse(byId("index").textContent);
const { findings, modules } = index;
const ids = new Map(findings.map((found, number) => [found.id, number]));
const SVG = "http://www.w3.org/2000/svg";
const AT_ONCE = 100;
const MODULES = 12;
let listed = [];
let drawn = 0;

function add(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(2).filter(Boolean));
  return node;
}
const make = (tag, attributes, ...children) => add(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => add(document.createElementNS(SVG, tag), attributes, children);
const code = (text) => make("span", { class: "code" }, soft(text));
const soft = (text) =>
  text
    .split(/(?<=[_.])/)
    .flatMap((part) => [make("wbr"), part])
    .slice(1);
const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

function bytes(size) {
  let value = size;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(value) < 1024 || unit === "TiB") return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
}
const time = (microseconds) =>
  microseconds === null ? "" : `${(microseconds / 1000).toFixed(microseconds < 10000 ? 2 : 0)} ms`;
const step = (number) => (number === null ? "" : String(number).padStart(4, "0"));
const titleOf = (found) => (found.module === null ? found.name : modules[found.module].title);

function behind(pass) {
  if (!pass.name) return ["by a pass without a dump of its own, before ", code(pass.pipeline || "the end")];
  const where = [pass.pipeline && ` of ${pass.pipeline}`, pass.step !== null && `, step ${step(pass.step)}`];
  return ["pass ", code(pass.name), ...where.filter(Boolean)];
}

// The list

const passOf = (found) => (found.born && found.born.name) || "";

function fill(select, all, values) {
  select.append(make("option", { value: "" }, all));
  for (const [value, text, number] of values) {
    select.append(make("option", { value }, `${text} (${number})`));
  }
}

function tally(key) {
  const counts = new Map();
  for (const found of findings) counts.set(key(found), (counts.get(key(found)) || 0) + 1);
  return [...counts].filter(([value]) => value !== "" && value !== null);
}

function words(found) {
  found.words ??= [
    found.rule,
    found.message,
    found.instruction,
    found.computation,
    titleOf(found),
    found.file,
    found.origin,
    found.op_name,
    passOf(found),
    found.resolved && found.resolved.name,
    ...found.notes,
  ]
    .join("\n")
    .toLowerCase();
  return found.words;
}

function filter() {
  const severities = new Set(
    [...document.querySelectorAll("[name=severity]:checked")].map((box) => box.value),
  );
  const sought = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [rule, module, pass] = ["rule", "module", "pass"].map((id) => byId(id).value);
  listed = [];
  findings.forEach((found, number) => {
    if (!severities.has(found.severity) || (rule && found.rule !== rule)) return;
    if ((module && String(found.module) !== module) || (pass && passOf(found) !== pass)) return;
    if (sought.every((word) => words(found).includes(word))) listed.push(number);
  });
  byId("list").replaceChildren();
  drawn = 0;
  lengthen();
  byId("shown").textContent =
    listed.length === findings.length
      ? count(findings.length, "finding")
      : `${listed.length} of ${count(findings.length, "finding")}`;
}

function lengthen() {
  const part = listed.slice(drawn, drawn + AT_ONCE);
  byId("list").append(...part.map(card));
  drawn += part.length;
  byId("more").hidden = drawn >= listed.length;
  select();
}

function card(number) {
  const found = findings[number];
  return make(
    "li",
    {},
    make(
      "a",
      { href: `#finding-${found.id}`, class: found.severity },
      found.resolved && make("span", { class: "resolved" }, "resolved"),
      make("div", { class: "rule" }, found.rule),
      make("div", { class: "message" }, found.message),
      make(
        "div",
        { class: "where" },
        found.instruction ? make("span", { class: "code" }, `%${found.instruction}`) : found.file,
        titleOf(found) && ` · ${titleOf(found)}`,
      ),
    ),
  );
}

function select() {
  for (const link of byId("list").querySelectorAll("a")) {
    if (link.getAttribute("href") === location.hash) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// A finding

function section(title, hint, ...content) {
  return make("section", {}, make("h3", {}, title), hint && make("p", { class: "hint" }, hint), ...content);
}

function facts(pairs) {
  return make(
    "dl",
    { class: "facts" },
    ...pairs
      .filter((pair) => pair[1])
      .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

function showFinding(number) {
  const found = findings[number];
  const detail = found.detail === null ? null : JSON.parse(byId(`detail-${found.detail}`).textContent);
  const lives = found.seen_in !== null && found.module !== null && modules[found.module].dumps > 1;
  const parts = [
    make(
      "p",
      { class: `above ${found.severity}` },
      make("span", { class: "severity" }, found.severity),
      make("span", {}, found.rule),
      found.resolved && make("span", {}, "resolved by a later pass"),
    ),
    make("h2", { class: "title" }, found.message),
    facts([
      [
        "instruction",
        found.instruction && [code(`%${found.instruction}`), " of ", code(`%${found.computation}`)],
      ],
      [
        "module",
        found.module === null ? found.name : make("a", { href: `#module-${found.module}` }, titleOf(found)),
      ],
      ["Python", found.origin && code(found.origin)],
      ["operation", found.op_name && code(found.op_name)],
      [
        "since",
        lives && (found.born ? behind(found.born) : "not known: it is there in the first dump that shows it"),
      ],
      ["resolved by", lives && (found.resolved ? behind(found.resolved) : "nothing: it is there at the end")],
      ["seen in", lives && count(found.seen_in, "dump")],
      ["file", code(`${found.file}:${found.line}:${found.column}`)],
    ]),
    found.notes.length && make("ul", { class: "notes" }, ...found.notes.map((note) => make("li", {}, note))),
  ];
  if (found.error_map.length) parts.push(errors(found.error_map));
  if (detail && detail.source.length) parts.push(section("Python", null, source(found, detail.source)));
  if (detail && detail.rows.length) parts.push(lines(found, detail));
  if (detail && detail.move) parts.push(dimensions(detail.move));
  if (detail && detail.graph) {
    parts.push(
      section(
        "Around the instruction",
        "What it reads stands above, who reads it below." +
          (detail.graph.nodes.some((node) => node.kind === "new") ? " What the pass added is green." : ""),
        make("div", { class: "panel drawing" }, graph(detail.graph)),
      ),
    );
  }
  if (found.module !== null && found.instruction) parts.push(wholeModule(found.module, found.instruction));
  if (detail && detail.fix) parts.push(fixed(detail.fix));
  if (found.module !== null && modules[found.module].timeline.passes.length) {
    parts.push(section("In the run of the module", null, chart(found.module, number)));
  }
  if (!detail && found.module !== null)
    parts.push(section("HLO", "Left out: see what is not here, on the first page."));
  const page = byId(`rule-${found.rule}`);
  if (page) {
    parts.push(
      section(
        "Why it matters",
        null,
        make(
          "details",
          { open: "" },
          make("summary", {}, found.rule),
          make("div", { class: "page" }, page.content.cloneNode(true)),
        ),
      ),
    );
  }
  show(found.rule, parts);
}

function show(title, parts) {
  document.title = `${title} – hlo-lint`;
  byId("main").replaceChildren(...parts.filter(Boolean));
}

function source(found, rows) {
  const line = Number(/:(\d+)(?: in .*)?$/.exec(found.origin)?.[1]);
  return make(
    "div",
    { class: "panel" },
    make(
      "table",
      { class: "lines single" },
      make(
        "tbody",
        {},
        ...rows.map(([number, text]) =>
          make(
            "tr",
            { class: number === line ? "at" : "" },
            make("td", { class: "n" }, String(number)),
            make("td", {}, text),
          ),
        ),
      ),
    ),
  );
}

const token = /(%[\w.\-]+)|(\b[a-z]\w*\[[\d,<=?]*\](?:\{[\d,]*[^{}]*\})?)/g;

function spelled(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(token)) {
    parts.push(text.slice(end, match.index), make("span", { class: match[1] ? "name" : "type" }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

const cells = (line, side) =>
  line === null
    ? [make("td", { class: "n" }), make("td", {})]
    : [
        make("td", { class: `n ${side}` }, String(line.number)),
        make(
          "td",
          { class: side },
          ...line.text.map(([differs, text]) => (differs ? make("mark", {}, text) : spelled(text))).flat(),
        ),
      ];

function lines(found, detail) {
  const two = detail.before !== null;
  const rows = detail.rows.map((row) =>
    row.kind === "gap"
      ? make("tr", { class: "gap" }, make("td", { colspan: two ? 4 : 2 }, "⋯"))
      : make(
          "tr",
          { class: `${row.kind}${row.at ? " at" : ""}` },
          two ? cells(row.before, "old") : null,
          cells(row.after, "new"),
        ),
  );
  const heads = two
    ? [
        ["before", detail.before],
        ["after", detail.after],
      ]
    : [["", detail.after]];
  const table = make(
    "table",
    { class: two ? "lines" : "lines single" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...heads.map(([name, file]) =>
          make("th", { colspan: 2, scope: "col" }, name && `${name} · `, code(file)),
        ),
      ),
    ),
    make("tbody", {}, ...rows),
  );
  const hint = two
    ? "The lines around the instruction; metadata is left out."
    : [detail.remark && `One side only: ${detail.remark}. `, found.instruction && "Metadata is left out."]
        .filter(Boolean)
        .join("");
  return section(
    two ? `HLO before and after ${found.born.name}` : "HLO",
    hint,
    make("div", { class: "panel" }, table),
  );
}

function fixed(fix) {
  const rows = fix.lines.map(([sign, text]) =>
    make(
      "tr",
      { class: { "+": "plus", "-": "minus", "@": "gap" }[sign] || "" },
      make("td", { class: "n" }, sign === "@" ? "⋯" : sign),
      make("td", {}, sign === "@" ? text : spelled(text)),
    ),
  );
  return section(
    "Fix",
    `${fix.command} would ${fix.title} (${fix.safety}):`,
    make("div", { class: "panel" }, make("table", { class: "lines single" }, make("tbody", {}, ...rows))),
  );
}

// Drawings

const CELL = 12;

function errors(rows) {
  const [width, height] = [rows[0].length * CELL, rows.length * CELL];
  const cells = [];
  rows.forEach((row, y) =>
    [...row].forEach((level, x) => {
      if (level === ".") return;
      const place = { x: x * CELL, y: y * CELL, width: CELL, height: CELL };
      cells.push(draw("rect", { ...place, class: "wrong", "fill-opacity": (Number(level) + 1) / 10 }));
    }),
  );
  const picture = draw(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", class: "errors" },
    draw("title", {}, `elements that differ in ${cells.length} of ${rows.length * rows[0].length} cells`),
    draw("rect", { width, height, class: "equal" }),
    ...cells,
  );
  return section(
    "Where the error is",
    "The last two dimensions of the result, other dimensions and neighbours merged. The largest error is darkest; a shade less is ten times smaller.",
    make("div", { class: "panel drawing" }, picture),
  );
}

function graph(data) {
  const [width, high] = data.node;
  const letters = Math.floor(width / 7.2);
  const line = (y, text, name) =>
    draw("text", { x: width / 2, y, "text-anchor": "middle", class: name }, text);
  const node = (each) =>
    draw(
      "g",
      { class: `node ${each.kind}`, transform: `translate(${each.x} ${each.y})` },
      draw("title", {}, [`%${each.name}`, each.opcode, each.shape, each.more].filter(Boolean).join("\n")),
      draw("rect", { width, height: high, rx: 7 }),
      line(19, cut(`%${each.name}`, letters), "strong"),
      line(34, cut(each.opcode, letters), "muted"),
      line(49, cut(each.shape, letters)),
      each.more && line(high + 13, each.more, "muted"),
    );
  const edge = (points) => {
    const parts = [`M${points[0]}`];
    for (let at = 1; at < points.length; at++) {
      const [[x, y], [a, b]] = [points[at - 1], points[at]];
      const middle = (y + b) / 2;
      parts.push(at % 2 ? `C${x} ${middle} ${a} ${middle} ${a} ${b}` : `L${a} ${b}`);
    }
    return draw("path", { class: "edge", d: parts.join(""), "marker-end": "url(#arrow)" });
  };
  const height = data.height + 18;
  return draw(
    "svg",
    {
      width: data.width + 8,
      height,
      viewBox: `-4 -4 ${data.width + 8} ${height}`,
      role: "img",
      "aria-label": "The instruction with its operands and users",
    },
    draw(
      "defs",
      {},
      draw(
        "marker",
        {
          id: "arrow",
          viewBox: "0 0 8 8",
          refX: 7,
          refY: 4,
          markerWidth: 7,
          markerHeight: 7,
          orient: "auto",
        },
        draw("path", { d: "M0 0L8 4L0 8z" }),
      ),
    ),
    ...data.edges.map(edge),
    ...data.nodes.map(node),
  );
}

function dimensions(data) {
  const moved = new Set(data.moved);
  const weight = (piece) => 46 + 11 * Math.log2(data.sizes[piece]);
  const TOP = 44;
  const HIGH = 30;
  const BETWEEN = 96;
  const middle = [new Map(), new Map()];
  const parts = [];
  let width = 0;
  [data.operand, data.result].forEach((side, row) => {
    const y = TOP + row * (HIGH + BETWEEN);
    parts.push(
      draw(
        "text",
        { x: 0, y: row ? y + HIGH + 38 : y - 26, class: "strong" },
        draw("title", {}, `${side.name} ${side.shape}`),
        cut(`${side.name}  ${side.shape}`, 90),
      ),
    );
    let x = 0;
    for (const each of side.dimensions) {
      const wide = each.pieces.length ? each.pieces.reduce((sum, piece) => sum + weight(piece), 0) : 30;
      parts.push(
        draw(
          "text",
          { x: x + wide / 2, y: row ? y + HIGH + 16 : y - 7, "text-anchor": "middle", class: "muted" },
          `d${each.number}${each.pieces.length > 1 ? ` = ${each.size}` : ""}`,
        ),
      );
      let left = x;
      for (const piece of each.pieces) {
        middle[row].set(piece, left + weight(piece) / 2);
        parts.push(
          draw(
            "g",
            { class: moved.has(piece) ? "moves" : "" },
            draw("rect", { class: "piece", x: left, y, width: weight(piece), height: HIGH }),
            draw(
              "text",
              { x: left + weight(piece) / 2, y: y + 19, "text-anchor": "middle" },
              String(data.sizes[piece]),
            ),
          ),
        );
        left += weight(piece);
      }
      if (!each.pieces.length) {
        parts.push(draw("text", { x: x + 15, y: y + 19, "text-anchor": "middle", class: "muted" }, "1"));
      }
      parts.push(draw("rect", { class: "dimension", x, y, width: wide, height: HIGH, rx: 3 }));
      x += wide + 6;
    }
    width = Math.max(width, x, 40 + 7 * Math.min(90, side.name.length + side.shape.length));
  });
  const from = TOP + HIGH;
  const to = from + BETWEEN;
  for (const piece of [...middle[0].keys()].sort((a, b) => moved.has(a) - moved.has(b))) {
    const [a, b] = middle.map((places) => places.get(piece));
    parts.push(
      draw(
        "g",
        { class: moved.has(piece) ? "moves" : "" },
        draw("path", { class: "link", d: `M${a} ${from}C${a} ${from + 45} ${b} ${to - 45} ${b} ${to}` }),
      ),
    );
  }
  const height = to + HIGH + 46;
  const hint =
    "Each array as it lies in memory, the slowest varying dimension first. " +
    (moved.size ? "Red: what does not keep its place." : "Everything keeps its order: no byte has to move.");
  return section(
    data.title,
    hint,
    make(
      "div",
      { class: "panel drawing" },
      draw(
        "svg",
        { width: width + 8, height, viewBox: `-4 0 ${width + 8} ${height}`, role: "img", "aria-label": hint },
        ...parts,
      ),
    ),
  );
}

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

// The timeline: curves of the module's size, and below them a bar for the life of each finding.
function chart(number, chosen) {
  const holder = make("div", { class: "panel drawing chart" });
  new ResizeObserver(() => holder.replaceChildren(curves(number, chosen, holder.clientWidth - 34))).observe(
    holder,
  );
  return holder;
}

const LANES = 12;
const LANE = 20;
const PANEL = 62;
const HEAD = 20;

function curves(number, chosen, room) {
  const { passes, lives } = modules[number].timeline;
  const width = Math.max(480, room);
  const side = width < 700 ? 130 : 186;
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
        "rect",
        { class: "hover", x: place.x(at), y: HEAD, width: every, height: bottom - HEAD },
        draw("title", {}, described(pass)),
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
    draw("text", { x: 0, y: y + 4 }, draw("title", {}, said), cut(said, Math.floor(side / 6.9))),
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
  if (life.point) return `seen at ${at(life.first)}; the rule looks at no other dump`;
  return `${life.born ? `came with ${at(life.first)}` : `there since ${at(life.first)}, or older`}, ${life.last === null ? "stays to the end" : `gone with ${at(life.last)}`}`;
}

// A module

/** A table in a frame; what is no head is left out, and some columns hold numbers. */
function panel(heads, numbers, rows) {
  const head = (name) => make("th", { scope: "col", class: numbers.includes(name) ? "number" : "" }, name);
  return make(
    "div",
    { class: "panel" },
    make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...heads.filter(Boolean).map(head))),
      make("tbody", {}, ...rows),
    ),
  );
}

function table(number) {
  const { passes, lives } = modules[number].timeline;
  const events = passes.map(() => []);
  const timed = passes.some((pass) => pass.microseconds !== null);
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
  let last = null;
  const rows = passes.map((pass, at) => {
    const same = pass.pipeline === last;
    last = pass.pipeline;
    return make(
      "tr",
      { class: `${pass.changed}${events[at].length ? " marked" : ""}` },
      make("td", { class: "number" }, step(pass.step)),
      make("td", {}, same ? "" : soft(pass.pipeline)),
      make("td", {}, code(pass.name), ...events[at]),
      make(
        "td",
        { class: "what" },
        pass.changed === "names" ? "names only" : pass.what,
        pass.left_out ? make("div", {}, `${count(pass.left_out, "dump")} before it changed nothing`) : null,
      ),
      make("td", { class: "number" }, pass.instructions.toLocaleString("en")),
      make("td", { class: "number" }, bytes(pass.bytes)),
      timed && make("td", { class: "number" }, time(pass.microseconds)),
    );
  });
  const heads = ["step", "pipeline", "pass", "what changed", "instructions", "bytes", timed && "time"];
  return panel(heads, ["step", "instructions", "bytes", "time"], rows);
}

function timeline(number, of) {
  const { passes, trouble } = modules[number].timeline;
  if (trouble) return [make("p", { class: "hint" }, `No timeline: ${trouble}`)];
  if (!passes.length) return [];
  return [
    section(
      `Timeline${of}`,
      "● a finding came with this pass, ✕ it went with it. ○ It is there, and may be older.",
      chart(number),
    ),
    section("Passes that changed the module", null, table(number)),
  ];
}

const about = (module) =>
  [module.folder, module.release, module.state, count(module.dumps, "dump"), sums(module)]
    .filter(Boolean)
    .join(" · ");
const sums = (module) =>
  Object.entries(module.counts)
    .map(([severity, number]) => (severity === "info" ? `${number} info` : count(number, severity)))
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
  const rows = numbers.map((number) => {
    const module = modules[number];
    return make(
      "tr",
      {},
      make("td", {}, make("a", { href: `#module-${number}` }, module.title)),
      folders && make("td", {}, module.folder),
      make("td", {}, module.release),
      make("td", {}, module.state),
      make("td", { class: "number" }, String(module.dumps)),
      make("td", {}, sums(module)),
    );
  });
  return panel(["module", folders && "folder", "compiler", "state", "dumps", "findings"], ["dumps"], rows);
}

function showAll() {
  const rank = (number) => ["error", "warning", "info"].findIndex((name) => modules[number].counts[name]) >>> 0;
  const numbers = [...modules.keys()].sort((a, b) => rank(a) - rank(b) || a - b);
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
          `Not listed: ${count(index.quiet, "module")} without findings that the autotuner made to try a backend.`,
        ),
    ),
  ];
  const first = numbers.find((number) => modules[number].timeline.lives.length) ?? numbers[0];
  if (first !== undefined) parts.push(...timeline(first, ` of ${modules[first].title}`));
  const said = [
    ...index.left_out.map((what) => `Left out: ${what}`),
    ...index.allowed.map((what) => `Allowed: ${what}`),
    ...index.skipped.map(([path, reason]) => `Not looked at: ${path}: ${reason}`),
  ];
  if (said.length)
    parts.push(
      section(
        "What is not here",
        null,
        make("ul", { class: "notes" }, ...said.map((line) => make("li", {}, line))),
      ),
    );
  show("report", parts);
}

// The way there

let routed = null;

function route() {
  routed = location.hash;
  const [, kind, name] = /^#(finding|module)-(.*)$/.exec(location.hash) || [];
  if (kind === "finding" && ids.has(name)) showFinding(ids.get(name));
  else if (kind === "module" && modules[Number(name)]) showModule(Number(name));
  else if (location.hash === "#main") return byId("main").focus();
  else showAll();
  select();
  if (kind) {
    byId("main").focus({ preventScroll: true });
    byId("main").scrollIntoView({ behavior: "instant", block: innerWidth > 960 ? "nearest" : "start" });
    if (innerWidth > 960) scrollTo({ top: 0, behavior: "instant" });
  }
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light" : "Dark";
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
// At once: the event comes later, and the page would be older than its address.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = link.getAttribute("href");
  route();
});
if (!location.hash && findings.length && findings[0].severity !== "info") {
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
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("#list")) {
    event.preventDefault();
    const item = event.target.closest("li");
    const other = event.key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling;
    other?.querySelector("a").focus();
  }
});
filter();
route();
