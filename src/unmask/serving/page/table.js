// A file of texts from the reader's computer: CSV, TSV, JSON Lines, or plain text with a text per line.
//
// It is read as `unmask` reads it (data/labelled/delimited.py), and only cells of labels change: all else that a file
// contains is saved as it was, also numbers that JavaScript cannot represent, quotes and ends of lines.

import { Refused } from "./api.js";

/** Names of columns that are read without being asked for; as in data/labelled/columns.py. */
const PAIRS = [["text", "text_b"], ["text_a", "text_b"], ["sentence1", "sentence2"], ["sentence_A", "sentence_B"], ["premise", "hypothesis"], ["question1", "question2"], ["question", "sentence"]];
const TEXTS = ["text", "sentence", "review", "content", "text_a"];
const LABELS = ["label", "labels", "gold_label", "class", "sentiment", "Quality", "is_duplicate", "entailment_judgment"];
const SEPARATORS = [",", ";", "\t", "|"];
const MAX_SIZE = 50_000_000;
/** What data frames write for a missing value, in lower case. */
const MISSING = ["nan", "<na>", "nat"];

/**
 * Return the table in a file.
 * @returns {Promise<Table>} {names, rows: [{line, cells by name: {value, start, end}, end}], …}; see `Table`
 */
export async function readTable(file) {
  const suffix = file.name.toLowerCase().match(/\.(csv|tsv|jsonl|txt)$/)?.[1];
  if (!suffix) throw new Refused("The name of the file does not end in .csv, .tsv, .jsonl or .txt.", "Save it in one of these formats.");
  if (file.size > MAX_SIZE) throw new Refused(`The file has more than ${MAX_SIZE / 1e6} MB.`, "Use `unmask audit` and `unmask suggest`, which read larger ones.");
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Refused("The file is not UTF-8 text.", "Save it as UTF-8.");
  }
  const lines = suffix === "txt" && !text.split("\n", 1)[0].includes("\t");
  if (lines) text = text.replace(/^\ufeff/, "").split(/\r?\n/).map((line) => line.trim() && JSON.stringify({ text: line })).join("\n");
  const table = lines || suffix === "jsonl" ? readRecords(text) : readCells(text, suffix === "csv" ? "csv" : "tsv");
  if (!table.rows.length) throw new Refused("There are no rows in the file.", table.names.length ? "It has a header only." : "It is empty.");
  return new Table(text, table, lines ? file.name.replace(/\.txt$/i, ".jsonl") : file.name);
}

/**
 * A file, and the columns of its texts and labels.
 *
 * `names` are those of its columns, `rows` its rows with their lines, `chosen` the names of the columns that are read,
 * {text, text_b, label}; "" stands for none.
 */
export class Table {
  constructor(text, { names, rows, header, separator, quotes }, name) {
    Object.assign(this, { text, names, rows, header, separator, quotes, name });
    const first = (known) => known.find((column) => names.includes(column)) ?? "";
    const [text_a, text_b] = PAIRS.find((pair) => pair.every((column) => names.includes(column))) ?? [first(TEXTS), ""];
    this.chosen = { text: text_a, text_b, label: first(LABELS) };
  }

  /** Return the text of a row in one of the columns of texts. */
  read(row, column) {
    const value = row.cells.get(this.chosen[column])?.value;
    if (typeof value !== "string") throw at(row.line, `'${this.chosen[column]}' is ${value === undefined ? "missing" : "no text"}.`);
    return value.trim();
  }

