// The page of one finding. Helpers are in elements.js.

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
  const held = byId(`detail-${number}`);
  const detail = held && JSON.parse(held.textContent);
  const equal = findings.filter((other) => other.group === found.group).length - 1;
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
      ["resolved by", lives && (found.resolved ? behind(found.resolved, found.module) : "no pass: the last dump has it")],
      ["seen in", lives && count(found.seen_in, "dump")],
      ["file", code(`${found.file}:${found.line}:${found.column}`)],
      ["also at", equal > 0 && `${count(equal, "other place")}, listed in its card`],
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
        "Operands above, users below." +
          (detail.graph.nodes.some((node) => node.kind === "new") ? " Instructions that the pass added are green." : ""),
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
    parts.push(section("HLO", "Left out: see “Not on this page” on the first page."));
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
  const drawn = byId("main").querySelector(".node.at");
  if (!drawn) return;
  // A phone shows the instruction itself of a drawing that is wider.
  const [pane, node] = [drawn.closest(".panel"), drawn].map((element) => element.getBoundingClientRect());
  drawn.closest(".panel").scrollLeft += (node.left + node.right - pane.left - pane.right) / 2;
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

// Lines before and after in two columns; one column where `before` is null.
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
        detail.rows.every((row) => ["same", "gap"].includes(row.kind)) ? " No line differs: the rule applies from this pass on." : ""
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
