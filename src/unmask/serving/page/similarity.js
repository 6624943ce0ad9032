// Similarity: the cosines between the vectors of several texts.

import * as api from "./api.js";
import { bars, decimal, h, lines } from "./dom.js";

/** Maximum number of texts, of whose pairs each has a cell; and of pairs that are listed. */
const MOST = 12;
const LISTED = 6;

export default {
  id: "similarity",
  title: "Similarity",
  about: "How close texts are in meaning, as far as a model of vectors can tell: the cosine between the vectors of each two.",
  none: "None of the loaded models makes vectors that are meant to be compared. Fine-tune one, and load its run: `unmask finetune embedding --model MODEL --train FILE --out RUN`",
  action: "Compare",
  fields: [{ name: "texts", label: "Texts, one per line", placeholder: "A dog runs.\nAn animal moves.", rows: 4 }],
  examples: [
    { texts: "A man is playing a guitar.\nSomeone plays an instrument.\nThe market fell by two percent.\nShares lost some of their value." },
    { texts: "The bank of the river was steep.\nShe opened an account at the bank.\nThe shore rose sharply." },
  ],
  async ask({ texts, model }, _, signal) {
    const given = lines(texts);
    if (given.length < 2 || given.length > MOST) throw new api.Refused(`There are ${given.length} texts.`, `Write from 2 to ${MOST}, each on a line of its own.`);
    return { texts: given, vectors: await api.embed(model, given, signal) };
  },

  show({ texts, vectors }) {
    const cosine = (one, two) => vectors[one].reduce((sum, value, index) => sum + value * vectors[two][index], 0);
    const pairs = texts.flatMap((_, one) => texts.slice(one + 1).map((__, more) => ({ one, two: one + 1 + more, value: cosine(one, one + 1 + more) })));
    pairs.sort((a, b) => b.value - a.value);
    const items = pairs.slice(0, LISTED).map(({ one, two, value }) => ({ name: `${texts[one]} — ${texts[two]}`, value: Math.max(0, value), shown: decimal(value, 3) }));
    const row = (text, one) =>
      h("tr", {},
        h("th", { scope: "row" }, h("b", {}, String(one + 1)), ` ${text}`),
        texts.map((_, two) => {
          const value = cosine(one, two);
          return h("td", { "--weight": Math.max(0, value) }, decimal(value, 2));
        }),
      );
    const head = h("tr", {}, h("td"), texts.map((text, index) => h("th", { scope: "col", title: text }, String(index + 1))));
    return [
      bars(items, { title: "The closest pairs" }),
      h("section", {}, h("h2", {}, "Cosine of each two"), h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Cosines" }, h("table.cosines", {}, h("thead", {}, head), h("tbody", {}, texts.map(row))))),
    ];
  },
};
