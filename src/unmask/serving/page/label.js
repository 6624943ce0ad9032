// Label: the class of a text or a pair of texts, or its score.

import * as api from "./api.js";
import { bars, decimal, h, share } from "./dom.js";
import { why } from "./why.js";

/** Maximum number of labels that are listed. */
const LISTED = 12;

export default {
  id: "label",
  title: "Label",
  about: "A classifier chooses one or several of the labels that it was fine-tuned with, and says how sure it is.",
  none: "None of the loaded models classifies texts. Fine-tune one, and load its run: `unmask finetune classification --model MODEL --train FILE --out RUN`",
  action: "Classify",
  fields: [
    { name: "text", label: "Text", placeholder: "A film of rare warmth and wit." },
    { name: "text_b", label: "Second text", placeholder: "For models of pairs", optional: true, rows: 1, needs: (model) => model.pairs !== false },
  ],
  examples: [
    { text: "A film of rare warmth and wit." },
    { text: "Two hours that felt like four." },
    { text: "It isn't the cheapest, but nothing else I tried comes close." },
  ],
  ask: async ({ text, text_b, model }, models, signal) => {
    const { explains, labels, threshold } = models.find(({ name }) => name === model);
    const thresholds = new Map(labels.map((label, index) => [label, Array.isArray(threshold) ? threshold[index] : threshold]));
    return { found: await api.label(model, text, text_b, signal), thresholds, asked: { model, text, text_b, explains } };
  },

  show({ found, thresholds, asked }, state, change) {
    const [best] = found;
    if (found.length === 1 && best.label === "score") return [h("p.headline", {}, decimal(best.score, 2), " ", h("small", {}, "score")), why(asked, state, change)].filter(Boolean);
    if (best.predicted !== undefined) return [...several(found, thresholds), why(asked, state, change)].filter(Boolean);
    const items = found.slice(0, LISTED).map(({ label, score }) => ({ name: label, value: score }));
    const headline = h("p.headline", {}, best.label, " ", h("small", {}, share(best.score)));
    return [headline, bars(items, { title: "Probability of each label" }), why(asked, state, change)].filter(Boolean);
  },
};

/** Return what is shown of labels of which any number may be predicted, each above its threshold. */
function several(found, thresholds) {
  const predicted = found.filter((one) => one.predicted).map(({ label }) => label);
  const rest = found.filter((one) => !one.predicted);
  const item = ({ label, score }) => ({ name: label, value: score, at: thresholds.get(label) ?? undefined });
  const others = rest.slice(0, Math.max(3, LISTED - predicted.length));
  return [
    h("p.headline", {}, predicted.length ? predicted.join(", ") : "No label"),
    predicted.length ? bars(found.filter((one) => one.predicted).map(item), { title: "Predicted labels; the mark is the threshold of each" }) : null,
    others.length ? bars(others.map(item), { title: "Other labels" }) : null,
  ];
}
