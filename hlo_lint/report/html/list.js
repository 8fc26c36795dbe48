// The list of findings and its filters. Helpers are in elements.js.

const AT_ONCE = 100;
let listed = [];
let drawn = 0;

const passOf = (found) => (found.born && found.born.name) || "";

// A filter with fewer than two values is hidden.
function fill(select, all, values) {
  select.hidden = values.length < 2;
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

// The entries of the list: findings with one cause, and findings of one rule that later passes
// resolved.
function entries(numbers) {
  const kinds = new Map();
  for (const number of numbers) {
    const found = findings[number];
    const kind = found.resolved ? `${found.rule}\n${found.severity}` : found.group;
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(number);
  }
  return [...kinds.values()].sort((a, b) => Boolean(findings[a[0]].resolved) - Boolean(findings[b[0]].resolved));
}

function lengthen() {
  const part = listed.slice(drawn, drawn + AT_ONCE);
  byId("list").append(...part.map((group) => make("li", {}, card(group))));
  drawn += part.length;
  byId("more").hidden = drawn >= listed.length;
  select();
}

// A link to the first finding, and a list of all, filled when opened.
function card(group) {
  const found = findings[group[0]];
  const link = make(
    "a",
    { href: `#finding-${found.id}`, class: found.severity },
    group.length > 1 && make("span", { class: "badge" }, `${group.length.toLocaleString("en")}×`),
    found.resolved && make("span", { class: "badge" }, "resolved"),
    make("div", { class: "rule" }, found.rule),
    make("div", { class: "message" }, found.message),
    make("div", { class: "where" }, place(found)),
  );
  if (group.length === 1) return link;
  const places = make("ol", {});
  const fold = make("details", { class: found.severity }, make("summary", {}, `All ${count(group.length, "place")}`), places);
  fold.hashes = new Set(group.slice(1).map((number) => `#finding-${findings[number].id}`));
  fold.unfold = () =>
    fold.open &&
    !places.children.length &&
    places.append(...group.map((number) => make("li", {}, placeLink(number))));
  fold.addEventListener("toggle", () => {
    fold.unfold();
    select();
  });
  return [link, fold];
}

const placeLink = (number) => make("a", { href: `#finding-${findings[number].id}` }, place(findings[number]));

function place(found) {
  return [
    found.instruction ? make("span", { class: "code" }, `%${found.instruction}`) : found.file,
    `, line ${found.line}`,
    modules.length > 1 && titleOf(found) && ` · ${titleOf(found)}`,
  ];
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
