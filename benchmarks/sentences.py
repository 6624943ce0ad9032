"""Which library should cut text into sentences? Speed and quality of four, in English and Chinese.

Input: the hand-made gold files of the tests (a sentence a line, a blank line between paragraphs). Output: a JSON file
with, for each installed library and each language, boundary precision, recall and F1 (ends of paragraphs do not count,
as they are given), how many gold sentences are found exactly, and MB/s on the gold paragraphs repeated.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, cycle, islice, pairwise

from common import HERE, add, parse

Split = Callable[[str], Sequence[str]]

JOINTS = {"english": " ", "chinese": ""}
CODES = {"english": "en", "chinese": "zh"}


def sentencex(language: str) -> Split:
    """Wikimedia's rules, in Rust."""
    from sentencex import segment

    return lambda text: segment(CODES[language], text)


def sentencex_english_rules(language: str) -> Split:
    """The same, without naming the language: what `unmask.data.text.sentences` does."""
    return sentencex("english")


def blingfire(language: str) -> Split:
    """Microsoft's finite state machines, in C++; one model for all languages."""
    from blingfire import text_to_sentences  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return lambda text: text_to_sentences(text).split("\n")


def pysbd(language: str) -> Split:
    """Port of the Pragmatic Segmenter, in Python."""
    from pysbd import Segmenter  # type: ignore[import-untyped,import-not-found,unused-ignore]

    segment: Split = Segmenter(language=CODES[language], clean=False).segment
    return segment


def syntok(language: str) -> Split:
    """Tokens first, in Python; made for English, German and Spanish."""
    from syntok.segmenter import analyze  # type: ignore[import-untyped,import-not-found,unused-ignore]

    def split(text: str) -> list[str]:
        sentences = (sentence for paragraph in analyze(text) for sentence in paragraph)
        return ["".join(token.spacing + token.value for token in sentence) for sentence in sentences]

    return split


CANDIDATES = {
    "sentencex": sentencex,
    "sentencex (English rules)": sentencex_english_rules,
    "blingfire": blingfire,
    "pysbd": pysbd,
    "syntok": syntok,
}


def read_gold(language: str) -> list[list[str]]:
    """Read the sentences of each paragraph."""
    text = (HERE.parent / "tests" / "files" / "sentences" / f"{language}.txt").read_text(encoding="utf-8")
    return [paragraph.split("\n") for paragraph in text.strip().split("\n\n")]


def ends(sentences: Sequence[str]) -> list[int]:
    """Count, for each sentence, the characters up to its end, without space."""
    lengths = (len("".join(sentence.split())) for sentence in sentences)
    return sorted(set(accumulate(lengths)) - {0})


def quality(split: Split, language: str) -> dict[str, float]:
    """Compare with the gold sentences."""
    right = found = expected = exact = total = 0
    for gold in read_gold(language):
        gold_ends, split_ends = ends(gold), ends(split(JOINTS[language].join(gold)))
        right += len(set(gold_ends[:-1]) & set(split_ends[:-1]))
        expected += len(gold_ends) - 1
        found += len(split_ends) - 1
        exact += len(set(pairwise([0, *gold_ends])) & set(pairwise([0, *split_ends])))
        total += len(gold)
    return {
        "precision": right / max(1, found),
        "recall": right / expected,
        "f1": 2 * right / (found + expected),
        "exact": exact,
        "sentences": total,
    }


def paragraphs(language: str, megabytes: float) -> Iterator[str]:
    """Repeat the gold paragraphs."""
    texts = [JOINTS[language].join(paragraph) for paragraph in read_gold(language)]
    size = sum(len(text.encode()) for text in texts)
    return islice(cycle(texts), max(1, round(megabytes * 1e6 / size)) * len(texts))


def speed(split: Split, language: str, megabytes: float) -> dict[str, float]:
    """Measure MB/s, for at most some seconds."""
    done, start = 0, time.perf_counter()
    for text in paragraphs(language, megabytes):
        split(text)
        done += len(text.encode())
        if time.perf_counter() - start > 5:
            break
    seconds = time.perf_counter() - start
    return {"bytes": done, "seconds": seconds, "megabytes_per_second": done / seconds / 1e6}


def main() -> None:
    """Measure all that is installed and write the results."""
    options = parse(__doc__, megabytes=2.0)
    for name, candidate in CANDIDATES.items():
        try:
            version = importlib.metadata.version(name.split()[0])
        except importlib.metadata.PackageNotFoundError:
            continue
        for language in JOINTS:
            split = candidate(language)
            key = {"library": f"{name} {version}", "language": language}
            add("sentences", key, quality(split, language) | speed(split, language, options.megabytes))


if __name__ == "__main__":
    main()
