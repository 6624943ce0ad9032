// Attention: what each head of each layer attends to, token by token.

import * as api from "./api.js";
import { bars, choice, h, roving } from "./dom.js";
import { largest, mean, spelling } from "./words.js";

export default {
  id: "attention",
  title: "Attention",
  about: "Each head of a Transformer reads every token as a weighted mean of others. Choose a layer, a head and a token to see the weights.",
  none: "None of the loaded models has attention: ELMo consists of LSTMs. The view Compare shows which words it relates to each other.",
  action: "Read",
  fields: [
    { name: "text", label: "Text", placeholder: "The cat sat on the mat because it was tired." },
    { name: "text_b", label: "Second text", placeholder: "For pairs", optional: true, rows: 1 },
  ],
  examples: [
    { text: "The cat sat on the mat because it was tired." },
    { text: "The lawyer who the judges praised was late." },
    { text: "Where did she go?", text_b: "She went to the market." },
  ],
  ask: ({ text, text_b, model }, _, signal) =>
    api.attention(model, text, text_b, signal).then((found) => ({ ...found, texts: [text, text_b].map((one) => Array.from(one)) })),

  show(data, state, change) {
    const names = data.tokens.map((token) => spelling(token, data.texts));
    const layer = within(state.layer, data.weights.length);
    const head = state.head === undefined ? -1 : within(state.head, data.weights[0].length);
    const token = within(state.token ?? largestWord(data.tokens), names.length);
    const weights = head < 0 ? mean(data.weights[layer]) : data.weights[layer][head];
    const title = `Layer ${layer + 1}, ${head < 0 ? "mean of all heads" : `head ${head + 1}`}`;
    return [
      controls(data, layer, head, change),
      sentence(data, names, weights, token, title, change),
      h("div.columns", {}, matrix(weights, names, token, title), top(weights[token], names, token)),
      overview(data.weights, layer, head, change),
    ];
  },
};

/** Maximum number of labels of an axis. */
const LABELS = 26;

const within = (value, count) => Math.min(Math.max(0, Number(value) || 0), count - 1);

/** Return the index of the longest token, which is rarely a function word. */
function largestWord(tokens) {
  return largest(tokens.map((token) => token.end - token.start), 1)[0];
}

function controls({ weights }, layer, head, change) {
  const layers = weights.map((_, index) => [String(index), `${index + 1} of ${weights.length}`]);
  const heads = weights[0].map((_, index) => [String(index), `${index + 1} of ${weights[0].length}`]);
  return h("div.row", {},
    choice("Layer", layers, String(layer), (value) => change({ layer: value }, "#choice-layer")),
    choice("Head", [["", "Mean of all"], ...heads], head < 0 ? "" : String(head), (value) => change({ head: value === "" ? undefined : value }, "#choice-head")),
  );
}

/** Return the tokens as buttons, shaded by how much the chosen one attends to each. */
function sentence({ tokens }, names, weights, chosen, title, change) {
  const joined = tokens.map((token, index) => {
    const before = tokens[index - 1];
    return index > 0 && token.text >= 0 && before.text === token.text && before.end === token.start;
  });
  const buttons = tokens.map((token, index) => {
    const classes = [
      token.text < 0 && "special", index === chosen && "chosen", joined[index] && "joined", joined[index + 1] && "continued",
    ].filter(Boolean);
    const label = `${names[index]}, attended to with ${(100 * weights[chosen][index]).toFixed(1)} percent`;
    return h(["button", ...classes].join("."), {
      type: "button", "--weight": weights[chosen][index] ** 0.6, "aria-pressed": String(index === chosen), "aria-label": label,
      onclick: () => change({ token: index }, `.tokens button:nth-child(${index + 1})`),
    }, names[index]);
  });
  return h("section", {},
    h("h2", {}, `${title}: what “${names[chosen]}” attends to`),
    roving(h("div.tokens", { role: "group", "aria-label": "Tokens" }, buttons), "button"),
    h("p.hint", {}, h("span.scale", { "aria-hidden": "true" }), "more attention"),
  );
}

function top(row, names, token) {
  const items = largest(row, 6).map((index) => ({ name: names[index], value: row[index] }));
  return bars(items, { title: `Most attended to by “${names[token]}”` });
}

/** Return the weights of all tokens as a map, with rows that attend and columns that are attended to. */
function matrix(weights, names, token, title) {
  const canvas = h("canvas", { role: "img", "aria-label": `Map of ${title}: rows attend to columns` });
  canvas.weights = weights;
  const step = Math.ceil(names.length / LABELS);
  const near = (index) => step > 1 && index !== token && Math.abs(index - token) < step; // would overlap the chosen one
  const text = (name, index) => ((index === token || index % step === 0) && !near(index) ? name : "");
  const axis = (tag) => h(tag, { "aria-hidden": "true" }, names.map((name, index) => h(index === token ? "li.chosen" : "li", {}, text(name, index))));
  return h("section", {},
    h("h2", {}, "Rows attend to columns"),
    h("div.map", {}, axis("ol"), h("div.square", {}, canvas), axis("ol.across")),
  );
}

/** Return a small map of each head; pressing one chooses it. */
function overview(layers, layer, head, change) {
  const count = layers[0].length;
  const cells = layers.flatMap((heads, y) => [
    h("span.axis", { "aria-hidden": "true" }, String(y + 1)),
    ...heads.map((weights, x) => {
      const canvas = h("canvas", { "aria-hidden": "true" });
      canvas.weights = weights;
      return h("button", {
        type: "button", "aria-pressed": String(y === layer && x === head), "aria-label": `Layer ${y + 1}, head ${x + 1}`, title: `Layer ${y + 1}, head ${x + 1}`,
        onclick: () => change({ layer: y, head: x }, `.heads button[aria-label="Layer ${y + 1}, head ${x + 1}"]`),
      }, canvas);
    }),
  ]);
  const grid = h("div.heads", { role: "group", "aria-label": "All heads", "--heads": count }, cells);
  grid.style.gridTemplateColumns = `max-content repeat(${count}, max-content)`;
  return h("section", {}, h("h2", {}, "All heads: a row for each layer"), h("div.scroll", {}, roving(grid, "button", count)));
}
