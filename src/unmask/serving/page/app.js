// The page: tabs, the form of the chosen view, and its results. The state is in the hash, #VIEW?name=value&…, so that
// a view can be shared, and the back button works.

import { models as loadModels, Refused, setKey } from "./api.js";
import { explain, h, paintAll, roving, withCode } from "./dom.js";
import answer from "./answer.js";
import attention from "./attention.js";
import audit from "./audit.js";
import choose from "./choose.js";
import compare from "./compare.js";
import entities from "./entities.js";
import fill from "./fill.js";
import { buildForm } from "./form.js";
import label from "./label.js";
import relations from "./relations.js";
import search from "./search.js";
import similarity from "./similarity.js";
import suggest from "./suggest.js";
import { themeButton } from "./theme.js";

const VIEWS = [fill, label, entities, relations, answer, choose, search, similarity, audit, suggest, attention, compare];
const panel = document.getElementById("view");
const tabs = document.getElementById("tabs");
const status = document.getElementById("status"); // which screen readers speak
const built = new Map(); // views of files, which no address keeps
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
    panel.replaceChildren(about, h("p.note", {}, withCode(view.none)));
    return;
  }
  if (view.build) {
    if (!built.has(view)) built.set(view, view.build(servers(view)));
    panel.replaceChildren(about, built.get(view)); // with what was done in it
    return;
  }
  const results = h("div.results", { id: "results", role: "region", "aria-label": "Results" });
  const complete = view.fields.every((field) => values[field.name] || field.optional);
  let linked = complete ? values : {}; // with what was chosen in the results of these texts; other texts start without
  let replace = true;
  const run = (given, button) => {
    const kept = { ...linked, ...given };
    writeHash(view, kept, { replace });
    linked = {};
    replace = false;
    ask(view, given, kept, results, button);
  };
  const form = buildForm(view, servers(view), values, run, (given, focus) => go(view, given, focus));
  panel.replaceChildren(about, form, results);
  if (complete) form.requestSubmit();
}

/** Open a view with other values, as by a link, and focus one of its elements. */
function go(view, values, focus) {
  writeHash(view, values);
  status.textContent = "";
  open();
  panel.querySelector(focus).focus();
}

/** Ask the server for what a view shows, and show it. */
async function ask(view, given, kept, results, button) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const waiting = (on) => {
    results.setAttribute("aria-busy", String(on));
    button.setAttribute("aria-disabled", String(on));
  };
  waiting(true);
  status.textContent = "";
  const slow = setTimeout(() => results.childElementCount || results.append(h("p.waiting", {}, "Computing…")), 250);
  try {
    const data = await view.ask(given, servers(view), signal);
    if (!signal.aborted) showResults(view, data, kept, results);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Refused)) throw error;
    results.replaceChildren(explain(error));
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) waiting(false);
  }
}

/** Show results, and show them again whenever something in them is chosen, which the hash then keeps. */
function showResults(view, data, kept, results, focus) {
  const change = (chosen, target) => {
    const values = { ...kept, ...chosen };
    writeHash(view, values, { replace: true });
    showResults(view, data, values, results, target);
  };
  results.replaceChildren(...[view.show(data, kept, change, (given, target) => go(view, given, target))].flat());
  paintAll(results);
  status.textContent = results.querySelector(".headline, .reading, h2")?.textContent ?? "";
  if (focus) results.querySelector(focus)?.focus();
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
    panel.replaceChildren(error.status === 401 ? keyForm() : explain(error));
    return;
  }
  for (const view of VIEWS) {
    const choose = () => location.hash.slice(1).split("?")[0] === view.id || (location.hash = view.id);
    const tab = h(`button${servers(view).length ? "" : ".unserved"}`, { id: `tab-${view.id}`, type: "button", role: "tab", "aria-controls": "view", onclick: choose }, view.title);
    tabs.append(tab);
  }
  roving(tabs, '[role="tab"]');
  addEventListener("hashchange", open);
  open();
}

themeButton(document.getElementById("theme"), () => paintAll(panel));
start();
