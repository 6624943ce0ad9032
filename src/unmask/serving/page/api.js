// The routes of the server. Paths are relative, so that the page also works below a prefix of a proxy.

const KEY = "unmask-key";

/** An error that the server explains: `message`, what to do about it, `remedy`, and whether a key is missing. */
export class Refused extends Error {
  constructor(message, remedy = "", locked = false) {
    super(message);
    this.remedy = remedy;
    this.locked = locked;
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
  throw new Refused(message, remedy.join(" "), response.status === 401);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return read(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

const pair = (text, text_b) => (text_b ? [text, text_b] : text);

/** Return the loaded models: {name, family, size, views: ids of the views that each has, pairs}. */
export const models = async () => (await read("playground/models")).models;

/** Return {text, masks: [{position, candidates: [{token, probability}]}]}. */
export const fill = async (model, text, signal) => ({ text, masks: (await post("fill", { model, inputs: text }, signal))[0] });

/** Return [{label, score}], the most probable label first; of a regression, one with the label "score". */
export const label = (model, text, text_b, signal) => post("predict", { model, inputs: pair(text, text_b) }, signal);

/** Return {text, entities: [{label, start, end, text, probability}]}. */
export const tag = async (model, text, signal) => ({ text, entities: (await post("tag", { model, inputs: text }, signal))[0] });

/** Return {answer, start, end, probability, nbest}, as the task of the model answers. */
export const answer = (model, question, passage, signal) => post("answer", { model, question, passage }, signal);

/** Return {tokens: [{token, start, end, text}], weights: by layer, head, token and token}. */
export const attention = (model, text, text_b, signal) => post("playground/attention", { model, inputs: pair(text, text_b) }, signal);

/** Return {words: [[start, end]], change: by word and word that is left out}. */
export const influence = (model, text, signal) => post("playground/influence", { model, inputs: text }, signal);