  /** Return the label of a row, or the list of its labels; null: it has none. */
  label(row, several) {
    const cell = this.chosen.label ? row.cells.get(this.chosen.label) : undefined;
    const value = cell?.value ?? "";
    if (Array.isArray(value)) {
      if (!several) throw at(row.line, "The label is a list, and this model gives each text a single label.");
      return value.map(String);
    }
    if (typeof value === "object") throw at(row.line, "The label is an object; distributions of labels cannot be corrected here.");
    const text = typeof value === "string" ? value.trim() : nameOf(value, this.text.slice(cell.start, cell.end));
    if (MISSING.includes(text.toLowerCase())) throw at(row.line, `The label is “${text}”, which data frames write for a missing value.`);
    if (!several) return text || null;
    if (!this.separator && text) throw at(row.line, "The label is no list, and this model gives each text several labels.");
    if (/^[[({]/.test(text)) throw at(row.line, "The cell contains a list; here, labels in a cell are separated by commas.");
    return text ? [...new Set(text.split(",").map((name) => name.trim()))].filter(Boolean) : [];
  }

  /**
   * Return the content of the file with other labels.
   * @param {Map<object, string|string[]>} labels the new labels of rows
   * @param {object[]} rows those that are saved
   */
  content(labels, rows) {
    const name = this.chosen.label || "label";
    const added = !this.names.includes(name);
    const parts = this.header ? [this.text.slice(0, this.header.stop), added ? this.separator + name : ""] : [];
    const saved = new Set(rows);
    let position = this.header?.stop ?? this.rows[0].start;
    for (const row of this.rows) {
      const cell = row.cells.get(name) ?? { start: row.end, end: row.end };
      const before = cell.value !== undefined ? "" : this.separator ?? `,${JSON.stringify(name)}:`;
      const label = labels.has(row) ? before + this.encode(labels.get(row), cell) : this.text.slice(cell.start, cell.end);
      if (saved.has(row)) parts.push(this.text.slice(position, cell.start), label, this.text.slice(cell.end, row.stop));
      position = row.stop;
    }
    return `${parts.join("").replace(/^[\r\n]+|[\r\n]+$/g, "")}${this.text.includes("\r\n") ? "\r\n" : "\n"}`;
  }

  encode(label, cell) {
    if (!this.separator) return typeof cell.value === "number" && String(Number(label)) === label ? label : JSON.stringify(label);
    const text = Array.isArray(label) ? label.join(",") : label;
    if (Array.isArray(label) && label.some((name) => name.includes(","))) throw new Refused("A label contains a comma, which separates labels in a cell.", "Use JSON Lines.");
    if (!this.quotes && /[\t\r\n]/.test(text)) throw new Refused("A label contains a tab or a line break, which TSV cannot express.", "Use CSV.");
    return this.quotes && (/["\r\n]|^\s|\s$/.test(text) || text.includes(this.separator)) ? `"${text.replaceAll('"', '""')}"` : text;
  }
}

/** Return how `unmask` reads a label in JSON that is no text. */
const nameOf = (value, written) => (typeof value === "boolean" ? { true: "True", false: "False" }[value] : written);

const at = (line, message) => new Refused(`Line ${line}: ${message}`, "Correct the file, or choose another column.");

/** Return {names, rows} of JSON Lines. */
function readRecords(text) {
  const rows = [];
  const names = new Set();
  let start = text.startsWith("\ufeff") ? 1 : 0;
  text.slice(start).split("\n").forEach((written, index) => {
    if (written.trim()) rows.push(readRecord(written, start, index + 1));
    start += written.length + 1;
  });
  rows.forEach(({ cells }) => cells.forEach((_, name) => names.add(name)));
  return { names: [...names], rows };
}

/** Return the row of an object in JSON, whose members have their places in the file. */
function readRecord(written, offset, line) {
  let values;
  try {
    values = JSON.parse(written);
  } catch {
    throw at(line, "This is not valid JSON.");
  }
  if (values === null || typeof values !== "object" || Array.isArray(values)) throw at(line, "This is no JSON object.");
  const tokens = [...written.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g)].map(({ 0: token, index }) => ({ token, start: offset + index, end: offset + index + token.length }));
  const cells = new Map();
  let depth = 0;
  let name = null;
  let start = 0;
  tokens.forEach(({ token }, index) => {
    if (depth === 1 && token === ":") {
      name = JSON.parse(tokens[index - 1].token);
      start = tokens[index + 1].start;
    } else if (depth === 1 && (token === "," || token === "}") && name !== null) {
      cells.set(name, { value: values[name], start, end: tokens[index - 1].end });
    }
    depth += { "{": 1, "[": 1, "}": -1, "]": -1 }[token] ?? 0;
  });
  return { line, cells, start: offset, end: tokens.at(-1).start, stop: tokens.at(-1).end };
}

/** Return {names, rows, header, separator, quotes} of a file of cells. */
function readCells(text, kind) {
  let from = text.startsWith("\ufeff") ? 1 : 0;
  const declared = text.slice(from).match(/^sep=([,;\t|])\r?\n/i);
  if (declared) from += declared[0].length;
  const own = kind === "csv" ? "," : "\t";
  const separator = declared?.[1] ?? recognize(text.slice(from).split("\n", 1)[0], own);
  const quotes = kind === "csv" || separator !== "\t";
  const records = [...split(text, from, declared ? 2 : 1, separator, quotes)];
  const [header, ...rest] = records.filter(({ cells }) => cells.length > 1 || cells[0].value.trim());
  if (!header) return { names: [], rows: [] };
  const names = header.cells.map(({ value }) => value.trim());
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) throw at(header.line, `Two columns are called “${twice}”.`);
  const rows = rest.map((record) => {
    if (record.cells.length !== names.length) throw at(record.line, `There are ${record.cells.length} cells, and ${names.length} columns.`);
    return { ...record, cells: new Map(names.map((name, index) => [name, record.cells[index]])) };
  });
  return { names, rows, header, separator, quotes };
}

/** Return what separates the names in a header: what separates known ones, or else the separator of the format, if any. */
function recognize(header, own) {
  const others = [own, ...SEPARATORS.filter((separator) => separator !== own)];
  const names = (separator) => header.split(separator).map((name) => name.replaceAll('"', "").trim());
  const known = others.find((separator) => names(separator).length > 1 && names(separator).some((name) => TEXTS.includes(name)));
  return known ?? others.find((separator) => header.includes(separator)) ?? own;
}

/** Yield the records of a text: {line, start, end, stop, cells: [{value, start, end}]}. */
function* split(text, from, line, separator, quotes) {
  const inside = separator === "|" ? "\\|" : separator;
  const plain = quotes ? new RegExp(`[^${inside}\\r\\n]*`, "y") : /[^\t\n]*?(?=\t|\r*(?:\n|$))/y;
  const quoted = /"([^"]*(?:""[^"]*)*)"/y;
  const ends = /\r*\n|\r|$/y;
  let position = from;
  while (position < text.length) {
    const record = { line, start: position, cells: [] };
    do {
      if (record.cells.length) position++;
      if (quotes && separator !== "\t") while (text[position] === " ") position++;
      const pattern = quotes && text[position] === '"' ? quoted : plain;
      pattern.lastIndex = position;
      const match = pattern.exec(text);
      if (!match) throw at(line, "A quote is not closed.");
      record.cells.push({ value: pattern === quoted ? match[1].replaceAll('""', '"') : match[0], start: position, end: pattern.lastIndex });
      position = pattern.lastIndex;
    } while (text[position] === separator);
    record.end = record.stop = position;
    ends.lastIndex = position;
    if (!ends.test(text)) throw at(line, "There is more text after a quoted cell.");
    position = Math.max(ends.lastIndex, position);
    line += (text.slice(record.start, position).match(/\n/g) ?? []).length;
    yield record;
  }
}
