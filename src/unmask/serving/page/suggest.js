// Suggest: the texts of a file in the order in which labels of them teach a model most, to label the first ones.

import { buildWorkbench, counted, fold, predictedOf } from "./workbench.js";

export default {
  id: "suggest",
  title: "Suggest",
  about: "What to label next: a classifier reads texts without labels, and those that it is most uncertain about come first. Click the label of each, and stop when you like.",
  none: "None of the loaded models classifies texts; others do not offer this. Fine-tune one, and load its run: `unmask finetune classification --model MODEL --train FILE --out RUN`",
  fields: [],
  build: (models) => buildWorkbench(models, {
    action: "Suggest texts",
    file: "Texts without labels: CSV, TSV, JSON Lines, or plain text with one per line",
    needsLabels: false,
    prefix: "labeled-",
    left: "are not suggested",
    larger: "`unmask suggest` reads all.",
    rank,
    summary: (records, decided) => `${decided.size.toLocaleString("en")} labeled`,
    content(table, records, decided, { several }) {
      const labels = new Map([...decided].map(({ row, label }) => [row, label]));
      return table.content(labels, table.rows.filter((row) => labels.has(row) || isLabeled(table, row, several)));
    },
  }),
};

const SAVED = "The file that is saved has the rows with a label, with all of their columns; the others are not in it. What is labeled in this order is no random sample: score a model on texts that were drawn at random.";

const isLabeled = (table, row, several) => Boolean([table.label(row, several) ?? []].flat().length);

function rank(examples, model) {
  const seen = new Set();
  const different = examples.filter(({ texts, scores }) => {
    const key = fold(texts);
    return scores && !seen.has(key) && seen.add(key);
  });
  const records = byTurns(different.map(({ row, texts: [text, text_b], scores }) => {
    const { uncertainty, group } = doubt(scores, model);
    const [given, label] = model.several ? [[], []] : [null, null];
    return { row, text, text_b, given, label, suggested: predictedOf(scores, model.several), uncertainty, group, source: `line ${row.line}`, note: `uncertainty ${uncertainty.toFixed(3)}` };
  }));
  records.forEach((record, index) => (record.rank = index + 1));
  const equal = examples.filter(({ scores }) => scores).length - different.length;
  const notes = equal ? [SAVED, `${counted(equal, "text")} equal to one before are not suggested.`] : [SAVED];
  return { headline: `${counted(records.length, "text")}, the most uncertain first`, notes, records, labels: model.labels };
}

/** Return how uncertain a model is about a text, from 0 to 1, and of which label; as in workflows/suggest.py. */
function doubt(scores, { labels, several, threshold }) {
  const thresholdOf = (label) => (Array.isArray(threshold) ? threshold[labels.indexOf(label)] : threshold ?? 1);
  if (several) {
    const doubts = scores.map(({ label, score }) => {
      const [yes, no] = [score / thresholdOf(label), (1 - score) / (1 - thresholdOf(label))];
      return { uncertainty: (2 * Math.min(yes, no)) / (yes + no), group: label };
    });
    return doubts.reduce((most, each) => (each.uncertainty > most.uncertainty ? each : most));
  }
  const ratios = scores.map(({ label, score }) => score / (Array.isArray(threshold) ? thresholdOf(label) : 1)).sort((a, b) => b - a);
  const total = ratios.reduce((sum, ratio) => sum + ratio, 0);
  return { uncertainty: 1 - (ratios[0] - (ratios[1] ?? 0)) / total, group: predictedOf(scores, false) };
}

/** Return records in the order of their uncertainty, by turns of each group; as `balanced_order` in inference/selection.py. */
function byTurns(records) {
  const sorted = [...records].sort((a, b) => b.uncertainty - a.uncertainty);
  const sizes = new Map();
  for (const record of sorted) {
    record.turn = sizes.get(record.group) ?? 0;
    sizes.set(record.group, record.turn + 1);
  }
  return sorted.sort((a, b) => a.turn - b.turn || b.uncertainty - a.uncertainty);
}
