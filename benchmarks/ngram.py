"""Does ELMo predict words better than an n-gram model with the same vocabulary?

The ELMo of comparisons/family.toml beside a 5-gram with interpolated Kneser-Ney smoothing (Chen and Goodman 1999), by
the perplexity of the held-out text in each direction: of each word and of the end of each sentence, where words that
are not among the most frequent are one word. The n-grams are counted in all of the training text, and in as much of it
as each direction of ELMo has read; with three discounts for each order, estimated from the counts ("modified"). With a
single discount the probabilities are those of NLTK, as the test shows, which would take days for this text.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from common import RUNS, add, logged, parse
from compare import model_of
from files import english_text

from unmask.data.corpus.build import held_out
from unmask.data.corpus.corpus import Documents, open_corpus
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.inference.evaluation.scoring import evaluate_encoder
from unmask.model.model import load_model

ELMO = "family/elmo"
ORDER = 5
DISCOUNTS = 3
"""Number of discounts of each order: of what was counted once, twice, and more often."""
Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class Text:
    """Sentences one behind the other, each with enough marks of its begin for the context of its first word.

    Args:
        sentences: ids of the words of each.
        begin, end: ids of the marks of a sentence.

    Attributes:
        ids: (tokens,) with all marks.
        real: (tokens,) bool, whether a token is predicted: a word, or the end of a sentence.
    """

    def __init__(self, sentences: Sequence[npt.NDArray[Any]], begin: int, end: int) -> None:
        marks = np.full(ORDER - 1, begin)
        self.ids: Ids = np.concatenate([part for words in sentences for part in (marks, words, [end])])
        lengths = np.array([len(words) + ORDER for words in sentences])
        within = np.arange(len(self.ids)) - np.repeat(lengths.cumsum() - lengths, lengths)
        self.real = within >= ORDER - 1


class KneserNey:
    """An n-gram model of order `ORDER`.

    Of lower orders than the highest, an n-gram counts as often as there are different words before it. Single words are
    interpolated with all words alike, as in KenLM, except with a given discount, as in NLTK.

    Args:
        text: the text to count in.
        words: number of words that ids stand for.
        discount: the discount of all n-grams; None: `DISCOUNTS` for each order.

    Attributes:
        keys: of each order, sorted: (index of the first words in the keys of the order before) * words + last word.
        counts: of each order, those of `keys`.
        discounts: of each order, (DISCOUNTS + 1,), by count.
    """

    def __init__(self, text: Text, words: int, discount: float | None = None) -> None:
        self.words = words
        self.keys: list[Ids] = []
        self.counts: list[Ids] = []
        indices = np.zeros(len(text.ids), np.int64)
        for order in range(ORDER):
            key = np.roll(indices, 1) * words + text.ids if order else text.ids
            keys, first, inside = np.unique(key, return_index=True, return_inverse=True)
            if order:  # how many different n-grams end in each of the shorter ones
                ends = indices[first[text.real[first]]]
                self.counts[-1] = np.bincount(ends, minlength=len(self.keys[-1]))
            self.keys.append(keys)
            self.counts.append(np.bincount(inside[text.real], minlength=len(keys)))
            indices = inside
        self.discounts = [estimate(counts) for counts in self.counts]
        if discount is not None:
            self.discounts = [np.zeros(DISCOUNTS + 1), *[np.array([0, *[discount] * DISCOUNTS])] * (ORDER - 1)]

    def probabilities(self, text: Text) -> Numbers:
        """Return the probability of each token of another text that is predicted, (tokens,)."""
        indices, found = np.zeros(len(text.ids), np.int64), np.full(len(text.ids), 1 / self.words)
        for order, (counts, discounts) in enumerate(zip(self.counts, self.discounts, strict=True)):
            context = np.roll(indices, 1)  # (tokens, with all marks)
            indices = self._find(order, context * self.words + text.ids)
            indices = np.where(context < 0, -1, indices)
            size = len(self.keys[order - 1]) if order else 1
            own = self.keys[order] // self.words  # (n-grams,): their contexts
            taken = discounts[counts.clip(max=DISCOUNTS)]  # (n-grams,)
            total = np.bincount(own, counts, size)[context]  # (tokens,)
            rest = np.bincount(own, taken, size)[context]  # (tokens,)
            kept = np.where(indices < 0, 0, (counts - taken)[indices])  # (tokens,)
            seen = (context >= 0) & (total > 0)
            found = np.where(seen, (kept + rest * found) / np.maximum(total, 1), found)
        return found[text.real]

    def _find(self, order: int, keys: Ids) -> Ids:
        """Return the indices of keys among those of an order, -1 where there is none."""
        indices = np.searchsorted(self.keys[order], keys).clip(max=len(self.keys[order]) - 1)
        return np.where(self.keys[order][indices] == keys, indices, -1)


def estimate(counts: Ids) -> Numbers:
    """Return the discounts of n-grams by their counts (Chen and Goodman 1999, equation 26); 0.75 for tiny texts."""
    once, twice, thrice, often = np.bincount(counts.clip(max=DISCOUNTS + 2), minlength=6)[1:5].astype(float)
    if once * twice * thrice:
        share = once / (once + 2 * twice)
        found = [1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, 3 - 4 * share * often / thrice]
        if min(found) > 0:
            return np.array([0, *found])
    return np.array([0, *[0.75] * DISCOUNTS])


def read(documents: Documents, most: int, words: int) -> list[Ids]:
    """Return the sentences of some documents in random order, at least `most` tokens; rarer words are one word."""
    sentences: list[Ids] = []
    size = 0
    for index in np.random.default_rng(0).permutation(len(documents)):
        own = [ids.clip(max=words - 1).astype(np.int64) for ids in documents.sentences(int(index))]
        sentences += own
        size += sum(len(ids) + 1 for ids in own)
        if size >= most:
            break
    return sentences


def perplexity(train: Sequence[Ids], heldout: Sequence[Ids], marks: Sequence[int], words: int) -> tuple[float, int]:
    """Return the perplexity of held-out sentences, and in how many n-grams of the highest order it was counted."""
    begin, end = marks
    model = KneserNey(Text(train, begin, end), words)
    return float(np.exp(-np.log(model.probabilities(Text(heldout, begin, end))).mean())), len(model.keys[-1])


def main() -> None:
    """Measure both models in both directions."""
    measure(model_of(ELMO, parse(__doc__, runs=RUNS).runs), english_text())


def measure(run: Path, text: Sequence[Path]) -> None:
    """Compare an ELMo that was pretrained on a text with n-grams in the same text."""
    cell = run.parent / "cell.json"
    needed = json.loads(cell.read_bytes())["needs"]["corpus"] if cell.exists() else ""
    corpus, model = (
        open_corpus(run.parent.parent / needed / "corpus" if needed else run / "text" / "corpus"),
        load_model(run),
    )
    words, marks = len(model.heads["bidirectional_lm"]["bias"]), (corpus.tokenizer.cls, corpus.tokenizer.sep)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "heldout.jsonl"
        documents = held_out(read_documents(text, TextOptions(), Skipped()))
        file.write_bytes(b"\n".join(msgspec.json.encode({"text": document}) for document in documents))
        scores = evaluate_encoder(model, [file])["metrics"]
    each = logged(run)[-1]["tokens"] // 2  # tokens that each direction has read
    heldout = read(corpus.heldout, corpus.heldout.num_tokens * 2, words)
    for direction, turn in (("forward", 1), ("backward", -1)):
        shared = {"words": words, "heldout": sum(len(ids) + 1 for ids in heldout)}
        value = scores[f"bidirectional_lm_{direction}_perplexity"]
        key = {"engine": ELMO, "direction": direction, "text": "read"}
        add("ngram", key, {"tokens": each, "perplexity": value, **shared})
        asked = [ids[::turn] for ids in heldout]
        for part, most in (("read", each), ("all", corpus.train.num_tokens * 2)):
            train = [ids[::turn] for ids in read(corpus.train, most, words)]
            value, size = perplexity(train, asked, marks[::turn], words)
            record = {"tokens": sum(len(ids) + 1 for ids in train), "ngrams": size, "perplexity": value, **shared}
            add("ngram", {"engine": f"{ORDER}-gram", "direction": direction, "text": part}, record)


if __name__ == "__main__":
    main()
