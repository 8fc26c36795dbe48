// Drawings of a finding: elements that differ, neighbouring instructions, arrays in memory order.
// Helpers are in elements.js.

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
    "Each array in memory order, the slowest-varying dimension first. " +
    (moved.size ? "Red: dimensions that move." : "All dimensions keep their order: no byte moves.");
  return section(
    "What moves in memory",
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
