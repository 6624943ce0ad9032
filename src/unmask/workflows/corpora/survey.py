"""What a corpus consists of, measured in bounded memory: sizes and lengths of all, the rest of samples.

Input: a corpus. Output: a `Survey`. Lengths and equal documents are those of the index, which is read as a whole; what
occurs again is counted in up to `repeats.ENOUGH` tokens; nearly equal documents are sought among decoded ones, and
everything about text (languages, hosts, characters, lines, what rules would drop) is of the texts that the corpus
keeps (`data.corpus.sample`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from unmask.data.cleaning.duplicates import NEAR, find_duplicates
from unmask.data.cleaning.language import SURE, identify_language
from unmask.data.cleaning.pii import PII
from unmask.data.cleaning.rule import Document, RuleTally, Tally, read_tally
from unmask.data.cleaning.rules import WEB
from unmask.data.cleaning.store import Store, StoreWriter
from unmask.data.cleaning.urls import host_of
from unmask.data.corpus.corpus import Corpus, Documents
from unmask.data.corpus.manifest import CLEANING, CorpusManifest
from unmask.data.corpus.repeats import Repeats, count_repeats, equal_documents
from unmask.data.corpus.sample import MOST, SampledText
from unmask.data.labelled.duplicates import SIMILAR
from unmask.data.tokenizers.coverage import count_characters
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.word_level import WORDS
from unmask.support.errors import UserError
from unmask.workflows.corpora.texts import decoded_texts, sampled_texts

COMPARED = 5000
"""Number of documents among which nearly equal ones are sought."""
IDENTIFIED = 2000
"""Number of characters by which the language of a document is identified."""
UNCERTAIN = "uncertain"
"""In place of the language of a text that is in none for sure, such as a heading."""
NGRAM = 5
"""Number of words of the n-grams that are counted."""
SHOWN = 12
"""How many of the most frequent things are listed."""
FEWEST = 3
"""Number of sampled texts that have a line or n-gram in common, at least, if it is listed."""

_WORD = re.compile(r"[^\W\d_]+")
_HALVES = re.compile(r"(?<!\w)([^\W\d_]{2,})[-\u2010\u00ac\u2e17]\s+([^\W\d_]{2,})(?!\w)")
"""Two parts of a word with a hyphen, one of those of Fraktur, or what scanners write for them, between them."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the training documents in tokens.

    Attributes:
        shortest, median, mean, longest: of all documents; the median is that of a sample in large corpora.
        powers: number of documents with at least 2^n tokens and fewer than 2^(n + 1), by n.
    """

    shortest: int
    median: float
    mean: float
    longest: int
    powers: list[int]


@dataclass(frozen=True)
class EqualDocuments:
    """Documents that others equal.

    Attributes:
        equal: share of all training documents that equal an earlier one.
        sample: share of the different documents by which that is estimated.
        compared: number of documents among which nearly equal ones were sought.
        near: number of these that nearly equal another one of them, without those that equal one.
    """

    equal: float
    sample: float
    compared: int
    near: int


@dataclass(frozen=True)
class Missing:
    """Characters of the sampled texts that the vocabulary does not cover.

    Attributes:
        share: their share of all characters but spaces.
        characters: the most frequent ones, and how often each occurs.
    """

    share: float
    characters: list[tuple[str, int]]


@dataclass(frozen=True)
class Divided:
    """Words of the sampled texts that a hyphen divides where a line ended, as in scanned books: "encod- ing".

    Counted are those that occur undivided, too, so that "pre- and postwar" is none, and that there are more.

    Attributes:
        count: their number.
        words: number of all words.
        frequent: the most frequent ones as they are written, and how often each occurs.
    """

    count: int
    words: int
    frequent: list[tuple[str, int]]


@dataclass(frozen=True)
class Survey:
    """What a corpus consists of; see the module.

    Attributes:
        name: its directory.
        manifest: its manifest.
        frequent_token: the most frequent token.
        lengths: lengths of the training documents.
        repeats: what occurs again.
        duplicates: equal and nearly equal documents.
        tally: what cleaning dropped.
        texts: the sampled texts.
        are_decoded: whether these are decoded tokens, of which case, lines and addresses are lost.
        languages: number of sampled texts by language, also by `UNCERTAIN`.
        no_languages: why the languages are not known; "" if they are.
        hosts: number of sampled texts of the most frequent hosts, and of all hosts.
        num_hosts: number of hosts.
        located: number of sampled texts with an address.
        missing: characters that the vocabulary does not cover; None: not known, as texts are decoded, or it has whole
            words, not characters.
        divided: words that a hyphen divides.
        lines, ngrams: the lines and n-grams of words that are in most of the sampled texts.
        rules: what the rules for single pages in English, and for personal data, would do to the sampled texts.
    """

    name: str
    manifest: CorpusManifest
    frequent_token: str
    lengths: Lengths
    repeats: Repeats
    duplicates: EqualDocuments
    tally: Tally
    texts: list[SampledText]
    are_decoded: bool
    languages: list[tuple[str, int]]
    no_languages: str
    hosts: list[tuple[str, int]]
    num_hosts: int
    located: int
    missing: Missing | None
    divided: Divided
    lines: list[tuple[str, int]]
    ngrams: list[tuple[str, int]]
    rules: dict[str, RuleTally]


def survey(corpus: Corpus, *, seed: int = 0) -> Survey:
    """Measure what a corpus consists of.

    Args:
        corpus: the corpus.
        seed: of the choice of documents.

    Raises:
        UserError: a file is damaged (the message names it).
    """
    sample = sampled_texts(corpus, MOST, seed)
    texts = [document.text for document in sample.texts]
    languages, no_languages = _languages(texts)
    hosts = Counter(host for document in sample.texts if (host := host_of(document.url)))
    documents = [Document(text) for text in texts]
    return Survey(
        name=str(corpus.place),
        manifest=corpus.manifest,
        frequent_token=corpus.tokenizer.token(corpus.manifest.most_frequent_token.id),
        lengths=_lengths(corpus.train),
        repeats=count_repeats(corpus.train, corpus.tokenizer),
        duplicates=_duplicates(corpus, seed),
        tally=read_tally(corpus.directory / CLEANING),
        texts=sample.texts,
        are_decoded=sample.are_decoded,
        languages=languages,
        no_languages=no_languages,
        hosts=hosts.most_common(SHOWN),
        num_hosts=len(hosts),
        located=hosts.total(),
        missing=None if sample.are_decoded or corpus.tokenizer.kind is WORDS else _missing(texts, corpus.tokenizer),
        divided=_divided(texts),
        lines=[] if sample.are_decoded else _in_most([document.lines for document in documents]),
        ngrams=_in_most([_ngrams(document.words) for document in documents]),
        rules={} if sample.are_decoded else _rules(documents),
    )


def _lengths(documents: Documents) -> Lengths:
    """Read the lengths of documents from the index, a shard at a time."""
    powers, shortest, longest, medians = np.zeros(64, np.int64), 0, 0, []
    every = 1 + len(documents) // 10_000_000
    for tokens, _, _ in documents.index():
        exponents = np.frexp(tokens.astype(float))[1] - 1
        powers += np.bincount(exponents, minlength=64)
        shortest = min(shortest or int(tokens.min()), int(tokens.min()))
        longest = max(longest, int(tokens.max()))
        medians.append(tokens[::every].astype(np.int32))
    return Lengths(
        shortest,
        float(np.median(np.concatenate(medians))),
        documents.num_tokens / max(1, len(documents)),
        longest,
        np.trim_zeros(powers, "b").tolist(),
    )


def _duplicates(corpus: Corpus, seed: int) -> EqualDocuments:
    counts = equal_documents(corpus.train)
    with TemporaryDirectory() as name:
        folder = Path(name)
        with StoreWriter(folder, 0, frozenset(("identities", "bands"))) as writer:
            texts = decoded_texts(corpus, COMPARED, seed)
            for text in texts:
                writer.add(text)
        found = find_duplicates(Store(folder, 1), similarity=SIMILAR)
    near = int((found == NEAR).sum())
    return EqualDocuments(counts.repeated, counts.share, len(texts), near)


def _languages(texts: Sequence[str]) -> tuple[list[tuple[str, int]], str]:
    """Return the number of texts by language, and why they are not known."""
    try:
        counts = Counter(map(_language, texts))
    except UserError as error:
        return [], error.message
    return counts.most_common(), ""


def _language(text: str) -> str:
    language, probability = identify_language(text[:IDENTIFIED])
    return language if probability >= SURE else UNCERTAIN


def _missing(texts: Sequence[str], tokenizer: Tokenizer) -> Missing:
    """Return the characters of which the vocabulary encodes a word of one as unknown."""
    counts = {character: count for character, count in count_characters(texts).items() if not character.isspace()}
    encoded = tokenizer.encode_many(list(counts))
    missing = [
        (character, count)
        for (character, count), ids in zip(counts.items(), encoded, strict=True)
        if (ids == tokenizer.unk).any()
    ]
    missing.sort(key=lambda item: -item[1])
    return Missing(sum(count for _, count in missing) / max(1, sum(counts.values())), missing[: 2 * SHOWN])


def _divided(texts: Sequence[str]) -> Divided:
    """Count the words that are divided and occur undivided, too."""
    words = Counter(word.lower() for text in texts for word in _WORD.findall(text))
    halves = Counter(match.groups() for text in texts for match in _HALVES.finditer(text))
    counts = {
        f"{first}- {second}": count
        for (first, second), count in halves.most_common()
        if not second[0].isupper() and f"{first}{second}".lower() in words
    }
    return Divided(sum(counts.values()), words.total(), list(counts.items())[:SHOWN])


def _ngrams(words: Sequence[str]) -> list[str]:
    lowered = [word.lower() for word in words]
    return [" ".join(lowered[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)]


def _in_most(parts: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """Return the parts of texts that are in most texts, with the number of texts; none that overlap."""
    counts = Counter(part for of_text in parts for part in dict.fromkeys(of_text))
    chosen: dict[str, int] = {}
    for part, count in counts.most_common(SHOWN * NGRAM * 4):
        if count < FEWEST or len(chosen) == SHOWN:
            break
        if not any(_overlap(part.split(), other.split()) for other in chosen):
            chosen[part] = count
    return list(chosen.items())


def _overlap(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether one n-gram begins with words with which the other ends, as do those of one passage."""
    shortest = min(len(first), len(second))
    return shortest == NGRAM and any(
        first[-size:] == second[:size] or second[-size:] == first[:size] for size in range(2, NGRAM)
    )


def _rules(documents: Sequence[Document]) -> dict[str, RuleTally]:
    """Judge texts by each rule alone."""
    rules = {name: getattr(WEB, name) for name in ("gopher_repetition", "gopher_quality", "c4", "fineweb")}
    tallies: dict[str, RuleTally] = {}
    for name, rule in {**rules, "pii": PII()}.items():
        judge, tally = rule.build(), tallies.setdefault(name, RuleTally())
        for document in documents:
            verdict = judge(document)
            tally.judged += 1
            if verdict.dropped:
                tally.drop(verdict.dropped, document.text)
            elif verdict.changes:
                tally.changed += 1
                for reason, number in verdict.changes.items():
                    tally.add(reason, document.text, number)
    return tallies
