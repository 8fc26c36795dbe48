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
async function unpacked(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
const titleOf = (found) => (found.module === null ? found.name : modules[found.module].title);

function behind(pass, module) {
  const at = pass.step === null ? -1 : modules[module].timeline.passes.findIndex((other) => other.step === pass.step);
  const name = code(pass.name);
  if (pass.name === "pipeline-start" && at > 0) {
    return ["between ", passLink(module, at - 1), " and ", passLink(module, at)];
  }
  if (!pass.name) return ["by a pass without a dump of its own, before ", code(pass.pipeline || "the end")];
  const where = [pass.pipeline && ` of ${pass.pipeline}`, pass.step !== null && `, step ${step(pass.step)}`];
  const linked = at < 0 ? name : make("a", { href: `#pass-${module}-${at}` }, name);
  return ["pass ", linked, ...where.filter(Boolean)];
}

/** A table in a frame; what is no head is left out, and some columns hold numbers. On a phone those
 * of the class `size` are left out. */
function panel(heads, numbers, rows, name) {
  const head = (text) => {
    const size = ["compiler", "state", "dumps", "bytes", "time", "share", "opcode"].includes(text);
    return make("th", { scope: "col", class: `${numbers.includes(text) ? "number" : ""}${size ? " size" : ""}` }, text);
  };
  return make(
    "div",
    { class: "panel" },
    make(
      "table",
      { class: name },
      make("thead", {}, make("tr", {}, ...heads.filter(Boolean).map(head))),
      make("tbody", {}, ...rows),
    ),
  );
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
  const numbers = [];
  findings.forEach((found, number) => {
    if (!severities.has(found.severity) || (rule && found.rule !== rule)) return;
    if ((module && String(found.module) !== module) || (pass && passOf(found) !== pass)) return;
    if (sought.every((word) => words(found).includes(word))) numbers.push(number);
  });
  listed = entries(numbers);
  byId("list").replaceChildren();
  drawn = 0;
  lengthen();
  byId("shown").textContent =
    numbers.length === findings.length
      ? count(findings.length, "finding")
      : `${numbers.length} of ${count(findings.length, "finding")}`;
}

// The list in entries: findings that a later pass resolved are one for each kind.
function entries(numbers) {
  const kinds = new Map();
  for (const number of numbers) {
    const found = findings[number];
    const kind = found.resolved ? `${found.rule}\n${found.severity}` : `${number}`;
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(number);
  }
  return [...kinds.values()].sort((a, b) => Boolean(findings[a[0]].resolved) - Boolean(findings[b[0]].resolved));
}

function lengthen() {
  const part = listed.slice(drawn, drawn + AT_ONCE);
  byId("list").append(...part.map((group) => (group.length === 1 ? card(group[0]) : folded(group))));
  drawn += part.length;
  byId("more").hidden = drawn >= listed.length;
  select();
}

function folded(group) {
  const { rule, severity } = findings[group[0]];
  const cards = make("ol", {});
  const fold = make(
    "details",
    { class: severity },
    make("summary", {}, make("span", { class: "resolved" }, "resolved"), `${group.length}× ${rule}`),
    cards,
  );
  fold.hashes = new Set(group.map((number) => `#finding-${findings[number].id}`));
  fold.unfold = () => fold.open && !cards.children.length && cards.append(...group.map(card));
  fold.addEventListener("toggle", () => {
    fold.unfold();
    select();
  });
  return make("li", {}, fold);
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
  for (const fold of byId("list").querySelectorAll("details:not([open])")) {
    if (fold.hashes.has(location.hash)) fold.open = true;
    fold.unfold();
  }
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
        (lives || found.born) && since(number),
      ],
      ["resolved by", lives && (found.resolved ? behind(found.resolved, found.module) : "nothing: it is there at the end")],
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
    ? [make("td", { class: "n none" }), make("td", { class: "none" })]
    : [
        make("td", { class: `n ${side}` }, String(line.number)),
        make(
          "td",
          { class: side },
          ...line.text.map(([differs, text]) => (differs ? make("mark", {}, text) : spelled(text))).flat(),
        ),
      ];

// Lines before and after in two columns, or of one side alone where `before` is null.
function sides(rows, before, after) {
  const two = before !== null;
  const heads = two
    ? [
        ["before", before],
        ["after", after],
      ]
    : [["", after]];
  return make(
    "div",
    { class: "panel" },
    make(
      "table",
      { class: two ? "lines two" : "lines single" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...heads.map(([name, file]) =>
            make("th", { colspan: 2, scope: "col", class: name }, name && `${name} · `, code(file)),
          ),
        ),
      ),
      make(
        "tbody",
        {},
        ...rows.map((row) =>
          row.kind === "gap"
            ? make("tr", { class: "gap" }, make("td", { colspan: two ? 4 : 2 }, "⋯"))
            : make(
                "tr",
                { class: `${row.kind}${row.at ? " at" : ""}` },
                two ? cells(row.before, "old") : null,
                cells(row.after, "new"),
              ),
        ),
      ),
    ),
  );
}

