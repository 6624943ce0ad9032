// Fill in: masked words, with the candidates for each.

import * as api from "./api.js";
import { bars, h, marked } from "./dom.js";

const MASK = "[MASK]";

/** Return a button that writes a mask over the selection, or where the cursor is. */
function insertMask(form) {
  const insert = () => {
    const area = form().elements.text;
    area.setRangeText(MASK, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  };
  return h("button", { type: "button", onclick: insert }, "Insert [MASK]");
}

export default {
  id: "fill",
  title: "Fill in",
  about: "A model that was pretrained to predict masked words fills each [MASK] from the words around it.",
  none: "None of the loaded models fills masks: fine-tuned models have no such head. Load a pretrained one: `unmask serve RUN`",
  action: "Fill in",
  fields: [{ name: "text", label: "Sentence", placeholder: "Paris is the [MASK] of France." }],
  examples: [
    { text: "Paris is the [MASK] of France." },
    { text: "She plays the [MASK] in a jazz band." },
    { text: "The river [MASK] into the sea, and ships [MASK] on it." },
  ],
  extra: insertMask,
  ask: ({ text, model }, _, signal) => api.fill(model, text, signal),

  show({ text, masks }, { picks = "" }, change) {
    const chosen = masks.map((_, index) => Number(picks.split(".")[index]) || 0);
    const lengths = maskLengths(text, masks);
    const fillings = masks.map((mask, index) => ({
      start: mask.position,
      end: mask.position + lengths[index],
      make: () => h("mark.filled", {}, word(mask.candidates[chosen[index]])),
    }));
    const pick = (mask) => (candidate) =>
      change({ picks: chosen.with(mask, candidate).join(".") }, `#results .columns > :nth-child(${mask + 1}) li:nth-child(${candidate + 1}) button`);
    const lists = masks.map((mask, index) =>
      bars(mask.candidates.map((candidate) => ({ name: word(candidate), value: candidate.probability })), {
        pick: pick(index), chosen: chosen[index], title: masks.length > 1 ? `Mask ${index + 1}` : "Candidates",
      }),
    );
    return [marked(text, fillings), h("div.columns", {}, lists)];
  },
};

const word = (candidate) => candidate.token.replace(/^##/, "").trim() || candidate.token;

/** Return the number of characters of each mask: [MASK], or the word in angle brackets of other vocabularies. */
function maskLengths(text, masks) {
  const characters = Array.from(text);
  return masks.map(({ position }) => characters.slice(position).join("").match(/^(\[MASK\]|<[^>]*>|\S+)/)[0].length);
}
