// Elements, made without parsing markup, so that texts of users and of models stay texts.

const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Return a probability in percent, such as "98.3 %". */
export function share(value) {
  return percent.format(value).replace("%", " %");
}

/**
 * Return an element.
 * @param {string} tag its name, with classes after dots: "p.note"
 * @param {object} options attributes; "on…" are listeners, "--…" custom properties; false and undefined are omitted
 * @param {...(Node|string)} children
 */
export function h(tag, options = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) element.style.setProperty(key, value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Maximum number of characters of names that stand beside their bars; longer ones, such as texts, stand above. */
const BESIDE = 24;

/**
 * Return a list of labeled bars; with `pick`, each is a button, and `chosen` the index of the pressed one.
 * @param {{name: string, value: number, shown?: string, at?: number, hue?: number}[]} items `shown` in place of the value
 *   in percent, `at` a threshold to mark, `hue` of a type
 */
export function bars(items, { pick, chosen, title } = {}) {
  const above = items.some(({ name }) => name.length > BESIDE);
  const rows = items.map(({ name, value, shown = share(value), at, hue }, index) => {
    const parts = [
      h(hue === undefined ? "span.name" : "span.name.typed", { "--hue": hue }, name),
      h("span.track", { "aria-hidden": "true" }, h("i", { "--value": value }), at === undefined ? null : h("b", { "--at": at })),
      h("span.value", {}, shown),
    ];
    const row = pick
      ? h("button.bar", { type: "button", "aria-pressed": String(index === chosen), onclick: () => pick(index) }, parts)
      : h("div.bar", {}, parts);
    return h("li", {}, row);
  });
  return h("section", {}, title ? h("h2", {}, title) : null, h(above ? "ol.bars.long" : "ol.bars", {}, rows));
}

/** Return a number with so many decimals, and a minus sign if it is negative. */
export function decimal(value, digits) {
  return value.toFixed(digits).replace("-", "\u2212");
}

/**
 * Return a text with marked spans, which may be nested; offsets are in code points, as everywhere in unmask.
 * @param {string} text
 * @param {{start: number, end: number, make: (inside: (string | Node)[]) => Node}[]} marks
 */
export function marked(text, marks) {
  const characters = Array.from(text);
  const waiting = [...marks].sort((a, b) => a.start - b.start || b.end - a.end);
  const read = (from, to) => {
    const parts = [];
    let at = from;
    while (waiting.length && waiting[0].start < to) {
      const { start, end, make } = waiting.shift();
      if (end > to) continue; // crosses the end of the mark around it
      parts.push(characters.slice(at, start).join(""), make(read(start, end)));
      at = end;
    }
    return [...parts, characters.slice(at, to).join("")];
  };
  return h("p.reading", {}, read(0, characters.length));
}

/** Let the arrow keys, Home and End move between the elements of a group, which is a single stop of the Tab key. */
export function roving(group, selector, columns = 1) {
  const items = () => [...group.querySelectorAll(selector)];
  const stop = (chosen) => items().forEach((item) => item.setAttribute("tabindex", item === chosen ? "0" : "-1"));
  stop(group.querySelector(`${selector}[aria-pressed="true"], ${selector}[aria-selected="true"]`) ?? items()[0]);
  group.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : at + (steps[event.key] ?? 0);
    if (at < 0 || next === at || !all[next]) return;
    event.preventDefault();
    stop(all[next]);
    all[next].focus();
  });
  group.addEventListener("focusin", (event) => items().includes(event.target) && stop(event.target));
  return group;
}

/** Return the lines of a text that are not empty. */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** Return the parts of a text in which `code` is marked. */
export function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

/** Return the explanation of an error; see `Refused` in api.js. */
export function explain({ message, remedy }) {
  return h("div.error", { role: "alert" }, h("p", {}, h("strong", {}, message)), remedy ? h("p", {}, withCode(remedy)) : null);
}

/** Return a labeled select; options are [value, text] pairs. */
export function choice(label, options, value, pick) {
  const id = `choice-${label.toLowerCase().replaceAll(" ", "-")}`;
  const select = h("select", { id, onchange: () => pick(select.value) }, options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value;
  return h("div", {}, h("label", { for: id }, label), select);
}

/** Draw weights, (rows, columns) between 0 and 1, one pixel each, in the color of the canvas. */
export function paint(canvas, weights) {
  canvas.width = weights[0].length;
  canvas.height = weights.length;
  const brush = canvas.getContext("2d");
  brush.fillStyle = getComputedStyle(canvas).color;
  weights.forEach((row, y) =>
    row.forEach((weight, x) => {
      brush.globalAlpha = Math.min(1, weight) ** 0.6; // so that small weights are visible
      brush.fillRect(x, y, 1, 1);
    }),
  );
}

/** Paint the canvases in an element once it is in the page, where they have colors. */
export function paintAll(element) {
  for (const canvas of element.querySelectorAll("canvas")) if (canvas.weights) paint(canvas, canvas.weights);
}
