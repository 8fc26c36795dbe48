// The list of findings, and what is chosen of it. Helpers are in elements.js.

const AT_ONCE = 100;
let listed = [];
let drawn = 0;

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
