// The form of a view: its fields, the choice of a model, examples. Submitting it calls `run` with the values.
//
// A field is a text, {name, label, …}, or has `build`, which returns {element, read, fill, show}: `read` returns its
// values by name, `fill` sets them, and `show` adapts it to a model. A field that is hidden is not read.

import { h } from "./dom.js";

/** Maximum number of characters of an example on its button. */
const SHOWN = 44;

/**
 * Return the form of a view.
 * @param {object} view see the files of the views
 * @param {object[]} models those that have the view
 * @param {object} values initial values by name
 * @param {(given: object, button: Element) => void} run is called with the values of the fields and the model
 * @param {(values: object, focus: string) => void} go opens the view with other values
 */
export function buildForm(view, models, values, run, go) {
  const select = h("select", { id: "model" }, models.map(({ name }) => h("option", { value: name }, name)));
  if (models.some(({ name }) => name === values.model)) select.value = values.model;
  const chooser = view.everyModel || models.length < 2 ? null : h("div", {}, h("label", { for: "model" }, "Model"), select);
  const button = h("button.primary", { type: "submit" }, view.action);
  const fields = view.fields.map((field) => (field.build ?? buildText)({ ...field, models, read, go }));
  const examples = view.examples.map((example) => exampleOf(example, tryOut));

  function read() {
    const given = Object.assign({}, ...fields.filter(({ element }) => !element.hidden).map((field) => field.read()));
    return view.everyModel ? given : { ...given, model: select.value };
  }
  function fill(texts) {
    fields.forEach((field) => field.fill(texts));
    adapt();
  }
  function adapt() {
    const model = models.find(({ name }) => name === select.value);
    fields.forEach((field) => field.show(model));
    view.examples.forEach(({ needs }, index) => (examples[index].hidden = Boolean(needs) && !needs(model)));
  }
  function submit(event) {
    event.preventDefault();
    run(read(), button);
  }
  function tryOut(example) {
    fill(example);
    form.requestSubmit();
  }

  const form = h("form", { autocomplete: "off", onsubmit: submit },
    fields.map(({ element }) => element),
    h("div.row", {}, chooser, button, view.extra?.(() => form), h("kbd.keys", {}, "Ctrl + Enter")),
    h("div.examples", {}, h("span", {}, "Try:"), examples),
  );
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  select.addEventListener("change", () => {
    adapt();
    if (form.checkValidity()) form.requestSubmit();
  });
  fill(values);
  return form;
}

/** Return a labeled text area. */
export function textField({ name, label, rows = 2, placeholder, optional }, value = "") {
  const area = h("textarea", { id: name, name, rows, placeholder, required: !optional, maxlength: 20000, spellcheck: "false", value });
  return h("div", {}, h("label", { for: name }, label, optional ? h("span.optional", {}, " (optional)") : null), area);
}

function buildText(field) {
  const element = textField(field);
  const area = element.querySelector("textarea");
  return {
    element,
    read: () => ({ [field.name]: area.value }),
    fill: (values) => (area.value = values[field.name] ?? ""),
    show: (model) => (element.hidden = Boolean(field.needs) && !field.needs(model)),
  };
}

function exampleOf(example, tryOut) {
  const text = (example.question ?? example.query ?? example.text ?? example.texts).split("\n")[0];
  const short = text.length > SHOWN ? `${text.slice(0, SHOWN - 2)}…` : text;
  return h("button", { type: "button", title: text, onclick: () => tryOut(example) }, short);
}
