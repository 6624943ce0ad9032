// Why: the words of a text, shaded by how much they speak for or against what the model predicts.

import * as api from "./api.js";
import { choice, decimal, h, marked } from "./dom.js";
import { largest } from "./words.js";

/** Number of words that are listed on each side. */
const LISTED = 5;
const signed = (value) => `${value < 0 ? "" : "+"}${decimal(value, 2)}`;

/**
 * Return a section that explains a prediction: a button first, then the words, which it asks the server for.
 * @param {{model: string, text: string, text_b?: string, explains: boolean}} asked what was predicted
 * @param {object} state values that were chosen: `why`, once the button was pressed, and `decision`
 * @param {(chosen: object, focus: string) => void} change keeps what is chosen
 */
export function why({ model, text, text_b, explains }, state, change) {
  if (!explains) return null;
  const section = h("section", { id: "why", tabindex: "-1" });
  if (state.why === undefined) {
    section.append(h("button", { type: "button", onclick: () => change({ why: 1 }, "#why") }, "Which words?"));
    return section;
  }
  section.append(h("h2", {}, "Which words?"), h("p.waiting", { role: "status" }, "Computing…"));
  api.explain(model, text, text_b).then(
    (decisions) => section.replaceChildren(...shown(decisions, [text, text_b ?? ""], state, change)),
    (error) => section.replaceChildren(h("h2", {}, "Which words?"), h("p.note", { role: "alert" }, error.message)),
  );
  return section;
}

function shown(decisions, texts, state, change) {
  if (!decisions.length) return [h("h2", {}, "Which words?"), h("p.note", {}, "Nothing is predicted that could be explained.")];
  const number = Math.min(Number(state.decision) || 0, decisions.length - 1);
  const { label, value, words } = decisions[number];
  const names = decisions.map(({ label: name, start, end }) =>
    start === undefined ? name : `${Array.from(texts[0]).slice(start, end).join("")}: ${name}`,
  );
  const options = names.map((name, index) => [String(index), name]);
  const most = Math.max(...words.map(({ contribution }) => Math.abs(contribution)), Number.MIN_VALUE);
  const marks = (text) => words.filter((word) => (word.text ?? 0) === text && word.end > word.start).map((word) => shaded(word, most));
  const unit = label === "score" ? `score ${decimal(value, 2)}` : `log-odds ${signed(value)}`;
  return [
    h("h2", {}, `Which words? ${names[number]}, ${unit}`),
    decisions.length > 1 ? choice("Decision", options, String(number), (chosen) => change({ decision: chosen }, "#choice-decision")) : null,
    ...texts.flatMap((text, index) => (text ? [marked(text, marks(index))] : [])),
    h("p.hint", {},
      h("mark.word.for", { "--weight": 0.8 }, "for"), " and ", h("mark.word.against", { "--weight": 0.8 }, "against"),
      " the prediction: how much it drops when the word is masked. The darker, the more.",
    ),
    listed("For", words, texts, (one) => one.contribution),
    listed("Against", words, texts, (one) => -one.contribution),
    h("p.hint", {}, "This shows what the model reacts to, not whether it is right, nor why in terms of the world. Words that stand in for each other can each have little."),
  ].filter(Boolean);
}

/** Return the mark of a word, {start, end, contribution}, shaded by its share of the largest contribution; see `marked`. */
export function shaded({ start, end, contribution }, most) {
  const kind = contribution < 0 ? "mark.word.against" : "mark.word.for";
  const options = { "--weight": (Math.abs(contribution) / most) ** 0.8, title: signed(contribution) };
  return { start, end, make: (inside) => h(kind, options, inside) };
}

/** Return the words with the largest amounts above 0 as a sentence, for those who do not see the shades. */
export function listed(title, words, texts, amount) {
  const chosen = largest(words.map(amount), LISTED).filter((index) => amount(words[index]) >= 0.005).map((index) => words[index]);
  if (!chosen.length) return null;
  const spelled = ({ start, end, text, contribution }) => `${Array.from(texts[text ?? 0]).slice(start, end).join("")} ${signed(contribution)}`;
  return h("p.hint", {}, h("b", {}, `${title}: `), chosen.map(spelled).join(", "));
}
