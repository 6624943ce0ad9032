// The form of a view: its fields, the choice of a model, examples. Submitting it calls `run` with the values.

import { h } from "./dom.js";

/** Maximum number of characters of an example on its button. */
const SHOWN = 44;

/**
 * Return the form of a view.
 * @param {object} view see the files of the views
 * @param {object[]} models those that have the view
 * @param {object} values initial values by name
 * @param {(given: object, button: Element) => void} run is called with the values of the fields and the model
 */
export function buildForm(view, models, values, run) {
  const blocks = view.fields.map((field) => fieldOf(field, values[field.name] ?? ""));
  const select = h("select", { id: "model" }, models.map(({ name }) => h("option", { value: name }, name)));
  if (models.some(({ name }) => name === values.model)) select.value = values.model;
  const chooser = view.everyModel || models.length < 2 ? null : h("div", {}, h("label", { for: "model" }, "Model"), select);
  const button = h("button.primary", { type: "submit" }, view.action);
  const area = (field) => form.elements[field.name];

  function showFields() {
    const model = models.find(({ name }) => name === select.value);
    view.fields.forEach((field, index) => (blocks[index].hidden = Boolean(field.needs) && !field.needs(model)));
  }
  function submit(event) {
    event.preventDefault();
    const shown = view.fields.filter((_, index) => !blocks[index].hidden);
    const given = Object.fromEntries(shown.map((field) => [field.name, area(field).value]));
    run(view.everyModel ? given : { ...given, model: select.value }, button);
  }
  function tryOut(example) {
    for (const field of view.fields) area(field).value = example[field.name] ?? "";
    form.requestSubmit();
  }

  const form = h("form", { autocomplete: "off", onsubmit: submit },
    blocks,
    h("div.row", {}, chooser, button, view.extra?.(() => form), h("kbd.keys", {}, "Ctrl + Enter")),
    h("div.examples", {}, h("span", {}, "Try:"), view.examples.map((example) => exampleOf(view, example, tryOut))),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  select.addEventListener("change", () => {
    showFields();
    if (form.checkValidity()) form.requestSubmit();
  });
  showFields();
  return form;
}

function fieldOf({ name, label, rows = 2, placeholder, optional }, value) {
  const area = h("textarea", { id: name, name, rows, placeholder, required: !optional, maxlength: 20000, spellcheck: "false", value });
  return h("div", {}, h("label", { for: name }, label, optional ? h("span.optional", {}, " (optional)") : null), area);
}

function exampleOf(view, example, tryOut) {
  const text = example[view.fields[0].name];
  const short = text.length > SHOWN ? `${text.slice(0, SHOWN - 2)}…` : text;
  return h("button", { type: "button", title: text, onclick: () => tryOut(example) }, short);
}
