// The records of an audit, as articles whose labels are chosen by clicks; see corrections.py. The functions that are not
// defined here are those of serving/page/dom.js and serving/page/examples.js, which the page contains.

const data = JSON.parse(document.getElementById("data").textContent);
const ofWords = data.kind === "token-classification";
const choose = data.kind === "multi-label" ? chooseLabels : chooseLabel;
const field = ofWords ? "tags" : "label";
/** What is shown of a line: other columns of the file may have any name, also one that examples.js reads. */
const SHOWN = [...(ofWords ? ["words"] : ["text", "text_b"]), "given", "suggested", "probability", "rank", "source", "equal_to"];
/** Of each record, what its line is without its labels: as text, because JavaScript rounds large numbers. */
const rest = new Map();
const records = data.records.map((line) => {
  const values = JSON.parse(line);
  const record = Object.fromEntries(SHOWN.filter((name) => name in values).map((name) => [name, values[name]]));
  record[field] = record.given;
  rest.set(record, line);
  return record;
});
const decided = new Set();
let unsaved = false;

function changed() {
  const changes = records.filter((record) => !same(record[field], record.given)).length;
  document.getElementById("count").textContent =
    `${decided.size} of ${data.suspects} looked at, ${changes} corrected`;
}

function decide(record, article, label) {
  record[field] = label;
  decided.add(record);
  article.classList.add("decided");
  unsaved = true;
  draw(record, article);
  changed();
}

function choicesOfWords(record, article) {
  const words = h("div.text.words", { dir: "auto" });
  record.open ??= new Set([...record.words.keys()].filter(
    (at) => record.suggested && record.suggested[at] !== record.given[at]));
  record.words.forEach((word, at) => {
    const state = record.open.has(at) ? ".wrong" : record.tags[at] !== "O" ? ".tagged" : "";
    const open = () => { record.open.add(at); draw(record, article); };
    const tag = record.tags[at] === "O" ? null : h("sub", {}, record.tags[at]);
    words.append(h(`button${state}`, { type: "button", onclick: open }, word, tag), " ");
  });
  const rows = [...record.open].sort((first, second) => first - second).map((at) => {
    const suggested = record.suggested && record.suggested[at] !== record.given[at] ? record.suggested[at] : null;
    const row = chooseLabel(data.labels, { label: record.tags[at], given: record.given[at], suggested }, (tag) =>
      decide(record, article, record.tags.map((old, place) => (place === at ? tag : old))), false);
    row.prepend(h("span.word", { dir: "auto" }, record.words[at]));
    return row;
  });
  const confirm = h("button", { type: "button", onclick: () => decide(record, article, record.tags) }, "confirm");
  return [words, ...rows, h("div.choices", {}, confirm)];
}

function draw(record, article) {
  const content = ofWords ? choicesOfWords(record, article)
    : [choose(data.labels, record, (label) => decide(record, article, label))];
  drawExample(article, record, ...content);
}

/** The corrected records as JSON Lines. */
function lines() {
  const label = (record) => `${JSON.stringify(field)}:${JSON.stringify(record[field])}`;
  return records.map((record) => `${rest.get(record).slice(0, -1)},${label(record)}}\n`).join("");
}

document.getElementById("save").onclick = () => {
  saveFile(data.name, lines());
  unsaved = false;
};
window.onbeforeunload = (event) => { if (unsaved) event.preventDefault(); };
document.getElementById("examples").append(exampleList(records, data.suspects, draw));
changed();
