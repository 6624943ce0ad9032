"""Exact match and F1 of answers, times 100, as computed by the official scripts of SQuAD, CMRC 2018, CoQA and QuAC.

Input: predicted answers, "" for no answer, and the gold answers of each question, empty if it has no answer.

**SQuAD** 1.1 and 2.0 (Rajpurkar et al. 2016, section 6.1; 2018, section 6): case, ASCII punctuation and English
articles are ignored, F1 is over words in any order. **CMRC 2018** (Cui et al. 2019, section 3): punctuation is ignored,
F1 is based on the longest common run of Chinese characters and words in other scripts. The best of several gold answers
counts. The tests compare both with independent implementations. We differ from CMRC's script, which splits non-Chinese
text with NLTK's tokenizer: here a word extends to the next space or ASCII punctuation mark (periods and commas may be
inside), and each such mark is a token. Answers in Japanese, Thai, Lao, Burmese and Khmer have no spaces either: they
are scored as SQuAD's, with each letter of such a script as a word.

**HotpotQA** (hotpot_evaluate_v1.py; Yang et al. 2018) also has supporting sentences: exact match, F1, precision and
recall of answers, of support, and of both together. Those of answers are SQuAD's, but an answer that is "yes", "no" or
"noanswer" has words in common only with itself. The joint precision and recall of a question are the products of both,
and so is the joint exact match. A missing answer, or missing support, counts 0.

In **dialogues** about a passage, F1 is that of words, as in SQuAD 2.0; one of several
gold answers is left out in turn, as humans can be scored only with the others. A missing prediction counts 0.

**CoQA** (evaluate-v1.0.py; Reddy et al. 2019). Output: exact match and F1, of all questions and of those of each
domain. The score is the mean, over the gold answers left out, of the best match with the others.

**QuAC** (scorer.py on quac.ai; Choi et al. 2018). Input: also dialogue acts. Output: F1 and the share of questions
(HEQ-Q) and of dialogues (HEQ-D) for which the model is as good as humans are. If at least half of the gold answers are
CANNOTANSWER, it is the only one; otherwise it is none of them. Questions on which humans reach less than 0.4 are left
out of everything but the "unfiltered" F1, except those without a prediction, which count 0.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure
from unmask.support.scripts import IDEOGRAPHS, KANA, OF_CLAUSES, UNSPACED

Scorer = Literal["SQuAD", "CMRC 2018", "SQuAD by characters"]
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)
_IDEOGRAPHS = re.compile(f"[{IDEOGRAPHS}]")
_OTHERS = re.compile(f"[{OF_CLAUSES}{KANA}]")
"""Letters of the other scripts without spaces."""
_MIN_OTHERS = 0.1
"""Minimum share of them in all letters without spaces, from which answers are not Chinese; Japanese has both."""
_LETTER = re.compile(f"[{UNSPACED}]|[^\\s{UNSPACED}]+")
_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Punctuation according to CMRC's script; its list also has "……", which never matches a single character."""
_LETTERS = r"[^\s!-/:-@\[-`{-~\u4e00-\u9fa5]+"
_WORD = re.compile(rf"[\u4e00-\u9fa5]|{_LETTERS}(?:[.,]{_LETTERS})*|\S")
Fact = tuple[str, int]
"""A sentence: the title of its paragraph and its number in it, from 0."""
PARTS = ("", "support_", "joint_")
KINDS = ("exact_match", "f1", "precision", "recall")
NAMES = tuple(part + kind for part in PARTS for kind in KINDS)
CLOSED = ("yes", "no", "noanswer")
"""Answers that have no words in common with others."""
IN_DOMAIN = {
    "mctest": "children_stories",
    "gutenberg": "literature",
    "race": "mid-high_school",
    "cnn": "news",
    "wikipedia": "wikipedia",
}
"""Names of the domains that CoQA has training data of, by source."""
OUT_DOMAIN = {"reddit": "reddit", "science": "science"}
"""Names of the others."""
CANNOT = "CANNOTANSWER"
"""The answer of questions without one."""
MIN_HUMAN_F1 = 0.4
"""Smallest F1 of humans of the questions that count."""


