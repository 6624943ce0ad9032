// A view of a file: choose it and its columns, let a model read its texts, choose labels by clicks, and save them.
//
// A job is {action, file, needsLabels, prefix, left, larger, rank, summary, content}:
// - `file` is the label of the field, `prefix` what the name of the saved file begins with;
// - `left` and `larger` say what happens to rows that are left out, and to those beyond `MAX_ROWS`;
// - `rank` returns {headline, notes, records, labels} of examples, {row, texts, given, scores}; see examples.js;
// - `summary` returns what is said of the records and the set of those that were decided;
// - `content` returns the content of the file that is saved.

import * as api from "./api.js";
import { choice, explain, h, withCode } from "./dom.js";
import { chooseLabel, chooseLabels, drawExample, exampleList, saveFile } from "./examples.js";
import { readTable } from "./table.js";

/** Maximum number of rows that a model reads. */
const MAX_ROWS = 2000;
/** Number of texts in a request; the server may have lower limits, for which requests are halved. */
const BATCH = 32;
/** Number of times that a request is sent again, each after a second, if the server is overloaded. */
const TRIES = 20;
/** Statuses of what a server refuses because of the texts. */
const REFUSED = [400, 413, 422];
const NOT_SAVED = "The labels that you chose are not saved. Discard them?";

/** Return the form and the results of a job. */
export function buildWorkbench(models, job) {
  let reading = null;
  let running = new AbortController();
  const work = { unsaved: false };
  const results = h("div.results", { id: "results", role: "region", "aria-label": "Results" });
  const columns = h("div.row", { hidden: true });
  const input = h("input", { id: "file", type: "file", accept: ".csv,.tsv,.jsonl,.txt", required: true, onchange: () => openFile() });
  const select = h("select", { id: "model", onchange: () => openFile() }, models.map(({ name }) => h("option", { value: name }, name)));
  const button = h("button.primary", { type: "submit" }, job.action);
  const modelOf = () => models.find(({ name }) => name === select.value);

  async function openFile() {
    columns.hidden = true;
    if (!input.files.length) return;
    const table = (reading = readTable(input.files[0]));
    try {
      const { names, chosen } = await table;
      if (table === reading) showColumns(names, chosen);
    } catch (error) {
      showError(error);
    }
  }
  function showColumns(names, chosen) {
    const column = (label, none, name) =>
      choice(label, [["", none], ...names.map((each) => [each, each])], chosen[name], (value) => (chosen[name] = value));
    columns.replaceChildren(
      column("Texts", "choose …", "text"),
      ...(modelOf().pairs === false ? [] : [column("Second texts", "none", "text_b")]),
      column("Labels", job.needsLabels ? "choose …" : "none yet", "label"),
    );
    columns.hidden = false;
  }
  function showError(error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof api.Refused)) throw error;
    results.replaceChildren(explain(error));
  }
  async function run(event) {
    event.preventDefault();
    if (work.unsaved && !confirm(NOT_SAVED)) return;
    running.abort();
    running = new AbortController();
    const { signal } = running;
    work.unsaved = false;
    button.setAttribute("aria-disabled", "true");
    try {
      const [table, model] = [await reading, modelOf()];
      const { examples, notes } = examplesOf(table, model, job);
      const progress = h("progress", { "aria-label": "Texts read", max: examples.length, value: 0 });
      results.replaceChildren(h("p.waiting", {}, `Reading ${examples.length.toLocaleString("en")} texts … `, progress));
      notes.push(...(await judge(examples, model, progress, signal)));
      const ranked = job.rank(examples, model);
      showRanked(results, { ...ranked, notes: [...notes, ...ranked.notes] }, table, model, job, work);
    } catch (error) {
      if (!signal.aborted) showError(error);
    } finally {
      if (!signal.aborted) button.removeAttribute("aria-disabled");
    }
  }

  addEventListener("beforeunload", (event) => work.unsaved && event.preventDefault());
  const chooser = models.length < 2 ? null : h("div", {}, h("label", { for: "model" }, "Model"), select);
  const form = h("form", { autocomplete: "off", onsubmit: run },
    h("div", {}, h("label", { for: "file" }, job.file), input), columns, h("div.row", {}, chooser, button));
  return h("div", {}, form, results);
}

