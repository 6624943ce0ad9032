// Computes exported models with transformers.js: reads requests from standard input, writes answers to standard output.
// NODE_MODULES is the folder with @huggingface/transformers; each request is {task, model, inputs, options}.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { env, pipeline, AutoTokenizer, AutoModelForSequenceClassification } = await import(
  pathToFileURL(require.resolve("@huggingface/transformers")).href
);
env.allowRemoteModels = false;
env.allowLocalModels = true;

async function answer({ folder, model, task, inputs, options, settings }) {
  env.localModelPath = folder;
  if (task !== "text-ranking") return (await pipeline(task, model, settings))(...inputs, options);
  const tokenizer = await AutoTokenizer.from_pretrained(model);
  const network = await AutoModelForSequenceClassification.from_pretrained(model, settings);
  const [text, text_pair] = inputs;
  return (await network(tokenizer(text, { text_pair, padding: true, truncation: true }))).logits;
}

const answers = [];
for (const request of JSON.parse(readFileSync(0, "utf8"))) {
  const found = await answer(request);
  answers.push(found.tolist ? found.tolist() : found);
}
process.stdout.write(JSON.stringify(answers, (key, value) => (typeof value === "bigint" ? Number(value) : value)));
