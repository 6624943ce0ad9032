// Audit: the labels of a file in the order in which a model doubts them, to correct those that are wrong.

import { same } from "./examples.js";
import { buildWorkbench, counted, fold, predictedOf } from "./workbench.js";

/** Number of labels that a note names. */
const NAMED = 5;

export default {
  id: "audit",
  title: "Audit",
  about: "Finds wrong labels: a classifier reads the texts of your labeled file, and those whose labels it finds improbable come first. Click the right label of each; one that is right stays as it is.",
  none: "None of the loaded models classifies texts; others do not offer this. Fine-tune one, and load its run: `unmask finetune classification --model MODEL --train FILE --out RUN`",
  fields: [],
  build: (models) => buildWorkbench(models, {
    action: "Rank the labels",
    file: "Labeled file: CSV, TSV or JSON Lines",
    needsLabels: true,
    prefix: "corrected-",
    left: "cannot be judged, and stay as they are",
    larger: "the others are saved as they are. `unmask audit` judges all.",
    rank,
    summary: (records, decided) => `${decided.size.toLocaleString("en")} looked at, ${records.filter(({ label, given }) => !same(label, given)).length.toLocaleString("en")} corrected`,
    content(table, records) {
      const changes = records.filter(({ label, given }) => !same(label, given));
      return table.content(new Map(changes.map(({ row, label }) => [row, label])), table.rows);
    },
  }),
};

const OWN = "These are the probabilities of the served model. If it was trained on these examples, it agrees with their labels, wrong ones too: `unmask audit` judges each example by a classifier that was trained on the others.";

function rank(examples, model) {
  const equals = equalTexts(examples);
  const unknown = new Map();
  const records = examples.map((example, index) => {
    const others = [example.given].flat().filter((label) => !model.labels.includes(label));
    others.forEach((label) => unknown.set(label, (unknown.get(label) ?? 0) + 1));
    const { probability, suggested } = verdict(example, model, others);
    const [text, text_b] = example.texts;
    const equal = equals.get(example);
    return {
      ...{ row: example.row, text, text_b, label: example.given, given: example.given, suggested, probability },
      source: `line ${example.row.line}`, equal_to: equal ? `line ${equal.other.row.line}` : null,
      order: [equal ? 0 : others.length ? 1 : suggested !== null ? 2 : 3, equal ? equal.first : 0, probability ?? 2, index],
    };
  });
  records.sort((a, b) => a.order.map((value, index) => value - b.order[index]).find(Boolean) ?? 0);
  records.forEach((record, index) => (record.rank = index + 1));
  const doubted = records.filter(({ suggested }) => suggested !== null).length;
  const names = [...unknown].map(([label, number]) => `“${label}” (${number.toLocaleString("en")})`);
  const notes = [OWN];
  if (equals.size) notes.push(`${counted(equals.size, "row")} have an equal text with another label; they come first, as one of the labels is wrong.`);
  if (names.length) notes.push(`${counted(names.length, "label")} of the file, which the model does not have and cannot judge: ${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ", …" : ""}.`);
  const headline = `The model predicts another label for ${doubted.toLocaleString("en")} of ${counted(records.length, "row")}`;
  return { headline, notes, records, labels: [...model.labels, ...unknown.keys()] };
}

/** Return the probability of the labels of an example, the smallest of several, and what is predicted instead, or null. */
function verdict({ given, scores }, { several, labels }, others) {
  if (!scores || (!several && others.length)) return { probability: null, suggested: null };
  const predicted = predictedOf(scores, several);
  if (!several) return { probability: scores.find(({ label }) => label === given).score, suggested: predicted === given ? null : predicted };
  const suggested = [...labels.filter((label) => predicted.includes(label)), ...others];
  const agree = suggested.length === given.length && suggested.every((label) => given.includes(label));
  const probability = Math.min(...scores.map(({ label, score }) => (given.includes(label) ? score : 1 - score)));
  return { probability, suggested: agree ? null : suggested };
}

/** Return the examples that have an equal text with another label: {other, first: index of the first of these}. */
function equalTexts(examples) {
  const groups = new Map();
  examples.forEach((example, index) => {
    const key = fold(example.texts);
    groups.set(key, [...(groups.get(key) ?? []), { example, index, label: [example.given].flat().sort().join("\0") }]);
  });
  const equals = new Map();
  for (const group of groups.values()) {
    for (const { example, label } of group) {
      const other = group.find((each) => each.label !== label);
      if (other) equals.set(example, { other: other.example, first: group[0].index });
    }
  }
  return equals;
}
