// Words from tokens and weights, for views that show which words a model relates to each other.

/** Return what is shown of a token: its characters in the text, or its name if it is special. */
export function spelling(token, texts) {
  if (token.text < 0) return token.token;
  return texts[token.text].slice(token.start, token.end).join("") || token.token;
}

/** Return the mean of matrices, (rows, columns) each. */
export function mean(matrices) {
  return matrices[0].map((row, y) => row.map((_, x) => matrices.reduce((sum, one) => sum + one[y][x], 0) / matrices.length));
}

/**
 * Return how much each word attends to each other word, and to special tokens: the mean over the word's tokens of the
 * sum over those of the other word.
 * @param {number[][]} weights of a head, (tokens, tokens)
 * @param {{start: number, end: number, text: number}[]} tokens
 * @param {[number, number][]} words spans in the first text
 */
export function byWord(weights, tokens, words) {
  const inside = words.map(([start, end]) =>
    tokens.flatMap((token, index) => (token.text === 0 && token.start < end && token.end > start ? [index] : [])),
  );
  const special = tokens.flatMap((token, index) => (token.text < 0 ? [index] : []));
  const sum = (row, columns) => columns.reduce((total, column) => total + row[column], 0);
  return inside.map((own) => {
    const average = (columns) => own.reduce((total, row) => total + sum(weights[row], columns), 0) / Math.max(1, own.length);
    return { words: inside.map(average), special: average(special) };
  });
}

/** Return the indices of the largest values, in descending order. */
export function largest(values, count) {
  return values.map((_, index) => index).sort((a, b) => values[b] - values[a]).slice(0, count);
}
