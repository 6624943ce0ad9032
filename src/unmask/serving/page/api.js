// The routes of the server. Paths are relative, so that the page also works below a prefix of a proxy.

const KEY = "unmask-key";

/** An error that is explained: `message`, what to do about it, `remedy`, and the status of the server's response, if any. */
export class Refused extends Error {
  constructor(message, remedy = "", status = 0) {
    super(message);
    this.remedy = remedy;
    this.status = status;
  }
}

/** Keep an API key until the tab is closed. */
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

async function read(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer.", "Is it still running?");
  }
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const [message, ...remedy] = (content.error || `status ${response.status}`).split("; ").map(sentence);
  throw new Refused(message, remedy.join(" "), response.status);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return read(path, { method: "POST", headers, body: json(body), signal });
}

/** Return JSON of an object, whose values may be maps: these keep their order, objects put names that are numbers first. */
function json(value) {
  const entries = value instanceof Map ? [...value] : Object.entries(value).filter(([, one]) => one !== undefined);
  const members = entries.map(([name, one]) => `${JSON.stringify(name)}:${one instanceof Map ? json(one) : JSON.stringify(one)}`);
  return `{${members.join(",")}}`;
}

const pair = (text, text_b) => (text_b ? [text, text_b] : text);

/** Return the loaded models: {name, family, size, views: ids of the views that each has, pairs, history, passages, explains, labels, types, several, threshold}. */
export const models = async () => (await read("playground/models")).models;

/** Return {text, masks: [{position, candidates: [{token, probability}]}]}. */
export const fill = async (model, text, signal) => ({ text, masks: (await post("fill", { model, inputs: text }, signal))[0] });

/** Return [{label, score}], the most probable label first; of a regression, one with the label "score". */
export const label = (model, text, text_b, signal) => post("predict", { model, inputs: pair(text, text_b) }, signal);

/** Return what `label` returns, for each of several lists of one or two texts; what is too long is truncated. */
export const labelAll = (model, inputs, signal) => post("predict", { model, inputs, truncate: true }, signal);

/** Return what words contribute to each decision: [{label, value, start?, end?, words: [{start, end, contribution, text?}]}]. */
export const explain = (model, text, text_b, signal) => post("explain", { model, inputs: pair(text, text_b) }, signal);

/** Return {text, entities: [{label, start, end, text, probability}]}. */
export const tag = async (model, text, signal) => ({ text, entities: (await post("tag", { model, inputs: text }, signal))[0] });

/** Return {text, spans: [{label, start, end, text}], relations: [{label, head, tail: indices of spans, probability}]}. */
export const relate = (model, text, spans, signal) => post("relate", { model, text, spans }, signal);

/**
 * Return {answer, start, end, probability, nbest, …}, as the task of the model answers.
 * @param {string|string[]|Map} passage a text, several, or texts by their titles
 * @param {[string, string][]} history earlier questions and their answers
 */
export const answer = (model, question, passage, history, signal) => post("answer", { model, question, passage, history }, signal);

/** Return {choice: its index, probabilities, cut: whether a text was truncated}. */
export const choose = (model, passage, question, choices, signal) => post("choose", { model, passage, question, choices }, signal);

/** Return [{index, score}], the text first that answers the query best; raw: logits of a cross-encoder instead of probabilities. */
export const rerank = (model, query, texts, signal, raw = false) => post("rerank", { model, query, texts, raw_scores: raw }, signal);

/** Return the vector of each text, of length 1. */
export const embed = (model, inputs, signal) => post("embed", { model, inputs }, signal);

/** Return {tokens: [{token, start, end, text}], weights: by layer, head, token and token}. */
export const attention = (model, text, text_b, signal) => post("playground/attention", { model, inputs: pair(text, text_b) }, signal);

/** Return {words: [[start, end]], change: by word and word that is left out}. */
export const influence = (model, text, signal) => post("playground/influence", { model, inputs: text }, signal);