def choose_scorer(gold: Sequence[Sequence[str]]) -> Scorer:
    """Return SQuAD's scorer, unless most characters of the gold answers are of scripts that have no spaces."""
    text = "".join("".join(answers) for answers in gold)
    num_visible = len(text) - sum(map(str.isspace, text))
    ideographs, others = (len(letters.findall(text)) for letters in (_IDEOGRAPHS, _OTHERS))
    if 2 * (ideographs + others) <= num_visible:
        return "SQuAD"
    return "CMRC 2018" if others < _MIN_OTHERS * (ideographs + others) else "SQuAD by characters"


def example_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str], scorer: Scorer) -> np.ndarray:
    """Return exact match and F1 of each example, from 0 to 1, (examples, 2).

    If a question has no answer, only "" is correct. The rules of SQuAD 2.0 apply to all examples if there is at least
    one such question.
    """
    version_2 = not all(gold)
    words = _LETTER.findall if scorer == "SQuAD by characters" else str.split
    score = _cmrc if scorer == "CMRC 2018" else partial(_squad, words=words, version_2=version_2)
    rows = []
    for answers, prediction in zip(gold, predicted, strict=True):
        if version_2 and scorer != "CMRC 2018":  # answers that consist only of articles and punctuation are ignored
            answers = [answer for answer in answers if normalize(answer)]
        rows.append(np.max([score(answer, prediction) for answer in answers or ("",)], axis=0))
    return np.array(rows, float).reshape(len(rows), 2)


