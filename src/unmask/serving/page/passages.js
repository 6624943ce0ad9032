// Passages: the fields of one or of several, and several as a model has read them.

import { h, share } from "./dom.js";
import { textField } from "./form.js";

/** Return the name of a passage, or of its title, among the values of a form: passage, passage2, passage3, … */
const nameOf = (kind, index) => (index ? `${kind}${index + 1}` : kind);

/** Return the passages in the values of a form, at least one: {title, text}. */
export function passagesIn(values) {
  const passages = [];
  const read = (kind) => values[nameOf(kind, passages.length)];
  while (!passages.length || read("title") || read("passage")) passages.push({ title: read("title") ?? "", text: read("passage") ?? "" });
  return passages;
}

/** The field of the passages: several with titles, if the model reads them, or a single one; see form.js. */
export const passagesField = { name: "passage", build };

function build() {
  let several = false;
  const list = h("div.passages");
  const add = () => render([...entries(), { title: "", text: "" }], list.children.length);
  const row = h("div.row", {}, h("button", { type: "button", onclick: add }, "Add a passage"));
  const entries = () => [...list.children].map((one) => ({ title: one.querySelector("input").value, text: one.querySelector("textarea").value }));
  const remove = (index) => render(entries().toSpliced(index, 1), Math.max(0, index - 1));

  /** Show passages; `focused` is the index of the one whose title gets the focus. */
  function render(passages, focused) {
    const removable = several && passages.length > 1;
    list.replaceChildren(...passages.map((one, index) => fieldsOf(one, index, several, removable ? () => remove(index) : null)));
    list.children[focused]?.querySelector("input").focus();
  }
  return {
    element: h("div.passages", {}, list, row),
    read() {
      if (!several) return { passage: entries()[0].text };
      return Object.fromEntries(entries().flatMap(({ title, text }, index) => [[nameOf("title", index), title], [nameOf("passage", index), text]]));
    },
    fill: (values) => render(passagesIn(values)),
    show(model) {
      several = model.passages;
      row.hidden = !several;
      render(entries());
    },
  };
}

/** Return the fields of a passage; those of further ones stay, hidden, while the model reads a single one. */
function fieldsOf({ title, text }, index, several, remove) {
  const [id, number] = [nameOf("title", index), index + 1];
  const unused = index > 0 && !several;
  const head = h("div.head", { hidden: !several },
    h("div", {}, h("label", { for: id }, `Title of passage ${number}`, h("span.optional", {}, " (optional)")), h("input", { id, maxlength: 200, value: title })),
    remove ? h("button", { type: "button", "aria-label": `Remove passage ${number}`, onclick: remove }, "Remove") : null,
  );
  const field = { name: nameOf("passage", index), label: several ? `Passage ${number}` : "Passage", rows: several ? 3 : 4, placeholder: "The text in which to look" };
  return h("fieldset", { hidden: unused, disabled: unused, "aria-label": field.label }, head, textField(field, text));
}

/**
 * Return the passages as the model has read them, each under its title, with its supporting sentences and the answer.
 * @param {{passage: string, sentences: object[], support: object[]}} found see HotpotAnswered
 * @param {{start: number, end: number}} span the answer
 */
export function readPassages({ passage, sentences, support }, span) {
  const characters = Array.from(passage);
  const supporting = new Set(support.map(({ start }) => start));
  const part = (start, end) => partOf(characters, start, end, span);
  const shown = [];
  let at = 0;
  for (const { title, start, end, probability } of [...sentences].sort((a, b) => a.start - b.start)) {
    if (shown.at(-1)?.title !== title) {
      const first = shown.length ? at + 1 : at; // after the end of the line
      const last = first + Array.from(title).length;
      shown.push({ title, heading: last < start ? part(first, last) : `Passage ${title}`, parts: [] }); // without titles, numbers
      at = start;
    }
    const sentence = part(start, end);
    shown.at(-1).parts.push(part(at, start), supporting.has(start) ? h("mark.support", { title: `supports the answer: ${share(probability)}` }, sentence) : sentence);
    at = end;
  }
  return shown.map(({ heading, parts }) => h("article", {}, h("h3", {}, heading), h("p.reading", {}, parts.flat())));
}

/** Return a part of a text, in which what is inside of a span is marked. */
function partOf(characters, start, end, span) {
  const text = (from, to) => characters.slice(from, to).join("");
  const from = Math.max(start, span?.start ?? end);
  const to = Math.min(end, span?.end ?? end);
  return from < to ? [text(start, from), h("mark.filled", {}, text(from, to)), text(to, end)] : [text(start, end)];
}