function lines(found, detail) {
  const two = detail.before !== null;
  const hint = two
    ? `The lines around the instruction; metadata is left out.${
        detail.rows.every((row) => ["same", "gap"].includes(row.kind)) ? " None of them differs: it counts from this pass on." : ""
      }`
    : [detail.remark && `One side only: ${detail.remark}. `, found.instruction && "Metadata is left out."]
        .filter(Boolean)
        .join("");
  return section(
    two ? `HLO before and after ${found.born.name}` : "HLO",
    hint,
    sides(detail.rows, detail.before, detail.after),
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

// A module

const about = (module) =>
  [module.folder, module.release, module.state, count(module.dumps, "dump"), sums(module)]
    .filter(Boolean)
    .join(" · ");
const sums = (module) =>
  Object.entries(module.counts)
    .map(([severity, number]) => (severity === "info" ? `${number} info` : count(number, severity)))
    .join(", ") || "no findings";

// The instructions of the final module that took the most time, as `hlo-lint passes` prints them.
function measured(number) {
  const [heads, ...rows] = modules[number].measured;
  if (!heads) return [];
  const [total, ...others] = heads;
  const kinds = ["number", "number size", "", "size", ""];
  const cell = (text, at) => make("td", { class: kinds[at] }, at === 2 ? make("code", {}, soft(text)) : text);
  const table = rows.map((row) => make("tr", {}, ...row.map(cell)));
  const title = total.replace("measured", "Measured time:");
  return [section(title, null, panel(["each", ...others], ["each", "share"], table, "measured"))];
}

function showModule(number) {
  const module = modules[number];
  show(module.title, [
    make("h2", { class: "title" }, module.title),
    make("p", { class: "above" }, about(module)),
    ...timeline(number, ""),
    ...measured(number),
    wholeModule(number, ""),
  ]);
}

function moduleTable(numbers) {
  const folders = modules.some((module) => module.folder);
  // One release wrote most dumps, and the head of the page says which.
  const releases = new Set(modules.map((module) => module.release)).size > 1;
  const states = modules.some((module) => module.state);
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
      make("td", { class: "number" }, last ? last.instructions.toLocaleString("en") : ""),
      make("td", {}, sums(module)),
    );
  });
  return panel(
    ["module", folders && "folder", releases && "compiler", states && "state", "dumps", "instructions", "findings"],
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
          `Not listed: ${count(index.quiet, "module")} without findings that the autotuner made to try a backend.`,
        ),
    ),
  ];
  // The first is the one that matters: it has the worst finding, or is the largest.
  if (modules.length) parts.push(...timeline(0, ` of ${modules[0].title}`), ...measured(0));
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
  const [, kind, name] = /^#(finding|module|pass)-(.*)$/.exec(location.hash) || [];
  if (kind === "finding" && ids.has(name)) showFinding(ids.get(name));
  else if (kind === "module" && modules[Number(name)]) showModule(Number(name));
  else if (kind === "pass" && passAt(name)) showPass(...passAt(name));
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
  } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !writing && !event.altKey) {
    document.querySelector(`.beside a[rel=${event.key === "ArrowLeft" ? "prev" : "next"}]`)?.click();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("#list")) {
    event.preventDefault();
    const links = [...byId("list").querySelectorAll("a, summary")].filter((link) => link.checkVisibility());
    links[links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }
});
byId("filters").hidden = !findings.length;
filter();
route();
