// Examples whose labels are chosen by clicks, or by keys: the digits choose a label, the arrows go to the next example.
//
// The page that `unmask audit` writes contains this file and dom.js; see workflows/auditing/corrections.py.
//
// A record is {text, text_b?, label, given, suggested, probability, rank, source, equal_to}. `given` is its label in the
// file, null if it has none; `suggested` is another one, or null. If texts may have several labels, all three are lists.
// `note` stands for the probability, if there is one.

import { h } from "./dom.js";

/** Number of examples that are added to the list at once. */
const AT_ONCE = 25;
/** With more labels than these, the likely ones are buttons, and the others are in a menu. */
const MOST_BUTTONS = 12;

/** Return whether labels, or lists of them, are the same. */
export const same = (first, second) => JSON.stringify(first) === JSON.stringify(second);

function labelButton(label, pressed, note, act) {
  const text = [h("bdi", {}, label), note ? " " : null, note ? h("small", {}, note) : null];
  return h(note.startsWith("suggested") ? "button.suggested" : "button", { type: "button", "aria-pressed": String(pressed), onclick: act }, text);
}

function menu(labels, current, act) {
  const options = labels.map((label) => h("option", { value: label, selected: label === current }, label));
  const pick = ({ target }) => target.value && act(target.value);
  return h("select", { "aria-label": "another label", onchange: pick }, h("option", { value: "" }, "another …"), options);
}

const rowOf = (...children) => h("div.choices", { role: "group", "aria-label": "Label" }, ...children);

/** Return the choice of one label; `act` is called with it. Unless there are `few` labels, only likely ones are buttons. */
export function chooseLabel(labels, { label: current, given, suggested }, act, few = labels.length <= MOST_BUTTONS) {
  const likely = [...new Set([given, suggested].filter((label) => label !== null))];
  const buttons = (few ? labels : likely).map((label) => {
    const note = label === given ? "given" : label === suggested ? "suggested" : "";
    return labelButton(label, label === current, note, () => act(label));
  });
  return rowOf(buttons, few ? null : menu(labels, likely.includes(current) ? "" : current, act));
}

/** Return the choice of any number of labels; `act` is called with the list. */
export function chooseLabels(labels, { label: current, given, suggested }, act) {
  const likely = new Set([...(given ?? []), ...(suggested ?? []), ...current]);
  const few = labels.length <= MOST_BUTTONS;
  const toggled = (label) => labels.filter((other) => current.includes(other) !== (other === label));
  const buttons = labels.filter((label) => few || likely.has(label)).map((label) => {
    const has = given?.includes(label) ?? false;
    const differs = suggested !== null && suggested.includes(label) !== has;
    const note = differs ? (has ? "suggested: remove" : "suggested: add") : has ? "given" : "";
    return labelButton(label, current.includes(label), note, () => act(toggled(label)));
  });
  const confirm = h("button", { type: "button", onclick: () => act(current) }, "confirm");
  return rowOf(buttons, few ? null : menu(labels, "", (label) => act(toggled(label))), confirm);
}

/** Show a record in its article: where it is from, its text, unless `content` has it, and its choices; the focus stays. */
export function drawExample(article, record, ...content) {
  const controls = () => [...article.querySelectorAll("button, select")];
  const focused = controls().indexOf(document.activeElement);
  const place = record.source + (record.equal_to ? `, equal text with another label: ${record.equal_to}` : "");
  const judged = record.note ?? (record.probability === null ? "not judged" : `probability ${record.probability.toFixed(3)}`);
  const text = [record.text, record.text_b].filter((part) => part !== undefined).join("\n");
  article.setAttribute("aria-label", `Example ${record.rank}`);
  article.replaceChildren(
    h("div.top", {}, h("span", {}, `${record.rank}. `, h("bdi", {}, place)), h("span", {}, judged)),
    ...(record.words ? [] : [h("div.text", { dir: "auto" }, text)]),
    ...content,
  );
  if (focused >= 0) controls()[focused]?.focus();
}

/**
 * Return the list of the first `end` records, of which more are shown on request.
 * @param {(record: object, article: Element) => void} draw shows a record in its article
 */
export function exampleList(records, end, draw) {
  const list = h("div.ranked", { onkeydown: (event) => pressKey(event) });
  const more = h("button", { type: "button", onclick: () => extend() }, "Show more");
  let shown = 0;
  function extend() {
    const first = list.children.length;
    for (const stop = Math.min(shown + AT_ONCE, end); shown < stop; shown++) {
      const article = h("article");
      draw(records[shown], article);
      list.append(article);
    }
    more.hidden = shown >= end;
    if (first) list.children[first]?.querySelector("button, select")?.focus();
  }
  extend();
  return h("div", {}, list, h("p", {}, more));
}

function pressKey(event) {
  const article = event.target.closest("article");
  if (!article || event.target.closest("select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = { ArrowDown: article.nextElementSibling, ArrowUp: article.previousElementSibling }[event.key];
  const button = /^[1-9]$/.test(event.key) ? article.querySelectorAll(".choices button")[event.key - 1] : null;
  if (!next && !button) return;
  event.preventDefault();
  if (next) (next.querySelector('.choices [aria-pressed="true"]') ?? next.querySelector("button, select"))?.focus();
  button?.focus();
  button?.click();
}

/** Let the browser save a file. */
export function saveFile(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
