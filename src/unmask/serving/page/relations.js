// Relations: those between the spans that are marked in a text.

import * as api from "./api.js";
import { bars, h, marked, share } from "./dom.js";

const SPAN = /\[([^[\]]+)\]\(([^()]+)\)/g;

/** Return the text without its marks, `[span](label)`, and the spans, with offsets in code points. */
function read(text) {
  const spans = [];
  let plain = "";
  let at = 0;
  for (const found of text.matchAll(SPAN)) {
    const [whole, inside, label] = found;
    plain += text.slice(at, found.index);
    const start = Array.from(plain).length;
    plain += inside;
    spans.push({ start, end: start + Array.from(inside).length, label });
    at = found.index + whole.length;
  }
  return { text: plain + text.slice(at), spans };
}

export default {
  id: "relations",
  title: "Relations",
  about: "A model of relations tells how the spans that you mark are related. Write each as [span](label), with the labels that it was fine-tuned with.",
  none: "None of the loaded models finds relations. Fine-tune one, and load its run: `unmask finetune relations --model MODEL --train FILE --out RUN`",
  action: "Find relations",
  fields: [{ name: "text", label: "Text with marked spans", placeholder: "[Marie Curie](PER) moved to [Paris](LOC).", rows: 3 }],
  examples: [
    { text: "[Marie Curie](PER) left [Warsaw](LOC) for [Paris](LOC), where she studied at the [Sorbonne](ORG)." },
    { text: "[Steve Jobs](PER) founded [Apple](ORG) in [Cupertino](LOC)." },
  ],
  async ask({ text, model }, _, signal) {
    const asked = read(text);
    if (asked.spans.length < 2) throw new api.Refused("There are fewer than two spans.", "Mark each as [span](label).");
    return api.relate(model, asked.text, asked.spans, signal);
  },

  show({ text, spans, relations }) {
    const marks = spans.map(({ start, end, label }) => ({
      start, end,
      make: (inside) => h("mark", { title: label }, inside, h("span.tag", {}, label)),
    }));
    if (!relations.length) return [marked(text, marks), h("p.note", {}, "The model finds no relation between these spans.")];
    const [best] = [...relations].sort((a, b) => b.probability - a.probability);
    const describe = ({ head, label, tail }) => `${spans[head].text} → ${spans[tail].text} · ${label}`;
    const items = relations.map((relation) => ({ name: describe(relation), value: relation.probability }));
    return [
      h("p.headline", {}, describe(best), " ", h("small", {}, share(best.probability))),
      marked(text, marks),
      bars(items, { title: "Probability of each relation" }),
    ];
  },
};
