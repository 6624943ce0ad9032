// Answer: the answer to a question, marked in its passage.

import * as api from "./api.js";
import { bars, h, marked, share } from "./dom.js";

export default {
  id: "answer",
  title: "Answer",
  about: "A reader finds the answer to a question in a passage, and marks it there.",
  none: "None of the loaded models answers questions. Fine-tune one, and load its run: `unmask finetune question-answering --model MODEL --train FILE --out RUN`",
  action: "Answer",
  fields: [
    { name: "question", label: "Question", placeholder: "Who designed the tower?", rows: 1 },
    { name: "passage", label: "Passage", placeholder: "The text in which to look", rows: 4 },
  ],
  examples: [
    {
      question: "Who designed the tower?",
      passage: "The Eiffel Tower stands on the Champ de Mars in Paris. The company of the engineer Gustave Eiffel designed and built it from 1887 to 1889, as the entrance of the world's fair.",
    },
    {
      question: "When was the first telescope built?",
      passage: "The earliest known telescope appeared in 1608 in the Netherlands. Galileo heard of it a year later, built his own, and saw the moons of Jupiter.",
    },
  ],
  ask: ({ question, passage, model }, _, signal) =>
    api.answer(model, question, passage, signal).then((found) => ({ ...found, passage })),

  show({ passage, answer, start, end, probability, nbest = [] }, { pick = 0 }, change) {
    const spans = nbest.length ? nbest : [{ answer, start, end, probability }];
    const chosen = Math.min(Number(pick), spans.length - 1);
    const span = spans[chosen];
    const found = span.start !== null && span.start !== undefined && span.answer !== "";
    const marks = found ? [{ start: span.start, end: span.end, make: (inside) => h("mark.filled", {}, inside) }] : [];
    const items = spans.slice(0, 6).map((one) => ({ name: one.answer || "no answer", value: one.probability }));
    const list = bars(items, {
      title: "Candidates", chosen, pick: (index) => change({ pick: index }, `#results li:nth-child(${index + 1}) button`),
    });
    const headline = h("p.headline", {}, span.answer || "No answer in this passage", " ", h("small", {}, share(span.probability)));
    return [headline, marked(passage, marks), items.length > 1 ? list : null].filter(Boolean);
  },
};
