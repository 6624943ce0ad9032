"""Metrics of answers agree with independent implementations of the official scripts' definitions."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.metrics.question_answering import choose_scorer, example_scores, measure

PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def words(text):
    """Return the words of a text by SQuAD's rules: lower case, no ASCII punctuation, no articles."""
    text = "".join(
        " " if character.isspace() else character for character in text.lower() if character not in PUNCTUATION
    )
    return re.sub(r"\b(?:a|an|the)\b", " ", text).split()


def squad(golds, predicted, *, version):
    """Return the best exact match and the best F1 by the definition of SQuAD 1.1 or 2.0."""
    guess = words(predicted)
    if version == 2:
        golds = [gold for gold in golds if words(gold)] or [""]
    exact, best = 0.0, 0.0
    for gold in golds:
        true, left, common = words(gold), list(guess), 0
        exact = max(exact, float(true == guess))
        for word in true:
            if word in left:
                left.remove(word)
                common += 1
        if version == 2 and (not true or not guess):
            best = max(best, float(true == guess))
        elif common:
            precision, recall = common / len(guess), common / len(true)
            best = max(best, 2 * precision * recall / (precision + recall))
    return exact, best


SQUAD = [
    (["Denver Broncos"], "the Denver Broncos!"),
    (["Denver Broncos", "The Denver Broncos"], "Broncos"),
    (["a b b c"], "b b b"),
    (["b a"], "B, b"),
    (["theatre an"], "theatre"),
    (["The"], "the"),
    (["The"], ""),
    (["The", "dog"], ""),
    (["the", "dog"], "an"),
    (["1,000"], "1000"),
    (["don't"], "dont"),
    (["a-b"], "ab"),
    (["the-cat"], "thecat"),
    (["Straße"], "strasse"),
    (["“Paris”"], "Paris"),
    (["x\u00a0y"], "x y"),
    (["cat dog"], "dog cat"),
    (["cat", "dog"], "bird"),
    (["5 and 6", "5", "6"], "6"),
]


@pytest.mark.parametrize(("golds", "predicted"), SQUAD)
def test_squad(golds, predicted):
    assert example_scores([golds], [predicted], "SQuAD")[0] == pytest.approx(squad(golds, predicted, version=1))
    # one question without an answer makes the rules of 2.0 apply to all
    found = example_scores([golds, ()], [predicted, "x"], "SQuAD")
    assert found[0] == pytest.approx(squad(golds, predicted, version=2))
    assert found[1].tolist() == [0, 0]


def test_the_versions_differ_if_normalization_leaves_nothing():
    assert squad(["The"], "the", version=1) == (1, 0)
    assert squad(["The"], "the", version=2) == (1, 1)
    assert squad(["the", "dog"], "an", version=1) == (1, 0)
    assert squad(["the", "dog"], "an", version=2) == (0, 0)


WORDS = st.text(alphabet="aA theTHEndog.,'-5 \u00e9", max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=3), WORDS)
def test_squad_of_any_texts(golds, predicted):
    assert example_scores([golds], [predicted], "SQuAD")[0] == pytest.approx(squad(golds, predicted, version=1))
    assert example_scores([golds, ()], [predicted, ""], "SQuAD")[0] == pytest.approx(squad(golds, predicted, version=2))


def test_squad_of_recorded_predictions(recorded):
    golds, predicted = zip(*recorded["answers"], strict=True)
    assert len(golds) == 60
    found = example_scores(golds, predicted, choose_scorer(golds))
    expected = np.array([squad(*pair, version=2) for pair in recorded["answers"]])
    assert found == pytest.approx(expected)
    assert measure(golds, predicted)(np.arange(60)) == pytest.approx(
        {"exact_match": 100 * expected[:, 0].mean(), "f1": 100 * expected[:, 1].mean()}
    )
    answerable = [pair for pair in recorded["answers"] if pair[0]]
    found = example_scores(*zip(*answerable, strict=True), "SQuAD")
    assert found == pytest.approx(np.array([squad(*pair, version=1) for pair in answerable]))
    kinds = {
        (
            "none" if not gold else "as gold" if guess in gold else "other",
            "none" if not guess else "some",
            *map(bool, row),
        )
        for (gold, guess), row in zip(recorded["answers"], expected, strict=True)
    }
    assert kinds == {
        ("none", "none", True, True),
        ("none", "some", False, False),
        ("as gold", "some", True, True),
        ("other", "none", False, False),
        ("other", "some", True, True),  # articles and punctuation
        ("other", "some", False, True),
        ("other", "some", False, False),
    }, "every kind of prediction occurs"


def test_no_answer_is_correct_if_there_is_none():
    found = example_scores([(), (), ("dog",), ("dog",)], ["", "dog", "", "dog"], "SQuAD")
    assert found.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
    found = example_scores([(), (), ("狗",), ("狗",)], ["", "狗", "", "狗"], "CMRC 2018")
    assert found.tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]


MARKS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


def cmrc_tokens(text):
    """Return the tokens of CMRC 2018: Chinese characters and words of other scripts, without punctuation."""
    found, word = [], ""
    for character in [*(c for c in text.lower().strip() if c not in MARKS), " "]:
        if "\u4e00" <= character <= "\u9fa5" or character.isspace():
            found += [word] if word else []
            found += [character] if not character.isspace() else []
            word = ""
        else:
            word += character
    return found


