// Entities: the names in a text, marked.

import * as api from "./api.js";
import { bars, h, marked, share } from "./dom.js";
import { why } from "./why.js";

/** Hues of the types of entities, in degrees, in an order in which neighbors differ. */
const HUES = [174, 28, 265, 95, 335, 210, 55, 300, 140, 0];

export default {
  id: "entities",
  title: "Entities",
  about: "A tagger marks the spans that it was fine-tuned to find, such as names of people and places.",
  none: "None of the loaded models finds entities. Fine-tune one, and load its run: `unmask finetune token-classification --model MODEL --train FILE --out RUN`",
  action: "Find entities",
  fields: [{ name: "text", label: "Text", placeholder: "Marie Curie moved to Paris." }],
  examples: [
    { text: "Marie Curie left Warsaw for Paris, where she studied at the Sorbonne." },
    { text: "Germany beat Brazil in Belo Horizonte, and FIFA president Sepp Blatter watched." },
  ],
  ask: async ({ text, model }, models, signal) => {
    const { explains, types } = models.find(({ name }) => name === model);
    return { ...(await api.tag(model, text, signal)), types, asked: { model, text, explains } };
  },

  show({ text, entities, types, asked }, state, change) {
    const hue = (label) => HUES[Math.max(0, types.indexOf(label)) % HUES.length];
    if (!entities.length) return [marked(text, []), h("p.note", {}, "The model finds no entity in this text.")];
    const marks = entities.map(({ start, end, label, probability }) => ({
      start, end,
      make: (inside) => h("mark.typed", { title: `${label}, ${share(probability)}`, "--hue": hue(label) }, inside, h("span.tag", {}, label)),
    }));
    const items = entities.map(({ text: name, label, probability: value }) => ({ name: `${name} · ${label}`, value, hue: hue(label) }));
    return [marked(text, marks), bars(items, { title: "Probability of each entity" }), why(asked, state, change)].filter(Boolean);
  },
};
