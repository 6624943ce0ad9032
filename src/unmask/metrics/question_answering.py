"""Exact match and F1 of answers, times 100, as the official scripts of SQuAD and of CMRC 2018 give them.

In: predicted answers, "" where there is none, and for each the gold ones, none where the question has no answer.

SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, section 6.1; 2018, section 6): without capitals, ASCII punctuation and English
articles, F1 over words in any order. CMRC 2018 (Cui et al. 2019, section 3): without punctuation, F1 by the longest run
that both share of Chinese characters and of words in other scripts. Of several gold answers the best counts. Tests hold
both against definitions of their own. We differ where CMRC's script cuts non-Chinese text with NLTK's tokenizer: here a
word runs to the next space or ASCII mark (points and commas may stand inside), and each such mark is a token.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from unmask.metrics.intervals import Measure

Scorer = Literal["SQuAD", "CMRC 2018"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)
_IDEOGRAPHS = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""What CMRC's script takes for punctuation; its list has "……" too, which no single character equals."""
_LETTERS = r"[^\s!-/:-@\[-`{-~\u4e00-\u9fa5]+"
_WORD = re.compile(rf"[\u4e00-\u9fa5]|{_LETTERS}(?:[.,]{_LETTERS})*|\S")


def choose_scorer(gold: Sequence[Sequence[str]]) -> Scorer:
    """Return CMRC's rules where most characters of the gold answers are Chinese, else SQuAD's."""
    text = "".join("".join(answers) for answers in gold)
    num_visible = len(text) - sum(map(str.isspace, text))
    return "CMRC 2018" if 2 * len(_IDEOGRAPHS.findall(text)) > num_visible else "SQuAD"


def example_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str], scorer: Scorer) -> np.ndarray:
    """Return exact match and F1 of each example, 0 to 1: (examples, 2).

    Where a question has no answer, "" is right and all else wrong; the rules of SQuAD 2.0 hold for all examples as
    soon as there is one such question.
    """
    version_2 = not all(gold)
    score = _cmrc if scorer == "CMRC 2018" else _squad_2 if version_2 else _squad_1
    rows = []
    for answers, said in zip(gold, predicted, strict=True):
        if score is _squad_2:  # which leaves out what is nothing but articles and punctuation
            answers = [answer for answer in answers if _normalise(answer)]
        rows.append(np.max([score(answer, said) for answer in answers or ("",)], axis=0))
    return np.array(rows, float).reshape(len(rows), 2)


def measure(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> Measure:
    """Return the metrics of any selection of examples."""
    values = 100 * example_scores(gold, predicted, choose_scorer(gold))  # (examples, 2)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        exact, f1 = values[examples].mean(0)
        return {"exact_match": float(exact), "f1": float(f1)}

    return chosen


def _squad_1(gold: str, said: str) -> tuple[bool, float]:
    true, guess = _normalise(gold), _normalise(said)
    return true == guess, _overlap(true.split(), guess.split())


def _squad_2(gold: str, said: str) -> tuple[bool, float]:
    """As 1.1, but where either is empty, F1 is whether both are."""
    true, guess = _normalise(gold), _normalise(said)
    return true == guess, _overlap(true.split(), guess.split()) if true and guess else float(true == guess)


def _normalise(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def _overlap(true: list[str], guess: list[str]) -> float:
    shared = sum((Counter(true) & Counter(guess)).values())
    return _f1(shared, len(true), len(guess))


def _cmrc(gold: str, said: str) -> tuple[bool, float]:
    if not gold or not said:  # that a question has no answer is no case of the script
        return gold == said, float(gold == said)
    true, guess = (text.lower().strip().translate(_MARKS) for text in (gold, said))
    one, other = _WORD.findall(true), _WORD.findall(guess)
    return true == guess, _f1(_longest_run(one, other), len(one), len(other))


def _longest_run(one: list[str], other: list[str]) -> int:
    """Return the length of the longest run of tokens that both have."""
    longest, before = 0, [0] * (len(other) + 1)
    for token in one:
        here = [0] * (len(other) + 1)  # by the token of `other` at which the run ends
        for place, again in enumerate(other, start=1):
            if token == again:
                here[place] = before[place - 1] + 1
        longest, before = max(longest, *here), here
    return longest


def _f1(shared: int, true: int, guess: int) -> float:
    return 2 * shared / (true + guess) if shared else 0.0
