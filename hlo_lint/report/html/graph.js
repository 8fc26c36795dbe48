// A whole module, drawn by sigma when somebody asks for it; helpers are in elements.js. A computation that is not open is folded into the instructions that call it.

const BLOCK_GAP = 4;
const COLOURINGS = ["pass", "bytes", "opcode"];

const GREY = "#8a8f98";
// Room for the label beside a dot.
const STRETCH = 4;
const CALL = "#b06ad4";

// More edges than that are lines, and vanish while the drawing moves.
const MAX_ARROWS = 40000;

// sigma reads colours as hexadecimal only.
function hue(degrees) {
  const part = (offset) => {
    const k = (offset + degrees / 30) % 12;
    return Math.round(255 * (0.5 - 0.35 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return `#${[part(0), part(8), part(4)].map((level) => level.toString(16).padStart(2, "0")).join("")}`;
}

class ModuleView {
  constructor(data, holder, report) {
    this.data = data;
    this.holder = holder;
    this.report = report;
    this.open = new Set([0]);
    this.colouring = "pass";
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
    const { born, passes, bytes: sizes, opcode, opcodes } = this.data;
    if (this.colouring === "pass") {
      return born[node] < 0 ? GREY : hue(220 - (220 * born[node]) / Math.max(1, passes.length - 1));
    }
    if (this.colouring === "bytes") {
      return hue(220 - (220 * Math.log2(1 + sizes[node])) / Math.log2(1 + this.mostBytes));
    }
    return hue((360 * opcode[node]) / opcodes.length);
  }

  layout() {
    const graph = new graphology.MultiDirectedGraph();
    const { computations, names, x, y, edges } = this.data;
    const edgeColour = getComputedStyle(this.holder).borderTopColor;
    let left = 0;
    computations.forEach(({ start, end }, number) => {
      if (!this.open.has(number)) return;
      let [low, high] = [0, 0];
      for (let node = start; node < end; node++) [low, high] = [Math.min(low, x[node]), Math.max(high, x[node])];
      for (let node = start; node < end; node++) {
        const folded = (this.calls.get(node) || []).some((called) => !this.open.has(called));
        graph.addNode(node, {
          label: names[node],
          x: STRETCH * (left + x[node] - low),
          y: -y[node],
          size: folded ? 6 : 4,
          color: this.colour(node),
        });
      }
      left += high - low + BLOCK_GAP;
    });
    for (let at = 0; at < edges.length; at += 2) {
      if (graph.hasNode(edges[at])) graph.addEdge(edges[at], edges[at + 1], { color: edgeColour });
    }
    for (const [caller, called] of this.calls) {
      for (const number of called) {
        const root = computations[number].end - 1;
        if (graph.hasNode(caller) && graph.hasNode(root))
          graph.addEdge(root, caller, { color: CALL });
      }
    }
    return graph;
  }

  draw() {
    const camera = this.sigma && this.sigma.getCamera().getState();
    if (this.sigma) this.sigma.kill();
    const style = getComputedStyle(document.body);
    const isLarge = this.data.edges.length > MAX_ARROWS;
    this.sigma = new Sigma(this.layout(), this.holder, {
      allowInvalidContainer: true,
      defaultEdgeType: isLarge ? "line" : "arrow",
      hideEdgesOnMove: isLarge,
      labelColor: { color: style.color },
      labelRenderedSizeThreshold: 5,
      defaultDrawNodeHover: (context, node, settings) => this.label(context, node, settings, style),
    });
    if (camera) this.sigma.getCamera().setState(camera);
    this.sigma.on("clickNode", ({ node }) => this.select(Number(node)));
    this.report(null);
  }

  label(context, node, settings, style) {
    context.font = `${settings.labelSize}px ${settings.labelFont}`;
    const width = context.measureText(node.label).width;
    context.fillStyle = style.backgroundColor;
    context.fillRect(node.x + node.size, node.y - 10, width + 10, 20);
    context.fillStyle = style.color;
    context.fillText(node.label, node.x + node.size + 5, node.y + 4);
  }

  select(node) {
    for (const called of this.calls.get(node) || []) {
      if (this.open.has(called)) this.open.delete(called);
      else this.open.add(called);
    }
    if (this.calls.has(node)) this.draw();
    this.report(node);
  }

  find(name) {
    const node = this.data.names.indexOf(name.replace(/^%/, ""));
    if (node < 0) return false;
    const computation = this.computationOf(node);
    if (!this.open.has(computation)) {
      this.open.add(computation);
      this.draw();
    }
    const { x, y } = this.sigma.getNodeDisplayData(String(node));
    this.sigma.getCamera().setState({ x, y, ratio: Math.min(0.3, 30 / this.data.names.length + 0.02) });
    this.sigma.getGraph().setNodeAttribute(String(node), "highlighted", true);
    this.report(node);
    return true;
  }

  fold(everything) {
    const open = new Set(everything ? [0] : this.data.computations.keys());
    if (open.size === this.open.size) return;
    this.open = open;
    this.draw();
  }
}

function graphStatus(data, view, node) {
  if (node === null) {
    const hidden = data.computations.length - view.open.size;
    return [
      `${count(data.names.length, "instruction")} of ${data.file}. `,
      hidden ? `${count(hidden, "computation")} folded into larger dots; a click on one opens it.` : "",
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

function wholeModule(number, instruction) {
  const module = modules[number];
  if (module.graph === null) return null;
  const start = make("button", { type: "button" }, "Draw the module");
  const body = make("div", {}, start);
  const begin = async () => {
    const data = await unpacked(`graph-${module.graph}`);
    const holder = make("div", { class: "whole", role: "img", "aria-label": `graph of ${data.file}` });
    const status = make("p", { class: "hint", role: "status" });
    const search = make("input", { type: "search", placeholder: "Name of an instruction", "aria-label": "Find an instruction" });
    const colouring = make(
      "select",
      { "aria-label": "Colour" },
      ...COLOURINGS.map((name) => make("option", { value: name }, `Colour by ${name}`)),
    );
    const fold = make("button", { type: "button" }, "Fold all");
    const unfold = make("button", { type: "button" }, "Unfold all");
    body.replaceChildren(make("div", { class: "tools" }, search, colouring, fold, unfold), holder, status);
    let view = null;
    const report = (node) => status.replaceChildren(...(view ? graphStatus(data, view, node) : []));
    try {
      view = new ModuleView(data, holder, report);
    } catch (error) {
      status.textContent = `This browser cannot draw it: ${error.message}`;
      return;
    }
    report(null);
    colouring.addEventListener("change", () => {
      view.colouring = colouring.value;
      view.draw();
    });
    fold.addEventListener("click", () => view.fold(true));
    unfold.addEventListener("click", () => view.fold(false));
    search.addEventListener("change", () => {
      if (search.value && !view.find(search.value)) status.textContent = `No instruction is named ${search.value}.`;
    });
    if (instruction) view.find(instruction);
  };
  start.addEventListener("click", begin);
  return section("The whole module", "Data flows down; drag and scroll to move and zoom.", body);
}
