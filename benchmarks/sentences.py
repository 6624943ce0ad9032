"""Which library should cut text into sentences? Speed and quality of four, in English and Chinese.

Input: the hand-made gold files of the tests (a sentence a line, a blank line between paragraphs). For each library that
is installed and each language: boundary F1 (ends of paragraphs do not count, as they are given), how many gold
sentences are found exactly, and MB/s on the gold paragraphs repeated for some seconds.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle, pairwise

from common import HERE, add, parse

Split = Callable[[str], Sequence[str]]

LANGUAGES = {"english": ("en", " "), "chinese": ("zh", "")}
"""Of each language its code, and what is between two sentences."""
SECONDS = 5.0


def sentencex(code: str) -> Split:
    """Wikimedia's rules, in Rust."""
    from sentencex import segment

    return lambda text: segment(code, text)


def blingfire(code: str) -> Split:
    """Microsoft's finite state machines, in C++; one model for all languages."""
    from blingfire import text_to_sentences  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return lambda text: text_to_sentences(text).split("\n")


def pysbd(code: str) -> Split:
    """Port of the Pragmatic Segmenter, in Python."""
    from pysbd import Segmenter  # type: ignore[import-untyped,import-not-found,unused-ignore]

    segment: Split = Segmenter(language=code, clean=False).segment
    return segment


def syntok(code: str) -> Split:
    """Tokens first, in Python; made for English, German and Spanish."""
    from syntok.segmenter import analyze  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return lambda text: [
        "".join(token.spacing + token.value for token in sentence)
        for paragraph in analyze(text)
        for sentence in paragraph
    ]


CANDIDATES: dict[str, Callable[[str], Split]] = {
    "sentencex": sentencex,
    "sentencex (English rules)": lambda code: sentencex("en"),  # what unmask.data.text.sentences does
    "blingfire": blingfire,
    "pysbd": pysbd,
    "syntok": syntok,
}


def ends(sentences: Sequence[str]) -> list[int]:
    """Count, for each sentence, the characters up to its end, without space."""
    lengths = (len("".join(sentence.split())) for sentence in sentences)
    return sorted(set(accumulate(lengths)) - {0})


def quality(split: Split, paragraphs: Sequence[Sequence[str]], joint: str) -> dict[str, float]:
    """Compare with the gold sentences of each paragraph."""
    right = found = exact = 0
    for gold in paragraphs:
        gold_ends, split_ends = ends(gold), ends(split(joint.join(gold)))
        right += len(set(gold_ends[:-1]) & set(split_ends[:-1]))
        found += len(split_ends) + len(gold_ends) - 2
        exact += len(set(pairwise([0, *gold_ends])) & set(pairwise([0, *split_ends])))
    return {"f1": 2 * right / found, "exact": exact, "sentences": sum(map(len, paragraphs))}


def speed(split: Split, texts: Sequence[str]) -> float:
    """Return MB/s."""
    done, start = 0, time.perf_counter()
    for text in cycle(texts):
        split(text)
        done += len(text.encode())
        if (seconds := time.perf_counter() - start) > SECONDS:
            return done / seconds / 1e6
    raise AssertionError


def main() -> None:
    """Measure all that is installed and write the results."""
    parse(__doc__)
    for name, candidate in CANDIDATES.items():
        try:
            version = importlib.metadata.version(name.split()[0])
        except importlib.metadata.PackageNotFoundError:
            continue
        for language, (code, joint) in LANGUAGES.items():
            text = (HERE.parent / "tests" / "files" / "sentences" / f"{language}.txt").read_text(encoding="utf-8")
            gold = [paragraph.split("\n") for paragraph in text.strip().split("\n\n")]
            split, texts = candidate(code), [joint.join(paragraph) for paragraph in gold]
            record = quality(split, gold, joint) | {"megabytes_per_second": speed(split, texts)}
            add("sentences", {"library": f"{name} {version}", "language": language}, record)


if __name__ == "__main__":
    main()