/** Return the examples of a table that a model is asked about, {row, texts, given}, and notes about the others. */
function examplesOf(table, model, job) {
  const { text, text_b, label } = table.chosen;
  const listed = `The file has the columns ${table.names.join(", ")}. Its first row must be their names.`;
  if (!text) throw new api.Refused("No column of texts is chosen.", listed);
  if (job.needsLabels && !label) throw new api.Refused("No column of labels is chosen.", listed);
  if (model.pairs && !text_b) throw new api.Refused("This model reads pairs of texts.", "Choose the column of the second texts.");
  const read = ["text", ...(text_b && model.pairs !== false ? ["text_b"] : [])];
  const all = table.rows.map((row) => ({ row, texts: read.map((column) => table.read(row, column)), given: table.label(row, model.several) }));
  const full = all.filter(({ texts }) => texts.every(Boolean));
  const isLabeled = ({ given }) => given !== null && (job.needsLabels || given.length > 0); // no labels at all are some, too
  const wanted = full.filter((example) => isLabeled(example) === job.needsLabels);
  if (!wanted.length) throw new api.Refused(job.needsLabels ? "No row has a text and a label." : "No row has a text and no label yet.");
  const notes = [];
  if (full.length < all.length) notes.push(`${counted(all.length - full.length, "row")} without a text ${job.left}.`);
  if (wanted.length < full.length) notes.push(`${counted(full.length - wanted.length, "row")} ${job.needsLabels ? "without" : "with"} a label ${job.left}.`);
  if (wanted.length <= MAX_ROWS) return { examples: wanted, notes };
  const examples = Array.from({ length: MAX_ROWS }, (_, index) => wanted[Math.floor((index * wanted.length) / MAX_ROWS)]);
  notes.push(`The model has read ${MAX_ROWS.toLocaleString("en")} of ${wanted.length.toLocaleString("en")} rows, evenly spaced; ${job.larger}`);
  return { examples, notes };
}

/** Add the scores of their labels to examples, and return notes; null stands for those of texts that the server refuses. */
async function judge(examples, model, progress, signal) {
  let [start, size, refused, refusal] = [0, BATCH, 0, null];
  while (start < examples.length) {
    const batch = examples.slice(start, start + size);
    const answers = await askAll(model.name, batch.map(({ texts }) => texts), signal);
    if (answers instanceof api.Refused && batch.length > 1) {
      size = batch.length >> 1;
      continue;
    }
    if (answers instanceof api.Refused) {
      refused++;
      refusal = answers;
      size = BATCH;
    }
    batch.forEach((example, index) => (example.scores = answers[index] ?? null));
    progress.value = start += batch.length;
  }
  if (refused === examples.length) throw refusal;
  return refused ? [`${counted(refused, "text")} cannot be read: ${refusal.message}`] : [];
}

/** Return the scores of each list of texts, or that the server refuses what they contain, or so many. */
async function askAll(name, inputs, signal) {
  for (let tries = 0; ; tries++) {
    try {
      return await api.labelAll(name, inputs, signal);
    } catch (error) {
      if (REFUSED.includes(error.status)) return error;
      if (error.status !== 429 || tries === TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

/** Show the records of a job, of which labels are chosen. */
function showRanked(results, { headline, notes, records, labels }, table, model, job, work) {
  const decided = new Set();
  const count = h("span", { role: "status" });
  const save = h("button.primary", { type: "button", onclick: () => saveLabels() }, "Save the file");
  const errors = h("div");
  const choose = model.several ? chooseLabels : chooseLabel;
  const changed = () => (count.textContent = job.summary(records, decided));
  const decide = (record, article, label) => {
    record.label = label;
    decided.add(record);
    article.classList.add("decided");
    work.unsaved = true;
    draw(record, article);
    changed();
  };
  const draw = (record, article) => drawExample(article, record, choose(labels, record, (label) => decide(record, article, label)));
  function saveLabels() {
    try {
      saveFile(`${job.prefix}${table.name}`, job.content(table, records, decided, model));
      work.unsaved = false;
      errors.replaceChildren();
    } catch (error) {
      if (!(error instanceof api.Refused)) throw error;
      errors.replaceChildren(explain(error));
    }
  }
  changed();
  const keys = "Keys: 1 to 9 choose a label, ↑ and ↓ go to the example before or after.";
  results.replaceChildren(
    h("p.headline", {}, headline),
    h("ul.notes", {}, notes.map((note) => h("li", {}, withCode(note)))),
    h("div", {}, h("div.saving", {}, count, save), errors, h("p.hint.keys", {}, keys), exampleList(records, records.length, draw)),
  );
  document.getElementById("status").textContent = headline;
}

/** Return a number with a noun. */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return what equal texts have in common: all but case, spaces and punctuation; as in data/labelled/folding.py. */
export function fold(texts) {
  return texts.map((text) => text.normalize("NFC").toLowerCase().replace(/[\p{P}\s]/gu, "")).join("\0");
}

/** Return the label that a model predicts, or the list of them. */
export function predictedOf(scores, several) {
  const predicted = scores.filter((score) => score.predicted).map(({ label }) => label);
  return several ? predicted : predicted[0] ?? scores[0].label;
}
