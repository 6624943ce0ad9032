// Search: documents in the order in which they answer a query, and on request the words on which a score rests.

import * as api from "./api.js";
import { decimal, h, lines, marked } from "./dom.js";
import { listed, shaded } from "./why.js";

export default {
  id: "search",
  title: "Search",
  about: "Documents in the order in which they answer a query: by a cross-encoder, which reads both together, or by the similarity of their vectors.",
  none: "None of the loaded models compares texts. Fine-tune one, and load its run: `unmask finetune ranking --model MODEL --train FILE --out RUN`, or `embedding`",
  action: "Search",
  fields: [
    { name: "query", label: "Query", placeholder: "Who designed the tower?", rows: 1 },
    { name: "documents", label: "Documents, one per line", placeholder: "The tower stands in Paris.\nIts bridge crosses the river.", rows: 5 },
  ],
  examples: [
    {
      query: "When was the first telescope built?",
      documents: "Galileo saw the moons of Jupiter through his own telescope.\nThe earliest known telescope appeared in 1608 in the Netherlands.\nA microscope magnifies what is small and near.\nThe first railway was opened in 1825.",
    },
    {
      query: "how to keep bread fresh",
      documents: "Bread stays soft for two days in a paper bag.\nFlour, water, salt and yeast are all that it takes.\nA fridge dries bread out; freeze what you do not eat.\nThe baker opens at seven.",
    },
  ],
  async ask({ query, documents, model }, _, signal) {
    const texts = lines(documents);
    return { query, texts, model, ranked: await api.rerank(model, query, texts, signal) };
  },

  show({ query, texts, model, ranked }, state, change) {
    const chosen = state.words === undefined ? -1 : Number(state.words);
    const most = Math.max(1, ...ranked.map(({ score }) => score)); // above 1 of late interaction, and of products
    const rows = ranked.map(({ index, score }) => {
      const open = index === chosen;
      const pick = () => change({ words: open ? undefined : index }, `#words-${index}`);
      return h("li", {},
        h("article", {},
          h("div.bar", {}, h("span.value", {}, decimal(score, 3)), h("span.track", { "aria-hidden": "true" }, h("i", { "--value": Math.max(0, score / most) }))),
          open ? words({ query, text: texts[index], model }) : h("p.text", {}, texts[index]),
          h("button.quiet", { id: `words-${index}`, type: "button", "aria-expanded": String(open), onclick: pick }, open ? "Hide the words" : "Which words?"),
        ),
      );
    });
    return [h("h2", {}, `Best: ${texts[ranked[0].index]}`), h("ol.found", {}, rows)];
  },
};

/** Return a document whose words are shaded by how much its score drops without each, which it asks the server for. */
function words(asked) {
  const section = h("section.why", {}, h("p.text", {}, asked.text), h("p.waiting", { role: "status" }, "Computing…"));
  contributions(asked).then(
    (found) => section.replaceChildren(...shown(found, asked.text)),
    (error) => section.replaceChildren(h("p.text", {}, asked.text), h("p.note", { role: "alert" }, error.message)),
  );
  return section;
}

async function contributions({ query, text, model }) {
  const parts = [...new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)].filter((part) => part.isWordLike);
  if (parts.length < 2) throw new api.Refused("There are fewer than two words.");
  const without = parts.map(({ index, segment }) => `${text.slice(0, index)}${text.slice(index + segment.length)}`.replace(/\s+/g, " ").trim());
  const ranked = await api.rerank(model, query, [text, ...without], undefined, true);
  const scores = new Map(ranked.map(({ index, score }) => [index, score]));
  return parts.map(({ index, segment }, number) => {
    const start = Array.from(text.slice(0, index)).length; // code points
    return { start, end: start + Array.from(segment).length, contribution: scores.get(0) - scores.get(number + 1) };
  });
}

function shown(found, text) {
  const most = Math.max(...found.map(({ contribution }) => Math.abs(contribution)), Number.MIN_VALUE);
  return [
    marked(text, found.map((word) => shaded(word, most))),
    listed("For", found, [text], (one) => one.contribution),
    listed("Against", found, [text], (one) => -one.contribution),
    h("p.hint", {}, "How much the score drops when the word is left out: of a cross-encoder its logit, of vectors their similarity."),
  ].filter(Boolean);
}
