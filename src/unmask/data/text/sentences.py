"""Sentence segmentation.

Input: the text of a document, with paragraphs separated by blank lines. Output: its sentences.

The rules are those of sentencex (Wikimedia). Of the four libraries compared in docs/results.md it is the only one that
is fast enough for a whole corpus and accurate in both English and Chinese. Its English rules also work for Chinese, so
the language need not be detected. It does not know the marks of Khmer and Tibetan. Thai and Lao have none; there,
clauses are divided by blanks, and a few of them are a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sentencex import segment

from unmask.support.scripts import THAI

# sentencex takes quadratic time on a long paragraph that is not ASCII, so it is given this many characters at a time.
# It is also the length at which text without sentence ends, such as a table or encoded data, is cut.
_WINDOW = 4_000

_CLAUSES = 40
"""Minimum number of characters of the clauses that are taken as a sentence of Thai or Lao."""
_END = re.compile(f"(?P<mark>[។៕༎]\\s*|(?<!།)།+\\s+།*\\s*)|(?<=[{THAI}])\\s+(?=[{THAI}])")
"""Where a sentence may end that sentencex does not know: after marks of Khmer and Tibetan; at blanks in Thai and Lao.
Tibetan writes its mark twice at the end of some sentences, with a blank in between or without."""
_UNMARKED = re.compile(f"[{THAI}។៕༎།]")
PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences.

    Args:
        text: the text, in which a blank line ends a paragraph and hence a sentence.

    Returns:
        The sentences in order, stripped of surrounding white space, none of them empty. Every other character of the
        text is in exactly one of them.
    """
    return [sentence for sentence, _ in cut_sentences(text)]


def cut_sentences(text: str) -> list[tuple[str, bool]]:
    """Split a text like `split_sentences`; return each sentence and whether white space precedes it."""
    segments: list[str] = []
    for paragraph in PARAGRAPH_BREAK.split(text):
        start = 0
        while len(paragraph) - start > _WINDOW:
            window = paragraph[start : start + _WINDOW]
            # The last sentence of a window may continue beyond it.
            whole = segment("en", window)[:-1] or [window[: window.rfind(" ") + 1] or window]
            segments += whole
            start += sum(map(len, whole))
        segments += [*segment("en", paragraph[start:]), "\n"]
    if not text.isascii() and _UNMARKED.search(text):
        segments = [part for segmented in segments for part in _parts(segmented)]
    sentences, spaced = [], False
    for raw in segments:
        if sentence := raw.strip():
            sentences.append((sentence, spaced or raw[0].isspace()))
            spaced = False
        spaced = spaced or raw[-1:].isspace()
    return sentences


def _parts(sentence: str) -> Iterator[str]:
    """Yield the sentences of text in which sentencex has found one."""
    start = 0
    for end in _END.finditer(sentence):
        if end["mark"] or end.end() - start >= _CLAUSES:
            yield sentence[start : end.end()]
            start = end.end()
    yield sentence[start:]
