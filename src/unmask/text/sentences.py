"""Cut a text into sentences.

In: the text of a document, paragraphs divided by blank lines. Out: its sentences.

The rules are those of sentencex (Wikimedia). Of four libraries (benchmarks/sentences.py) it alone is fast enough to see
every byte of a corpus and right in English and in Chinese; and its English rules serve Chinese too, so that nothing
has to guess the language.
"""

from __future__ import annotations

import re

from sentencex import segment

# sentencex takes quadratic time on a long paragraph that is not ASCII, so it sees this many characters at once. It is
# also the length at which a "sentence" is cut that is none: a table, or something encoded.
_WINDOW = 4_000

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


def split_sentences(text: str) -> list[str]:
    """Cut a text into sentences.

    Args:
        text: a blank line ends a paragraph, and so a sentence.

    Returns:
        The sentences in order, without the space around them, none empty. Every other character of the text is in
        exactly one of them.
    """
    return [sentence for sentence, _ in cut_sentences(text)]


def cut_sentences(text: str) -> list[tuple[str, bool]]:
    """Cut a text as `split_sentences` does, and say of each sentence whether white space stands before it."""
    pieces: list[str] = []
    for paragraph in _PARAGRAPH_BREAK.split(text):
        start = 0
        while len(paragraph) - start > _WINDOW:
            window = paragraph[start : start + _WINDOW]
            # The last sentence of a window may go on behind it.
            whole = segment("en", window)[:-1] or [window[: window.rfind(" ") + 1] or window]
            pieces += whole
            start += sum(map(len, whole))
        pieces += [*segment("en", paragraph[start:]), "\n"]
    found, spaced = [], False
    for piece in pieces:
        if sentence := piece.strip():
            found.append((sentence, spaced or piece[0].isspace()))
            spaced = False
        spaced = spaced or piece[-1:].isspace()
    return found
