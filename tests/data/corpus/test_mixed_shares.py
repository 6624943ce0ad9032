"""Shares of mixtures whose documents are long: what results, and what is said of it, beside counts of tokens."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.mix import write_mixture

LENGTHS = {"short": (40, 3, 9), "long": (6, 200, 900), "one": (1, 400, 401)}
"""Number of documents of each corpus, and the smallest and the largest number of words."""
LINE = re.compile(
    r"(\S+) % of the tokens(?: \((\S+) % were asked for, .*\))?, (\S+) % of those held out, read (\S+) times"
)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, tokenizer):
    """Corpora of documents of very different lengths, each with a word of its own."""
    folder, rng, made = tmp_path_factory.mktemp("corpora"), np.random.default_rng(0), {}
    for word, (name, (count, least, most)) in zip(("cat", "dog", "house"), LENGTHS.items(), strict=True):
        texts = [" ".join([word] * int(rng.integers(least, most))) for _ in range(count)]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        held = folder / f"{name}-held.jsonl"
        held.write_text(json.dumps({"text": f"a mat {word}"}))
        files = {"heldout": None} if name == "one" else {"heldout": [held]}
        made[name] = write_corpus([path], tokenizer, folder / name, **files)
    return list(made.values())


def tokens_by_corpus(mixed, corpora, part):
    """Return how many tokens of a part come from each corpus, by the word that its documents have."""
    own = [set(corpus.train.sentences(0)[0].tolist()) for corpus in corpora]
    words = [ids - set.union(*(others for others in own if others is not ids)) for ids in own]
    counts = Counter()
    documents = getattr(mixed, part)
    for index in range(len(documents)):
        ids = np.concatenate(documents.sentences(index))
        counts[next(number for number, word in enumerate(words) if word & set(ids.tolist()))] += len(ids)
    return [counts[number] for number in range(len(corpora))]


@pytest.mark.seeds(12)
def test_the_shares_that_are_reported_are_those_of_the_tokens(corpora, tmp_path, seed):
    rng, lines = np.random.default_rng(seed), []
    shares, tokens = (rng.random(3) + 0.02).tolist(), float(rng.integers(50, 6000))
    mixed = write_mixture(
        corpora, shares, tmp_path / "mixed", tokens=tokens, most_repeats=1000, seed=seed, report=lines.append
    )
    read, held = (tokens_by_corpus(mixed, corpora, part) for part in ("train", "heldout"))
    assert (sum(read), sum(held)) == (mixed.train.num_tokens, mixed.heldout.num_tokens)
    asked = np.array(shares) / sum(shares)
    for number, corpus in enumerate(corpora):
        lengths = corpus.train.lengths()
        wanted, longest, fewest = tokens * asked[number], lengths.max(), lengths.min()
        assert abs(read[number] - wanted) <= longest / 2 or (read[number] in lengths and wanted < longest)
        assert read[number] >= fewest, "none is left out"
        own, of_share, of_held, times = LINE.search(next(line for line in lines if f"{corpus.place}:" in line)).groups()
        assert float(own) == pytest.approx(100 * read[number] / sum(read), rel=6e-3)
        assert float(of_held) == pytest.approx(100 * held[number] / sum(held), rel=6e-3)
        assert float(times) == pytest.approx(read[number] / lengths.sum(), rel=6e-3)
        off = abs(read[number] / sum(read) / asked[number] - 1)
        assert (of_share is not None) == (off > 0.1)
        assert of_share is None or float(of_share) == pytest.approx(100 * asked[number], rel=6e-3)


def test_whole_numbers_of_times_are_exact(corpora, tmp_path):
    sizes = [corpus.train.num_tokens for corpus in corpora]
    for times in (1, 2, 3):
        mixed = write_mixture(corpora, sizes, tmp_path / f"{times}", tokens=times * sum(sizes))
        assert mixed.train.num_tokens == times * sum(sizes)
