// Helpers of all parts of the page: elements, numbers, names.
// Nothing of the dump becomes markup: `make` and `draw` put every text into a text node.

const byId = (id) => document.getElementById(id);
const index = JSON.parse(byId("index").textContent);
const { findings, modules } = index;
const ids = new Map(findings.map((found, number) => [found.id, number]));
const SVG = "http://www.w3.org/2000/svg";

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

/** A table in a frame. Falsy heads are dropped, `numbers` names numeric columns, and a phone hides
 * columns of the class `size`. */
function panel(heads, numbers, rows, name) {
  const head = (text) => {
    const size = ["compiler", "state", "dumps", "bytes", "time"].includes(text);
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

function section(title, hint, ...content) {
  return make("section", {}, make("h3", {}, title), hint && make("p", { class: "hint" }, hint), ...content);
}

function show(title, parts) {
  document.title = `${title} – hlo-lint`;
  byId("main").replaceChildren(...parts.filter(Boolean));
}
