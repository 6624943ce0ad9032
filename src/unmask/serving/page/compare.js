// Compare: the same words through all loaded models, side by side: who looks where.

import * as api from "./api.js";
import { choice, h, roving, share } from "./dom.js";
import { byWord, largest, mean } from "./words.js";

const MEASURES = [["influence", "Influence (all models)"], ["attention", "Attention (Transformers)"]];
const EXPLAINED = {
  influence: "Influence of each word: how much the vector of the chosen word changes when that word is left out, 1 − cosine, as a share of all changes. It is measured on the last layer, in the same way for every model.",
  attention: "Attention of the chosen word, as the mean over all heads of the layer. A high weight shows where a head reads, not how much that changes the result.",
};

/** Number of models that are compared if the address names none. */
const FIRST = 3;

export default {
  id: "compare",
  title: "Compare",
  about: "The same sentence through several models. Choose a word to see which words each model relates it to.",
  none: "No model is loaded.",
  action: "Compare",
  everyModel: true,
  fields: [{ name: "text", label: "Sentence", placeholder: "The bank of the river was steep." }, { name: "models", label: "Models", optional: true, build: buildModels }],
  examples: [
    { text: "The bank of the river was steep." },
    { text: "The trophy did not fit in the case because it was too big." },
    { text: "The keys to the old cabinet were on the table." },
  ],
  async ask({ text, models: names }, models, signal) {
    const chosen = names === undefined ? models : models.filter(({ name }) => names.split(",").includes(name));
    if (!chosen.length) throw new api.Refused("No model is chosen.", "Choose one or more.");
    return { text, results: await Promise.all(chosen.map((model) => readModel(model, text, signal))) };
  },

  show({ text, results }, state, change) {
    const measured = results.find((one) => one.influence);
    if (!measured) return results.map(({ model, error }) => h("article.card", {}, heading(model), h("p", {}, error.message)));
    const characters = Array.from(text);
    const words = measured.influence.words.map(([start, end]) => characters.slice(start, end).join(""));
    const measure = state.measure === "attention" ? "attention" : "influence";
    const word = Math.min(Number(state.word ?? largest(words.map((one) => one.length), 1)[0]) || 0, words.length - 1);
    const cards = results.map((result) => card(result, words, word, measure, state.layer));
    const depth = Math.max(...results.map((one) => one.attention?.weights.length ?? 0));
    const layers = [["", "Last"], ...Array.from({ length: depth }, (_, index) => [String(index), String(index + 1)])];
    return [
      h("div.row", {},
        choice("Measure", MEASURES, measure, (value) => change({ measure: value === "influence" ? undefined : value }, "#choice-measure")),
        measure === "attention" ? choice("Layer", layers, state.layer ?? "", (value) => change({ layer: value || undefined }, "#choice-layer")) : null,
      ),
      h("section", {}, h("h2", {}, "Choose a word"), picker(words, word, change), h("p.hint", {}, EXPLAINED[measure])),
      h("div.cards", {}, cards),
    ];
  },
};

/** Return the field that chooses models, a check box each; its value has their names, separated by commas. */
function buildModels({ name, label, models }) {
  const boxes = models.map((model) => h("input", { type: "checkbox", name, value: model.name }));
  const element = h("fieldset.boxes", {}, h("legend.label", {}, label), models.map((model, index) => h("label", {}, boxes[index], model.name)));
  return {
    element,
    read: () => ({ [name]: boxes.filter((box) => box.checked).map((box) => box.value).join(",") }),
    fill: (values) => {
      const named = values[name]?.split(",") ?? (element.dataset.filled ? null : models.slice(0, FIRST).map((model) => model.name));
      if (named) boxes.forEach((box) => (box.checked = named.includes(box.value))); // an example keeps the choice
      element.dataset.filled = "true";
    },
    show: () => (element.hidden = models.length < 2),
  };
}

/** Return what a model says about a text: its influence, its attention if it has any, or why there is none. */
async function readModel(model, text, signal) {
  const attended = model.views.includes("attention") ? api.attention(model.name, text, "", signal) : null;
  try {
    const [influence, attention] = await Promise.all([api.influence(model.name, text, signal), attended]);
    return { model, influence, attention };
  } catch (error) {
    if (!(error instanceof api.Refused)) throw error;
    return { model, error };
  }
}

function picker(words, chosen, change) {
  const buttons = words.map((word, index) =>
    h(index === chosen ? "button.chosen" : "button", {
      type: "button", "aria-pressed": String(index === chosen), onclick: () => change({ word: index }, `.tokens button:nth-child(${index + 1})`),
    }, word),
  );
  return roving(h("div.tokens", { role: "group", "aria-label": "Words" }, buttons), "button");
}

const heading = (model) => h("h3", {}, `${model.name} `, h("small", {}, `${model.family}, ${model.size}`));

function card({ model, error, influence, attention }, words, chosen, measure, layer) {
  if (error) return h("article.card", {}, heading(model), h("p", {}, error.message));
  if (measure === "attention" && !attention)
    return h("article.card", {}, heading(model), h("p", {}, "This model has no attention. Its influence can be compared."));
  const { shares, special } = measure === "attention" ? attended(attention, influence.words, chosen, layer) : influenced(influence, chosen);
  const spans = words.map((word, index) =>
    h(index === chosen ? "span.chosen" : "span", { "--weight": index === chosen && measure === "influence" ? 0 : Math.min(1, shares[index]) ** 0.6, title: share(shares[index]) }, word),
  );
  const most = largest(shares.map((value, index) => (index === chosen ? -1 : value)), 3).filter((index) => shares[index] > 0);
  const list = most.flatMap((index) => [h("b", {}, words[index]), ` ${share(shares[index])}, `]);
  if (special) list.push(h("b", {}, "special tokens"), ` ${share(special)}`);
  else if (list.length) list.push(list.pop().replace(/, $/, ""));
  return h("article.card", {}, heading(model), h("div.tokens", {}, spans), h("p", {}, list.length ? list : "No other word changes its vector."));
}

/** Return the influence on a word as shares that sum to 1. */
function influenced({ change }, word) {
  const total = change[word].reduce((sum, value) => sum + value, 0);
  return { shares: change[word].map((value) => (total > 0 ? value / total : 0)) };
}

/** Return the attention of a word to each word and to special tokens, in a layer; without one in the last. */
function attended({ tokens, weights }, spans, word, layer) {
  const number = layer === undefined || layer === "" ? weights.length - 1 : Math.min(Number(layer), weights.length - 1);
  const { words, special } = byWord(mean(weights[number]), tokens, spans)[word];
  return { shares: words, special };
}
