// The earlier turns of a dialogue: shown above the question, and sent with it as its history.

import { h } from "./dom.js";

/** Return the turns in the values of a form, q1, a1, q2, …: [question, answer] pairs, the oldest first. */
export function turnsIn(values) {
  const turns = [];
  for (let number = 1; values[`q${number}`]; number++) turns.push([values[`q${number}`], values[`a${number}`] ?? ""]);
  return turns;
}

/** Return turns as values of a form. */
export function turnValues(turns) {
  return Object.fromEntries(turns.flatMap(([question, answer], index) => [[`q${index + 1}`, question], [`a${index + 1}`, answer]]));
}

/** The field of the turns, for models of dialogues; see form.js. */
export const turnsField = { optional: true, build };

function build({ read, go }) {
  let turns = [];
  const list = h("ol");
  const hint = h("p.hint");
  const restart = () => {
    const own = turnValues(turns);
    go(Object.fromEntries(Object.entries(read()).filter(([name]) => !(name in own) && name !== "question")), "#question");
  };
  const element = h("section.turns", { "aria-label": "Earlier turns" },
    h("h2", {}, "Earlier in this dialogue"), list, hint, h("div.row", {}, h("button", { type: "button", onclick: restart }, "Begin anew")),
  );
  return {
    element,
    read: () => turnValues(turns),
    fill(values) {
      turns = turnsIn(values);
      list.replaceChildren(...turns.map(([question, answer]) => h("li", {}, h("p", {}, question), h("p", {}, answer || "no answer"))));
    },
    show({ history }) {
      element.hidden = history === null || !turns.length;
      hint.hidden = turns.length <= history;
      hint.textContent = history ? `This model reads the last ${history} of these turns.` : "This model reads none of these turns.";
    },
  };
}
