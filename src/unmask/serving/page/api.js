// The routes of the server. Paths are relative, so that the page also works below a prefix of a proxy.

/** An error that the server explains: `message`, and what to do about it, `remedy`. */
export class Refused extends Error {
  constructor(message, remedy = "") {
    super(message);
    this.remedy = remedy;
  }
}

async function read(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer.", "Is it still running? Start it again: unmask serve MODEL");
  }
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const error = typeof content.error === "object" && content.error ? content.error : { message: content.error };
  throw new Refused(error.message || `The server answers with status ${response.status}.`, error.remedy ?? content.remedy);
}

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return read(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Return the loaded models: {name, family, task, views: ids of the views that each serves}. */
export const models = async () => (await read("playground/models")).models;

export const fill = (model, text, signal) => post("fill", { model, text }, signal);
export const label = (model, text, text_b, signal) => post("predict", { model, text, text_b: text_b || undefined }, signal);
export const tag = (model, text, signal) => post("tag", { model, text }, signal);
export const answer = (model, question, passage, signal) => post("answer", { model, question, passage }, signal);
export const attention = (model, text, text_b, signal) =>
  post("playground/attention", { model, text, text_b: text_b || undefined }, signal);
export const influence = (model, text, signal) => post("playground/influence", { model, text }, signal);