def measure(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> Measure:
    """Return a function from examples to metrics."""
    values = 100 * example_scores(gold, predicted, choose_scorer(gold))  # (examples, 2)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        exact, f1 = values[examples].mean(0)
        return {"exact_match": float(exact), "f1": float(f1)}

    return chosen


def normalize(text: str) -> str:
    """Return a text as SQuAD's script compares it: without case, ASCII punctuation and English articles."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def overlap(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the F1 of the words of an answer, in any order; 0 if they share none."""
    shared = sum((Counter(gold) & Counter(predicted)).values())
    return _f1(shared, len(gold), len(predicted))


class Solution(NamedTuple):
    """An answer and the sentences that support it; None: missing."""

    answer: str | None
    support: Collection[Fact] | None


def question_scores(gold: Solution, predicted: Solution) -> list[float]:
    """Return the metrics of a question in the order of `NAMES`, from 0 to 1."""
    answer = support = joint = (0.0, 0.0, 0.0)
    if predicted.answer is not None:
        answer = _answer(gold.answer or "", predicted.answer)
    if predicted.support is not None:
        support = _support(set(gold.support or ()), set(predicted.support))
    if predicted.answer is not None and predicted.support is not None:
        joint = tuple(scores * other for scores, other in zip(answer, support, strict=True))  # type: ignore[assignment]
    return [value for scores in (answer, support, joint) for value in _row(*scores)]


def measure_hotpotqa(gold: Sequence[Solution], predicted: Sequence[Solution]) -> Measure:
    """Return a function from questions to metrics."""
    rows = [question_scores(*pair) for pair in zip(gold, predicted, strict=True)]
    values = 100 * np.array(rows, float).reshape(-1, len(NAMES))  # (questions, metrics)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        return dict(zip(NAMES, values[examples].mean(0).tolist(), strict=True))

    return chosen


def support_f1(gold: Collection[Fact], predicted: Collection[Fact]) -> float:
    """Return the F1 of the supporting sentences of a question, from 0 to 1."""
    return _row(*_support(set(gold), set(predicted)))[1]


def _squad(gold: str, predicted: str, words: Callable[[str], list[str]], *, version_2: bool) -> tuple[bool, float]:
    """In 2.0, if either answer is empty, F1 is 1 if both are and 0 otherwise."""
    gold, predicted = normalize(gold), normalize(predicted)
    exact = gold == predicted
    if version_2 and not (gold and predicted):
        return exact, float(exact)
    return exact, overlap(words(gold), words(predicted))


def _cmrc(gold: str, predicted: str) -> tuple[bool, float]:
    if not gold or not predicted:  # the script does not handle questions without an answer
        return gold == predicted, float(gold == predicted)
    gold, predicted = (text.lower().strip().translate(_MARKS) for text in (gold, predicted))
    gold_words, predicted_words = _WORD.findall(gold), _WORD.findall(predicted)
    return gold == predicted, _f1(_longest_run(gold_words, predicted_words), len(gold_words), len(predicted_words))


def _longest_run(first: list[str], other: list[str]) -> int:
    """Return the length of the longest common run of tokens."""
    longest, previous = 0, [0] * (len(other) + 1)
    for token in first:
        lengths = [0] * (len(other) + 1)  # of the runs that end at each token of `other`
        for index, candidate in enumerate(other, start=1):
            if token == candidate:
                lengths[index] = previous[index - 1] + 1
        longest, previous = max(longest, *lengths), lengths
    return longest


def _f1(shared: int, gold: int, predicted: int) -> float:
    """Return F1 in the official scripts' order of operations, as QuAC's compares such numbers for equality."""
    if not shared:
        return 0.0
    precision, recall = shared / predicted, shared / gold
    return (2 * precision * recall) / (precision + recall)


def _row(exact: float, precision: float, recall: float) -> tuple[float, float, float, float]:
    """Return exact match, F1, precision and recall."""
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return exact, f1, precision, recall


def _answer(gold: str, predicted: str) -> tuple[float, float, float]:
    """Return exact match, precision and recall of an answer."""
    gold, predicted = normalize(gold), normalize(predicted)
    exact = float(gold == predicted)
    if not exact and (gold in CLOSED or predicted in CLOSED):
        return 0.0, 0.0, 0.0
    words, guessed = gold.split(), predicted.split()
    shared = sum((Counter(words) & Counter(guessed)).values())
    return (exact, shared / len(guessed), shared / len(words)) if shared else (exact, 0.0, 0.0)


def _support(gold: set[Fact], predicted: set[Fact]) -> tuple[float, float, float]:
    """Return exact match, precision and recall of supporting sentences."""
    shared = len(gold & predicted)
    return float(gold == predicted), shared / len(predicted) if predicted else 0.0, shared / len(gold) if gold else 0.0


def turn_scores(references: Sequence[str], predicted: str | None) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, from 0 to 1; None is a missing one."""
    if predicted is None:
        return 0.0, 0.0
    scores = [_exact_and_f1(gold, predicted) for gold in references]
    folds = [[*scores[:number], *scores[number + 1 :]] for number in range(len(scores))]
    if len(scores) == 1:
        folds = [scores]
    exact = sum(max(exact_match for exact_match, _ in fold) for fold in folds) / len(folds)
    return exact, sum(max(f1 for _, f1 in fold) for fold in folds) / len(folds)


def measure_coqa(gold: Sequence[Sequence[str]], predicted: Sequence[str | None]) -> Measure:
    """Return a function from questions to metrics."""
    pairs = zip(gold, predicted, strict=True)
    values = 100 * np.array([turn_scores(*pair) for pair in pairs], float).reshape(-1, 2)  # (questions, 2)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        exact, f1 = values[examples].mean(0)
        return {"f1": float(f1), "exact_match": float(exact)}

    return chosen


def by_domain(sources: Sequence[str], of: Measure) -> dict[str, dict[str, float]]:
    """Return the metrics of the questions of each domain that occurs, and of those in and out of domain.

    Args:
        sources: the source of each question's story.
        of: the metrics of a selection of questions.
    """
    names = {**IN_DOMAIN, **OUT_DOMAIN}
    parts = {names.get(source, source): [source] for source in dict.fromkeys(sources) if source}
    parts |= {"in_domain": list(IN_DOMAIN), "out_domain": list(OUT_DOMAIN)}
    selections = {name: np.flatnonzero(np.isin(sources, part)) for name, part in parts.items()}
    return {name: of(examples) for name, examples in selections.items() if len(examples)}


class Gold(NamedTuple):
    """The gold answers of a question.

    Attributes:
        dialogue: the id of its dialogue.
        references: the texts of its answers.
        yesno, followup: its dialogue acts.
    """

    dialogue: str
    references: tuple[str, ...]
    yesno: str
    followup: str


class Guess(NamedTuple):
    """A prediction: a span of the passage or CANNOTANSWER, and dialogue acts."""

    span: str
    yesno: str
    followup: str


def settle_references(references: Sequence[str]) -> list[str]:
    """Return the gold answers that count: CANNOTANSWER alone, or those that are not."""
    answers = [text for text in references if text != CANNOT]
    return answers if 2 * len(answers) > len(references) else [CANNOT]


def human_f1(references: Sequence[str]) -> float:
    """Return the mean F1 of each of the gold answers that count with the best of the others; 1 for a single one."""
    if len(references) == 1:
        return 1.0
    return sum(
        max(_word_f1(other, reference) for other in others)
        for reference, others in zip(references, _others(references), strict=True)
    ) / len(references)


def answer_f1(references: Sequence[str], span: str) -> float:
    """Return the mean F1 of a prediction with the best of all gold answers that count but one."""
    if len(references) == 1:
        return _span_f1(references[0], span)
    best = [max(_span_f1(other, span) for other in others) for others in _others(references)]
    return sum(best) / len(best)


def measure_quac(gold: Sequence[Gold], predicted: Sequence[Guess | None]) -> Measure:
    """Return a function from questions to metrics; None is a missing prediction.

    In a selection of questions, a dialogue counts by the share of its questions that are selected.
    """
    settled = [settle_references(question.references) for question in gold]
    human = np.array([human_f1(texts) for texts in settled])
    pairs = list(zip(gold, predicted, strict=True))
    f1 = np.array(
        [
            0.0 if guess is None else answer_f1(texts, guess.span)
            for texts, guess in zip(settled, predicted, strict=True)
        ]
    )
    there = np.array([guess is not None for guess in predicted], bool)
    yesno = np.array([guess is not None and guess.yesno == question.yesno for question, guess in pairs])
    followup = np.array([guess is not None and guess.followup == question.followup for question, guess in pairs])
    none = np.array([texts == [CANNOT] for texts in settled])
    agreed = human >= MIN_HUMAN_F1
    counted, good = agreed | ~there, there & (f1 >= human)
    names = {name: number for number, name in enumerate(dict.fromkeys(question.dialogue for question in gold))}
    dialogue = np.array([names[question.dialogue] for question in gold], np.int64)
    sizes = np.bincount(dialogue, minlength=len(names))

    def chosen(examples: np.ndarray) -> dict[str, float]:
        counting = examples[counted[examples]]
        share = np.bincount(dialogue[examples], minlength=len(names)) / sizes  # (dialogues,)
        bad = np.bincount(dialogue[examples], (counted & ~good)[examples], minlength=len(names))
        return {
            "f1": _mean(f1[counting]),
            "heq_q": _mean(good[counting]),
            "heq_d": 100 * float(share[bad == 0].sum() / share.sum()),
            "yes_no": _mean(yesno[counting]),
            "followup": _mean(followup[counting]),
            "unanswerable": _mean(f1[counting[none[counting]]]),
            "unfiltered_f1": _mean(f1[examples]),
            "human_f1": _mean(human[examples[agreed[examples]]]),
        }

    return chosen


def _exact_and_f1(gold: str, predicted: str) -> tuple[float, float]:
    gold, predicted = normalize(gold), normalize(predicted)
    exact = float(gold == predicted)
    return exact, overlap(gold.split(), predicted.split()) if gold and predicted else exact


def _others(references: Sequence[str]) -> list[list[str]]:
    """Return for each of several gold answers the others."""
    return [[*references[:number], *references[number + 1 :]] for number in range(len(references))]


def _span_f1(gold: str, span: str) -> float:
    return float(span == CANNOT) if gold == CANNOT else _word_f1(gold, span)


def _word_f1(gold: str, span: str) -> float:
    return overlap(normalize(gold).split(), normalize(span).split())


def _mean(values: np.ndarray) -> float:
    return 100 * float(values.mean()) if len(values) else 0.0
