// A whole module, drawn by sigma on demand. Helpers are in elements.js.
// A computation is folded into the instructions that call it until it is opened.

const COLOURINGS = ["pass", "bytes", "opcode"];
const GREY = "#8a8f98";
const CALL = "#b06ad4";
const LEGEND_OPCODES = 8;

// More edges are drawn without arrowheads, and hidden while the drawing moves.
const MAX_ARROWS = 40000;

// Pixels: the box of an instruction, the margin of the drawing, the radius of dots in a small module,
// and the largest radius.
const BOX = { width: 190, height: 36 };
const MARGIN = 20;
const RADIUS = 5;
const MAX_RADIUS = 6;

// With more open computations, call edges would hide the drawing: they are grey.
const MAX_CALLED = 30;

// Layout units, in heights of a layer: space between computations, width of a position in a layer.
const BLOCK_GAP = 3;
const STRETCH = 4;

// sigma reads colours as hexadecimal only.
function hue(degrees) {
  const lightness = document.documentElement.dataset.theme === "dark" ? 0.63 : 0.5;
  const part = (offset) => {
    const k = (offset + degrees / 30) % 12;
    return Math.round(255 * (lightness - 0.35 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `#${[part(0), part(8), part(4)].map((level) => level.toString(16).padStart(2, "0")).join("")}`;
}
const scale = (part) => hue(220 - 220 * part);
// The golden angle keeps opcodes of neighbouring numbers apart.
const opcodeHue = (number) => hue((number * 137.5) % 360);

class ModuleView {
  constructor(data, holder, report) {
    this.data = data;
    this.holder = holder;
    this.report = report;
    this.open = new Set([0]);
    this.colouring = data.passes.length ? "pass" : "opcode";
    this.calls = new Map();
    for (let at = 0; at < data.calls.length; at += 2) {
      const caller = data.calls[at];
      this.calls.set(caller, [...(this.calls.get(caller) || []), data.calls[at + 1]]);
    }
    this.mostBytes = data.bytes.reduce((most, size) => Math.max(most, size), 1);
    this.draw();
  }

  computationOf(node) {
    return this.data.computations.findIndex(({ start, end }) => start <= node && node < end);
  }

  colour(node) {
    const { born, passes, bytes: sizes, opcode } = this.data;
    if (this.colouring === "pass") {
      return born[node] < 0 ? GREY : scale(born[node] / Math.max(1, passes.length - 1));
    }
    if (this.colouring === "bytes") return scale(Math.log2(1 + sizes[node]) / Math.log2(1 + this.mostBytes));
    return opcodeHue(opcode[node]);
  }

  // The colours in use, each with its meaning.
  legend() {
    const { passes, opcode, opcodes } = this.data;
    const calls = this.open.size > 1 && this.open.size <= MAX_CALLED ? [[CALL, "a computation and its caller"]] : [];
    if (this.colouring === "pass") {
      const ends = [...new Set([passes[0], passes.at(-1)])];
      return [[GREY, "in the first dump"], ...ends.map((name, last) => [scale(last), `made by ${name}`]), ...calls];
    }
    if (this.colouring === "bytes") return [[scale(0), "0 B"], [scale(1), bytes(this.mostBytes)], ...calls];
    const counts = opcodes.map(() => 0);
    for (const number of opcode) counts[number]++;
    const frequent = [...counts.keys()].sort((a, b) => counts[b] - counts[a]).slice(0, LEGEND_OPCODES);
    const say = (number) => [opcodeHue(number), `${opcodes[number]} (${counts[number].toLocaleString("en")})`];
    return [...frequent.map(say), ...calls];
  }

  // The open computations in rows that fill the pane, the entry first.
  blocks() {
    const { computations, x, y } = this.data;
    const blocks = [...this.open].sort((a, b) => a - b).map((number) => {
      const { start, end } = computations[number];
      let [low, high, deep] = [0, 0, 0];
      for (let node = start; node < end; node++) {
        low = Math.min(low, x[node]);
        high = Math.max(high, x[node]);
        deep = Math.max(deep, y[node]);
      }
      return { start, end, low, width: STRETCH * (high - low), height: deep };
    });
    const area = blocks.reduce((sum, block) => sum + (block.width + BLOCK_GAP) * (block.height + BLOCK_GAP), 0);
    const aspect = this.holder.clientWidth / this.holder.clientHeight;
    const room = Math.max(Math.sqrt(area * aspect), ...blocks.map((block) => block.width));
    let [left, top, bottom] = [0, 0, 0];
    for (const block of blocks) {
      if (left + block.width > room) [left, top] = [0, bottom + BLOCK_GAP];
      Object.assign(block, { left, top });
      left += block.width + BLOCK_GAP;
      bottom = Math.max(bottom, top + block.height);
    }
    return blocks;
  }

  layout() {
    const graph = new graphology.MultiDirectedGraph();
    const { names, x, y, edges, computations } = this.data;
    const blocks = this.blocks();
    const [wide, high] = [this.holder.clientWidth, this.holder.clientHeight];
    const right = Math.max(...blocks.map((block) => block.left + block.width));
    const bottom = Math.max(...blocks.map((block) => block.top + block.height));
    // Each axis has its own scale: a module of a thousand layers would be a line in the pane.
    // A box extends to the right of its dot.
    this.shown = blocks.reduce((sum, { start, end }) => sum + end - start, 0);
    const space = wide - 2 * MARGIN - (this.boxed() ? Math.min(BOX.width, wide / 3) : 0);
    const across = (value) => MARGIN + (right ? (space * value) / right : space / 2);
    const down = (value) => -MARGIN - (bottom ? ((high - 2 * MARGIN) * value) / bottom : high / 2 - MARGIN);
    this.layer = bottom ? (high - 2 * MARGIN) / bottom : high;
    const size = Math.max(1, Math.min(RADIUS, 0.25 * Math.sqrt((wide * high) / this.shown)));
    this.size = size;
    for (const { start, end, left, top, low } of blocks) {
      for (let node = start; node < end; node++) {
        const folded = (this.calls.get(node) || []).some((called) => !this.open.has(called));
        graph.addNode(node, {
          label: names[node],
          x: across(left + STRETCH * (x[node] - low)),
          y: down(top + y[node]),
          size: folded ? 1.5 * size : size,
          color: this.colour(node),
        });
      }
    }
    const style = getComputedStyle(this.holder);
    const faint = style.borderTopColor;
    const edge = { color: this.shown > this.room() ? faint : GREY, size: 0.3 };
    const call = { color: this.open.size > MAX_CALLED ? faint : CALL, size: 0.3 };
    for (let at = 0; at < edges.length; at += 2) {
      if (graph.hasNode(edges[at])) graph.addEdge(edges[at], edges[at + 1], edge);
    }
    for (const [caller, called] of this.calls) {
      for (const number of called) {
        const root = computations[number].end - 1;
        if (graph.hasNode(caller) && graph.hasNode(root)) graph.addEdge(root, caller, call);
      }
    }
    return graph;
  }

  // The number of boxes that fit the pane.
  room() {
    return (this.holder.clientWidth * this.holder.clientHeight) / (BOX.width * 2 * BOX.height);
  }

  // Boxes replace dots where there is room for a good part of them.
  boxed() {
    const { ratio } = this.sigma ? this.sigma.getCamera() : { ratio: 1 };
    return this.shown * ratio ** 2 < 4 * this.room();
  }

  draw() {
    const camera = this.sigma && this.sigma.getCamera().getState();
    if (this.sigma) this.sigma.kill();
    this.sigma = null;
    const isLarge = this.data.edges.length > MAX_ARROWS;
    let boxes = [];
    this.sigma = new Sigma(this.layout(), this.holder, {
      allowInvalidContainer: true,
      defaultEdgeType: isLarge ? "line" : "arrow",
      hideEdgesOnMove: isLarge,
      stagePadding: 0,
      zoomToSizeRatioFunction: (ratio) => Math.max(Math.sqrt(ratio), this.size / MAX_RADIUS),
      labelRenderedSizeThreshold: 0,
      labelDensity: 4,
      maxCameraRatio: 2,
      defaultDrawNodeLabel: (context, node) => {
        if (!this.boxed()) return;
        const box = this.box(context, node);
        const covers = (drawn) =>
          box.x < drawn.x + drawn.width && drawn.x < box.x + box.width && Math.abs(box.y - drawn.y) < BOX.height;
        if (boxes.some(covers)) return;
        boxes.push(box);
        this.drawBox(context, node, box);
      },
      defaultDrawNodeHover: (context, node) => this.drawBox(context, node, this.box(context, node)),
    });
    // Graph coordinates are pixels of the pane.
    this.sigma.setCustomBBox({ x: [0, this.holder.clientWidth], y: [-this.holder.clientHeight, 0] });
    this.sigma.on("beforeRender", () => (boxes = []));
    this.sigma.refresh();
    if (camera) this.sigma.getCamera().setState(camera);
    this.sigma.on("clickNode", ({ node }) => this.select(Number(node)));
    this.report(null);
  }

  box(context, node) {
    const { opcode, opcodes, shape, shapes } = this.data;
    const number = Number(node.key);
    const name = opcodes[opcode[number]];
    const texts = [
      ["600 12px", node.label],
      // Most names begin with the opcode.
      ["11px", (node.label.startsWith(name) ? "" : `${name} `) + shapes[shape[number]]],
    ];
    const room = Math.min(BOX.width, this.holder.clientWidth / 3 + 20) - 30;
    const lines = texts.map(([font, text]) => {
      context.font = `${font} sans-serif`;
      while (text.length > 8 && context.measureText(text).width > room) text = `${text.slice(0, -4)}…`;
      return { font: context.font, text, width: context.measureText(text).width };
    });
    const width = Math.max(...lines.map((line) => line.width)) + 30;
    return { x: node.x - 11, y: node.y - BOX.height / 2, width, lines };
  }

  drawBox(context, node, { x, y, width, lines }) {
    const style = getComputedStyle(document.body);
    context.fillStyle = style.backgroundColor;
    context.strokeStyle = node.color;
    context.lineWidth = node.highlighted ? 2.5 : 1;
    context.beginPath();
    context.roundRect(x, y, width, BOX.height, 6);
    context.fill();
    context.stroke();
    context.beginPath();
    context.arc(node.x, node.y, node.size, 0, 2 * Math.PI);
    context.fillStyle = node.color;
    context.fill();
    context.fillStyle = style.color;
    lines.forEach(({ font, text }, row) => {
      context.font = font;
      context.fillText(text, x + 23, y + 15 + 14 * row);
    });
  }

  select(node) {
    const called = this.calls.get(node) || [];
    for (const number of called) {
      if (this.open.has(number)) this.open.delete(number);
      else this.open.add(number);
    }
    if (called.length) {
      this.draw();
      const shut = called.every((number) => !this.open.has(number));
      this.focus(shut ? [node] : called.flatMap((number) => this.nodesOf(number)));
    }
    this.report(node);
  }

  nodesOf(computation) {
    const { start, end } = this.data.computations[computation];
    return Array.from({ length: end - start }, (_, index) => start + index);
  }

  find(name) {
    const node = this.data.names.indexOf(name.replace(/^%/, ""));
    if (node < 0) return false;
    const computation = this.computationOf(node);
    if (!this.open.has(computation)) {
      this.open.add(computation);
      this.draw();
    }
    this.focus([node]);
    this.sigma.getGraph().setNodeAttribute(String(node), "highlighted", true);
    this.report(node);
    return true;
  }

  // Moves the camera to nodes: all of them in view, near enough for boxes where possible.
  focus(nodes) {
    const graph = this.sigma.getGraph();
    const [wide, high] = [this.holder.clientWidth, this.holder.clientHeight];
    const places = nodes.map((node) => graph.getNodeAttributes(String(node)));
    const [left, right] = [Math.min(...places.map(({ x }) => x)), Math.max(...places.map(({ x }) => x))];
    const [low, top] = [Math.min(...places.map(({ y }) => y)), Math.max(...places.map(({ y }) => y))];
    const around = 1.3 * Math.max((right - left) / wide, (top - low) / high);
    const near = Math.min(Math.sqrt(this.room() / this.shown), this.layer / (1.3 * BOX.height));
    const ratio = Math.max(around, near);
    if (ratio >= 1) return this.fit();
    const side = Math.max(wide, high);
    this.sigma.getCamera().setState({
      x: 0.5 + ((left + right) / 2 - wide / 2) / side,
      y: 0.5 + ((low + top) / 2 + high / 2) / side,
      ratio,
    });
  }

  fit() {
    this.sigma.getCamera().setState({ x: 0.5, y: 0.5, ratio: 1 });
  }

  fold(everything) {
    this.open = new Set(everything ? [0] : this.data.computations.keys());
    this.draw();
    this.fit();
  }
}

function graphStatus(data, view, node) {
  if (node === null) {
    const hidden = data.computations.length - view.open.size;
    return [
      `${count(data.names.length, "instruction")} of `,
      soft(data.file),
      hidden ? `. ${count(hidden, "computation")} folded into larger dots; a click on one opens it.` : ".",
    ];
  }
  const born = data.born[node];
  return [
    code(`%${data.names[node]}`),
    ` = ${data.shapes[data.shape[node]]} ${data.opcodes[data.opcode[node]]}, ${bytes(data.bytes[node])}, in `,
    code(`%${data.computations[view.computationOf(node)].name}`),
    born < 0 ? "" : `, made by ${data.passes[born]}`,
  ];
}

// The drawing on the page. Browsers keep few WebGL contexts, so a new drawing ends the last.
let moduleView = null;

function wholeModule(number, instruction) {
  if (!byId(`graph-${number}`)) return null;
  const start = make("button", { type: "button" }, "Draw the module");
  const body = make("div", {}, start);
  const begin = async () => {
    const data = await unpacked(`graph-${number}`);
    const holder = make("div", { class: "whole", role: "img", "aria-label": `graph of ${data.file}` });
    const legend = make("p", { class: "hint legend" });
    const status = make("p", { class: "hint", role: "status" });
    const search = make("input", { type: "search", placeholder: "Name of an instruction", "aria-label": "Find an instruction" });
    const colouring = make(
      "select",
      { "aria-label": "Colour" },
      ...COLOURINGS.filter((name) => name !== "pass" || data.passes.length).map((name) =>
        make("option", { value: name }, `Colour by ${name}`),
      ),
    );
    const button = (text, act) => {
      const made = make("button", { type: "button" }, text);
      made.addEventListener("click", () => act());
      return made;
    };
    let view = null;
    const report = (node) => {
      if (!view) return;
      status.replaceChildren(...graphStatus(data, view, node).flat());
      legend.replaceChildren(
        ...view.legend().map(([colour, text]) =>
          make("span", {}, draw("svg", { width: 10, height: 10 }, draw("circle", { cx: 5, cy: 5, r: 5, fill: colour })), text),
        ),
      );
    };
    body.replaceChildren(
      make(
        "div",
        { class: "tools" },
        search,
        colouring,
        button("Fit", () => view.fit()),
        button("Fold all", () => view.fold(true)),
        button("Unfold all", () => view.fold(false)),
      ),
      holder,
      status,
      legend,
    );
    if (moduleView) moduleView.sigma.kill();
    moduleView = null;
    try {
      view = new ModuleView(data, holder, report);
    } catch (error) {
      status.textContent = `This browser cannot draw it: ${error.message}`;
      return;
    }
    moduleView = view;
    if (data.passes.length === 0) colouring.value = view.colouring;
    colouring.addEventListener("change", () => {
      view.colouring = colouring.value;
      view.draw();
    });
    search.addEventListener("change", () => {
      if (search.value && !view.find(search.value)) status.textContent = `No instruction is named ${search.value}.`;
    });
    report(null);
    if (instruction) view.find(instruction);
  };
  start.addEventListener("click", begin);
  return section(
    "The whole module",
    "Data flows down. Drag to move, scroll or pinch to zoom; larger dots hold computations.",
    body,
  );
}
