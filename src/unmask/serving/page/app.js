// The page: tabs, the form of the chosen view, and its results. The state is in the hash, #VIEW?name=value&…, so that
// a view can be shared, and the back button works.

import { models as loadModels, Refused, setKey } from "./api.js";
import { h, paintAll, roving } from "./dom.js";
import answer from "./answer.js";
import attention from "./attention.js";
import compare from "./compare.js";
import entities from "./entities.js";
import fill from "./fill.js";
import label from "./label.js";
import { themeButton } from "./theme.js";

const VIEWS = [fill, label, entities, answer, attention, compare];
const panel = document.getElementById("view");
const tabs = document.getElementById("tabs");
const status = document.getElementById("status"); // which screen readers speak
let models = [];
let running = new AbortController();

/** Return the view and the values in the hash. */
function readHash() {
  const [id, query] = location.hash.slice(1).split("?");
  const view = VIEWS.find((one) => one.id === id) ?? VIEWS.find((one) => servers(one).length) ?? VIEWS[0];
  return { view, values: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function writeHash(view, values, { replace = false } = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined));
  const hash = `#${view.id}${query.size ? `?${query}` : ""}`;
  if (hash !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", hash);
}

/** Return the models that serve a view. */
function servers(view) {
  return models.filter((model) => model.views.includes(view.id));
}

function open() {
  running.abort();
  const { view, values } = readHash();
  document.title = `${view.title} · unmask playground`;
  for (const tab of tabs.children) {
    const chosen = tab.id === `tab-${view.id}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  panel.setAttribute("aria-labelledby", `tab-${view.id}`);
  const about = h("p.about", {}, view.about);
  if (!servers(view).length) {
    const words = view.none.split("`").map((text, index) => (index % 2 ? h("code", {}, text) : text));
    panel.replaceChildren(about, h("p.note", {}, words));
    return;
  }
  const results = h("div.results", { id: "results", role: "region", "aria-label": "Results" });
  const form = buildForm(view, values, results);
  panel.replaceChildren(about, form, results);
  if (view.fields.every((field) => values[field.name] || field.optional)) form.requestSubmit();
}

/** Return the form of a view, filled with values; submitting it asks the server and shows the results. */
function buildForm(view, values, results) {
  const serving = servers(view);
  const chosenModel = () => (view.everyModel ? null : serving.find((one) => one.name === select.value));
  const blocks = view.fields.map((field) => {
    const area = h("textarea", {
      id: field.name, name: field.name, rows: field.rows ?? 2, placeholder: field.placeholder, required: !field.optional,
      maxlength: 20000, spellcheck: "false", value: values[field.name] ?? "",
      onkeydown: (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        form.requestSubmit();
      },
    });
    const name = h("label", { for: field.name }, field.label, field.optional ? h("span.optional", {}, " (optional)") : null);
    return h("div", {}, name, area);
  });
  const select = h("select", { id: "model", name: "model" }, serving.map((one) => h("option", { value: one.name }, one.name)));
  if (serving.some((one) => one.name === values.model)) select.value = values.model;
  const chooser = h("div", {}, h("label", { for: "model" }, "Model"), select);
  const button = h("button.primary", { type: "submit" }, view.action);
  const examples = view.examples.map((example) => {
    const text = view.fields.map((field) => example[field.name]).filter(Boolean)[0];
    return h("button", { type: "button", title: text, onclick: () => tryOut(example) }, text.length > 44 ? `${text.slice(0, 42)}…` : text);
  });
  const showFields = () => view.fields.forEach((field, index) => (blocks[index].hidden = Boolean(field.needs && !field.needs(chosenModel()))));
  const form = h("form", { autocomplete: "off", onsubmit: submit },
    blocks,
    h("div.row", {}, view.everyModel || serving.length < 2 ? null : chooser, button, view.extra?.(() => form) ?? null, h("kbd.keys", {}, "Ctrl + Enter")),
    h("div.examples", {}, h("span", {}, "Try:"), examples),
  );
  function tryOut(example) {
    for (const field of view.fields) form.elements[field.name].value = example[field.name] ?? "";
    form.requestSubmit();
  }
  let kept = { ...values };
  let first = true;
  async function submit(event) {
    event.preventDefault();
    running.abort();
    running = new AbortController();
    const { signal } = running;
    const given = Object.fromEntries(
      view.fields.map((field, index) => [field.name, blocks[index].hidden ? "" : form.elements[field.name].value]),
    );
    if (!view.everyModel) given.model = select.value;
    kept = first ? { ...kept, ...given } : given; // what was chosen in results belongs to the text before
    writeHash(view, kept, { replace: first });
    first = false;
    await ask(view, given, () => kept, (change) => writeHash(view, (kept = { ...kept, ...change }), { replace: true }), results, button, signal);
  }
  select.addEventListener("change", () => {
    showFields();
    if (form.checkValidity()) form.requestSubmit();
  });
  showFields();
  return form;
}

/** Ask the server, and show what it answers. */
async function ask(view, given, kept, keep, results, button, signal) {
  results.setAttribute("aria-busy", "true");
  status.textContent = "";
  button.setAttribute("aria-disabled", "true");
  const slow = setTimeout(() => results.childElementCount || results.append(h("p.waiting", {}, "Computing…")), 250);
  try {
    const data = await view.ask(given, view.everyModel ? servers(view) : models.find((one) => one.name === given.model), signal);
    const show = (focus) => {
      results.replaceChildren(...[view.show(data, kept(), (change, target) => (keep(change), show(target)))].flat());
      paintAll(results);
      status.textContent = results.querySelector(".headline, .reading, h2")?.textContent ?? "";
      if (focus) results.querySelector(focus)?.focus();
    };
    show();
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Refused)) throw error;
    results.replaceChildren(explain(error));
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) {
      results.removeAttribute("aria-busy");
      button.removeAttribute("aria-disabled");
    }
  }
}

function explain({ message, remedy }) {
  return h("div.error", { role: "alert" }, h("p", {}, h("strong", {}, message)), remedy ? h("p", {}, remedy) : null);
}

/** Return a form that asks for an API key, which this server demands, and starts again with it. */
function keyForm() {
  const input = h("input", { id: "key", type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setKey(input.value);
    start();
  };
  return h("form", { onsubmit: submit },
    h("p.about", {}, "This server answers requests that have an API key. It is kept until you close this tab."),
    h("div", {}, h("label", { for: "key" }, "API key"), input),
    h("div.row", {}, h("button.primary", { type: "submit" }, "Continue")),
  );
}

async function start() {
  try {
    models = await loadModels();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    panel.replaceChildren(error.locked ? keyForm() : explain(error));
    return;
  }
  for (const view of VIEWS) {
    const choose = () => location.hash.slice(1).split("?")[0] === view.id || (location.hash = view.id);
    const tab = h(`button${servers(view).length ? "" : ".unserved"}`, { id: `tab-${view.id}`, type: "button", role: "tab", "aria-controls": "view", onclick: choose }, view.title);
    tabs.append(tab);
  }
  roving(tabs, '[role="tab"]');
  addEventListener("hashchange", open);
  addEventListener("popstate", open);
  open();
}

themeButton(document.getElementById("theme"), () => paintAll(panel));
start();