def cmrc(golds, predicted):
    """Return exact match and F1 by the longest common run of tokens, for texts without punctuation of other scripts."""
    exact, best = 0.0, 0.0
    for gold in golds:
        plain = ["".join(c for c in text.lower().strip() if c not in MARKS) for text in (gold, predicted)]
        exact = max(exact, float(plain[0] == plain[1]))
        true, guess = cmrc_tokens(gold), cmrc_tokens(predicted)
        runs = {tuple(true[i:j]) for i in range(len(true)) for j in range(i + 1, len(true) + 1)}
        longest = max(
            (j - i for i in range(len(guess)) for j in range(i + 1, len(guess) + 1) if tuple(guess[i:j]) in runs),
            default=0,
        )
        if longest:
            precision, recall = longest / len(guess), longest / len(true)
            best = max(best, 2 * precision * recall / (precision + recall))
    return exact, best


CMRC = [
    (["歐洲"], "歐洲"),
    (["歐洲"], "在歐洲。"),
    (["《範廷頌》"], "範廷頌"),
    (["abc在中國"], "在中國abc"),
    (["2008年8月"], "2008 年"),
    (["光荣和ω-force"], "光荣和ωforce"),
    (["1963年", "1990年被擢升"], "1990年"),
    (["中国 北京"], "中国北京"),
    (["，。"], "！"),
    (["中国"], "！"),
    (["甲乙丙甲乙"], "乙丙甲"),
    (["甲乙丙丁"], "甲丙乙丁"),
    (["……中国"], "中国"),  # the script's list has this mark to no effect: no single character equals it
]


@pytest.mark.parametrize(("golds", "predicted"), CMRC)
def test_cmrc(golds, predicted):
    assert example_scores([golds], [predicted], "CMRC 2018")[0] == pytest.approx(cmrc(golds, predicted))


def test_cmrc_cuts_other_scripts_into_words_and_marks():
    found = example_scores([["《Mr. O'Neil》 3.5%"]], ["neil 3.5%"], "CMRC 2018")[0]
    assert found == pytest.approx([0, 2 * 3 / (7 + 3)])  # mr . o ' neil 3.5 %


CHARACTERS = st.text(alphabet="中国北京，。 aB1《》-", max_size=10).filter(bool)


@given(st.lists(CHARACTERS, min_size=1, max_size=3), CHARACTERS)
def test_cmrc_of_any_texts(golds, predicted):
    assert example_scores([golds], [predicted], "CMRC 2018")[0] == pytest.approx(cmrc(golds, predicted))


@pytest.mark.parametrize(
    ("golds", "expected"),
    [
        ([["歐洲"], ["1990年"]], "SQuAD"),
        ([["歐洲"], ["90年"]], "CMRC 2018"),
        ([["歐洲 \n  \u3000  "]], "CMRC 2018"),
        ([["東京 とうきょう"]], "SQuAD by characters"),
        ([["กรุงเทพ"], ["1782"]], "SQuAD by characters"),
        ([["กรุงเทพ"], ["Bangkok, 1782"]], "SQuAD"),
        ([["二〇〇八年"]], "CMRC 2018"),
        ([["Europe"], ["歐洲"]], "SQuAD"),
        ([[], []], "SQuAD"),
    ],
)
def test_the_rules_are_chosen_by_the_gold_answers(golds, expected):
    assert choose_scorer(golds) == expected


UNSPACED = st.text(alphabet="กุラーと東京々ខ北B1 .-", max_size=10).filter(bool)


@given(st.lists(UNSPACED, min_size=1, max_size=3), UNSPACED, st.sampled_from([1, 2]))
def test_letters_of_scripts_without_spaces_are_words(golds, predicted, version):
    """As by SQuAD's rules after spaces around each such letter, but for exact matches."""

    def spaced(text):
        return "".join(letter if letter in "B1 .-" else f" {letter} " for letter in text)

    found = example_scores([golds, *[()] * (version - 1)], [predicted, *[""] * (version - 1)], "SQuAD by characters")[0]
    assert found[0] == squad(golds, predicted, version=version)[0]
    assert found[1] == pytest.approx(squad(list(map(spaced, golds)), spaced(predicted), version=version)[1])


def test_any_selection_can_be_measured():
    of = measure([["a dog"], ["cat"], ["red bird"]], ["dog", "bird", "bird"])
    assert of(np.arange(3)) == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx((100 + 200 / 3) / 3)}
    assert of(np.array([0, 0])) == {"exact_match": 100, "f1": 100}
    assert of(np.array([1])) == {"exact_match": 0, "f1": 0}


@pytest.mark.parametrize("planted", ["articles", "punctuation", "first gold"])
def test_a_planted_fault_is_noticed(monkeypatch, planted):
    if planted == "articles":
        monkeypatch.setattr("unmask.metrics.question_answering._ARTICLES", re.compile(r"\b(a|an)\b"))
    elif planted == "punctuation":
        monkeypatch.setattr("unmask.metrics.question_answering._ASCII", {})
    cases = (
        [(golds[:1], predicted, golds) for golds, predicted in SQUAD]
        if planted == "first gold"
        else [(g, s, g) for g, s in SQUAD]
    )
    with pytest.raises(AssertionError):
        for given, predicted, golds in cases:
            assert example_scores([given], [predicted], "SQuAD")[0] == pytest.approx(squad(golds, predicted, version=1))
