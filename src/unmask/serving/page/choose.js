// Choose: which of several texts fits a passage, or answers a question about it.

import * as api from "./api.js";
import { bars, h, lines, share } from "./dom.js";

export default {
  id: "choose",
  title: "Choose",
  about: "A model of multiple choice tells which of several texts fits a passage best, such as its end, or the answer to a question about it.",
  none: "None of the loaded models chooses among texts. Fine-tune one, and load its run: `unmask finetune multiple-choice --model MODEL --train FILE --out RUN`",
  action: "Choose",
  fields: [
    { name: "text", label: "Passage", placeholder: "What the choices are about", rows: 3 },
    { name: "question", label: "Question, or the beginning of each choice", placeholder: "Where does she live?", optional: true, rows: 1 },
    { name: "choices", label: "Choices, one per line", placeholder: "In Rome.\nIn Paris.", rows: 3 },
  ],
  examples: [
    {
      text: "Ada Lovelace lived in London. In the summer of 1843 she wrote the first program for a machine that was never built.",
      question: "When did she write the program?",
      choices: "Before the machine was built.\nAfter the machine was built.\nIn Paris.",
    },
    {
      text: "He puts the kettle on the stove and waits.",
      question: "After some minutes, the water",
      choices: "begins to boil.\nreads the newspaper.\nis on the roof.",
    },
  ],
  async ask({ text, question, choices, model }, _, signal) {
    const listed = lines(choices);
    if (listed.length < 2) throw new api.Refused("There are fewer than two choices.", "Write each on a line of its own.");
    return { choices: listed, found: await api.choose(model, text, question, listed, signal) };
  },

  show({ choices, found: { choice, probabilities, cut } }) {
    const items = choices.map((name, index) => ({ name, value: probabilities[index] }));
    return [
      h("p.headline", {}, choices[choice], " ", h("small", {}, share(probabilities[choice]))),
      cut ? h("p.note", {}, "The passage and a choice are longer than the model reads; the end of the longer one was left out.") : null,
      bars(items, { title: "Probability of each choice" }),
    ].filter(Boolean);
  },
};
