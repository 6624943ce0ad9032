// Answer: the answer to a question, marked in its passage, or in several; in dialogues, with further questions.

import * as api from "./api.js";
import { bars, h, marked, share } from "./dom.js";
import { passagesField, passagesIn, readPassages } from "./passages.js";
import { turnsField, turnsIn, turnValues } from "./turns.js";

/** Maximum numbers of candidates, and of sentences, that are listed. */
const LISTED = 6;
const CLOSED = { yes: "Yes", no: "No", unknown: "Unknown", "": "No answer in this passage" };
const VERDICTS = { y: "Yes", n: "No" };
const FOLLOWUPS = { y: "The model suggests a follow-up question.", m: "A follow-up question may be worthwhile.", n: "The model suggests no follow-up question." };

export default {
  id: "answer",
  title: "Answer",
  about: "A reader finds the answer to a question in a passage, or in several, and marks it there. Models of dialogues understand questions that refer to earlier ones.",
  none: "None of the loaded models answers questions. Fine-tune one, and load its run: `unmask finetune question-answering --model MODEL --train FILE --out RUN`",
  action: "Answer",
  fields: [turnsField, { name: "question", label: "Question", placeholder: "Who designed the tower?", rows: 1 }, passagesField],
  examples: [
    {
      needs: (model) => !model.passages,
      question: "Who designed the tower?",
      passage: "The Eiffel Tower stands on the Champ de Mars in Paris. The company of the engineer Gustave Eiffel designed and built it from 1887 to 1889, as the entrance of the world's fair.",
    },
    {
      needs: (model) => !model.passages,
      question: "When was the first telescope built?",
      passage: "The earliest known telescope appeared in 1608 in the Netherlands. Galileo heard of it a year later, built his own, and saw the moons of Jupiter.",
    },
    {
      needs: (model) => model.passages,
      question: "Where was the engineer of the tower born?",
      title: "Eiffel Tower",
      passage: "The Eiffel Tower stands on the Champ de Mars in Paris. The company of Gustave Eiffel designed and built it.",
      title2: "Gustave Eiffel",
      passage2: "Gustave Eiffel was a French engineer. He was born in Dijon in 1832.",
    },
    {
      needs: (model) => model.passages,
      question: "Are both rivers in Europe?",
      title: "Danube",
      passage: "The Danube rises in the Black Forest. It flows through ten countries of Europe.",
      title2: "Orinoco",
      passage2: "The Orinoco is one of the longest rivers of South America.",
    },
  ],

  async ask({ model: name, ...values }, models, signal) {
    const model = models.find((one) => one.name === name);
    const passage = model.passages ? titled(passagesIn(values)) : values.passage;
    const history = model.history === null ? [] : turnsIn(values);
    return { ...values, model, found: await api.answer(name, values.question, passage, history, signal) };
  },

  show({ question, passage, model, found }, values, change, go) {
    const spans = candidates(found);
    const chosen = Math.min(Number(values.pick) || 0, spans.length - 1);
    const span = spans[chosen];
    const items = spans.map((one) => ({ name: nameOf(one), value: one.probability }));
    const list = bars(items, {
      title: "Candidates", chosen, pick: (index) => change({ pick: index }, `#results li:nth-child(${index + 1}) button`),
    });
    const next = () => {
      const turns = turnValues([...turnsIn(values), [question, span.answer]]);
      go({ ...values, ...turns, question: undefined, pick: undefined }, "#question");
    };
    return [
      headline(span, chosen ? {} : found),
      found.cut ? h("p.note", {}, "The question is longer than the model reads; its end was left out.") : null,
      found.sentences ? h("div.passages", {}, readPassages(found, span)) : marked(passage, marksOf(span)),
      items.length > 1 ? list : null,
      found.sentences ? supportOf(found) : null,
      model.history === null ? null : h("div.row", {}, h("button", { type: "button", onclick: next }, "Ask another")),
    ].filter(Boolean);
  },
};

/** Return passages as a request has them: texts, or pairs of titles and texts if any has a title. */
function titled(passages) {
  if (!passages.some(({ title }) => title.trim())) return passages.map(({ text }) => text);
  const pairs = passages.map(({ title, text }, index) => [title.trim() || `Passage ${index + 1}`, text]);
  const twice = pairs.find(([title], index) => pairs.some(([other], before) => before < index && other === title));
  if (twice) throw new api.Refused(`Two passages have the title “${twice[0]}”.`, "Give each its own.");
  return new Map(pairs);
}

/** Return the answer and the most probable others: with a threshold, the answer need not be the most probable one. */
function candidates({ answer, start, end, probability, nbest = [] }) {
  const others = nbest.filter((one) => one.answer !== answer || one.start !== start);
  return [{ answer, start, end, probability }, ...others].slice(0, LISTED);
}

const nameOf = (span) => (span.start === null ? span.answer || "no answer" : span.answer);

const marksOf = ({ start, end }) => (start === null ? [] : [{ start, end, make: (inside) => h("mark.filled", {}, inside) }]);

/** Return an answer in large letters; of QuAC, with what it means, and whether to ask on. */
function headline(span, { yesno, followup }) {
  const verdict = span.start === null ? undefined : VERDICTS[yesno];
  const text = span.start === null ? CLOSED[span.answer] ?? span.answer : span.answer;
  return h("div", {},
    h("p.headline", {}, verdict ? [h("span.verdict", {}, verdict), " "] : null, text, " ", h("small", {}, share(span.probability))),
    followup ? h("p.hint", {}, FOLLOWUPS[followup]) : null,
  );
}

/** Return the sentences that are most likely to support the answer. */
function supportOf({ passage, sentences }) {
  const characters = Array.from(passage);
  const items = sentences.slice(0, LISTED).map(({ start, end, probability }) => ({ name: characters.slice(start, end).join(""), value: probability }));
  return bars(items, { title: "Probability that a sentence supports the answer; those above the threshold are shaded" });
}
