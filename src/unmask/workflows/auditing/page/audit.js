"use strict";
// The records of an audit, as articles whose labels are chosen by clicks; see page.py.

const data = JSON.parse(document.getElementById("data").textContent);
const ofWords = data.kind === "token-classification", several = data.kind === "multi-label";
const field = ofWords ? "tags" : "label";
const AT_ONCE = 25, MOST_BUTTONS = 12;
const decided = new Set();
let shown = 0, unsaved = false;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const same = (first, second) => JSON.stringify(first) === JSON.stringify(second);
const text = (record) => [record.text, record.text_b].filter((part) => part !== undefined).join("\n");

function changed() {
  const changes = data.records.filter((record) => !same(record[field], record.given)).length;
  document.getElementById("count").textContent =
    `${decided.size} of ${data.suspects} looked at, ${changes} corrected`;
}

function decide(index, article, label) {
  data.records[index][field] = label;
  decided.add(index);
  article.classList.add("decided");
  unsaved = true;
  draw(index, article);
  changed();
}

function choice(label, pressed, note, act) {
  const button = element("button", { type: "button", onclick: act }, label);
  button.setAttribute("aria-pressed", pressed);
  if (note) button.append(" ", element("small", {}, note));
  if (note.startsWith("suggested")) button.className = "suggested";
  return button;
}

function menu(labels, current, act) {
  const select = element("select", { onchange: () => select.value && act(select.value) });
  select.setAttribute("aria-label", "another label");
  select.append(element("option", { value: "" }, "another …"));
  for (const label of labels) select.append(element("option", { value: label, selected: label === current }, label));
  return select;
}

/** The choices of one label: buttons, or the likely ones and a menu if there are many. */
function single(current, given, suggested, act) {
  const few = data.labels.length <= MOST_BUTTONS && !ofWords;
  const likely = [...new Set([given, suggested].filter((label) => label !== null))];
  const row = element("div", { className: "choices" });
  for (const label of few ? data.labels : likely) {
    const note = label === given ? "given" : label === suggested ? "suggested" : "";
    row.append(choice(label, label === current, note, () => act(label)));
  }
  if (!few) row.append(menu(data.labels, likely.includes(current) ? "" : current, act));
  return row;
}

function choicesOfSet(index, article) {
  const record = data.records[index], row = element("div", { className: "choices" });
  const likely = new Set([...record.given, ...(record.suggested ?? []), ...record.label]);
  const few = data.labels.length <= MOST_BUTTONS;
  const toggled = (label) => data.labels.filter((other) => record.label.includes(other) !== (other === label));
  for (const label of data.labels.filter((name) => few || likely.has(name))) {
    const has = record.given.includes(label);
    const differs = record.suggested && record.suggested.includes(label) !== has;
    const note = differs ? (has ? "suggested: remove" : "suggested: add") : has ? "given" : "";
    row.append(choice(label, record.label.includes(label), note, () => decide(index, article, toggled(label))));
  }
  if (!few) row.append(menu(data.labels, "", (label) => decide(index, article, toggled(label))));
  row.append(element("button", { type: "button", onclick: () => decide(index, article, record.label) }, "confirm"));
  return row;
}

function choicesOfWords(index, article) {
  const record = data.records[index], body = element("div");
  const words = element("div", { className: "text words", dir: "auto" });
  record.open ??= new Set([...record.words.keys()].filter(
    (at) => record.suggested && record.suggested[at] !== record.given[at]));
  record.words.forEach((word, at) => {
    const button = element("button", { type: "button", onclick: () => { record.open.add(at); draw(index, article); } }, word);
    if (record.tags[at] !== "O") button.append(element("sub", {}, record.tags[at]));
    button.className = record.open.has(at) ? "wrong" : record.tags[at] !== "O" ? "tagged" : "";
    words.append(button, " ");
  });
  body.append(words);
  for (const at of [...record.open].sort((first, second) => first - second)) {
    const suggested = record.suggested && record.suggested[at] !== record.given[at] ? record.suggested[at] : null;
    const row = single(record.tags[at], record.given[at], suggested, (tag) =>
      decide(index, article, record.tags.map((old, place) => (place === at ? tag : old))));
    row.prepend(element("span", { className: "word", dir: "auto" }, record.words[at]));
    body.append(row);
  }
  body.append(element("div", { className: "choices" },
    element("button", { type: "button", onclick: () => decide(index, article, record.tags) }, "confirm")));
  return body;
}

function draw(index, article) {
  const record = data.records[index];
  const focused = [...article.querySelectorAll("button, select")].indexOf(document.activeElement);
  const probability = record.probability === null ? "not judged" : `probability ${record.probability.toFixed(3)}`;
  const place = record.source + (record.equal_to ? `, equal text with another label: ${record.equal_to}` : "");
  article.replaceChildren(element("div", { className: "top" },
    element("span", {}, `${record.rank}. `, element("bdi", {}, place)), element("span", {}, probability)));
  if (ofWords) {
    article.append(choicesOfWords(index, article));
  } else {
    article.append(element("div", { className: "text", dir: "auto" }, text(record)));
    article.append(several ? choicesOfSet(index, article)
      : single(record.label, record.given, record.suggested, (label) => decide(index, article, label)));
  }
  if (focused >= 0) article.querySelectorAll("button, select")[focused]?.focus();
}

function more() {
  const end = Math.min(shown + AT_ONCE, data.suspects);
  for (; shown < end; shown++) {
    const article = element("article");
    draw(shown, article);
    document.getElementById("examples").append(article);
  }
  document.getElementById("more").hidden = shown === data.suspects;
}

/** The corrected records as JSON Lines. */
function lines() {
  return data.records.map(({ open, ...record }) => JSON.stringify(record) + "\n").join("");
}

document.getElementById("more").onclick = more;
document.getElementById("save").onclick = () => {
  const url = URL.createObjectURL(new Blob([lines()], { type: "application/jsonl" }));
  element("a", { href: url, download: data.name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  unsaved = false;
};
window.onbeforeunload = (event) => { if (unsaved) event.preventDefault(); };
more();
changed();
