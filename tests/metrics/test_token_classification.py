"""Entities and metrics agree with seqeval in its default mode, whose rules are those of conlleval."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from unmask.data.labelled.tagged_sentence import write_tags
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import intervals, measure_all
from unmask.metrics.token_classification import (
    Chunk,
    are_word_tags,
    by_tag,
    by_type,
    chunks,
    is_word_tag,
    measure,
    measure_accuracy,
    measure_with_macro,
    split_tag,
)

ANY = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "A-B"))]
NAMES = {"BMES": "BIES", "BMEW": "BIES", "BILU": "BIES"}


def assert_same_entities(tags):
    found = [(kind, start, stop - 1) for kind, start, stop in metrics.chunks(tags)]
    assert found == get_entities(tags), tags


def every_sequence():
    """Return all sequences of up to 4 tags of two types in all roles."""
    tags = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]
    return itertools.chain.from_iterable(itertools.product(tags, repeat=length) for length in range(5))


def test_entities_of_every_short_sequence():
    for tags in every_sequence():
        assert_same_entities(list(tags))


@given(st.lists(st.sampled_from(ANY), max_size=40))
def test_entities_of_any_sequence(tags):
    assert_same_entities(tags)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "I-Y", "E-Y"]), max_size=20))
def test_other_names_of_the_prefixes_mean_the_same(tags):
    for others, ours in NAMES.items():
        renamed = [tag.translate(str.maketrans(ours, others)) if tag != "O" else tag for tag in tags]
        assert chunks(renamed) == chunks(tags)


@pytest.mark.parametrize("fault", ["an I opens nothing", "types are not compared", "S begins nothing"])
def test_the_comparison_notices_a_planted_fault(fault, monkeypatch):
    def faulty(tag):
        role, kind = split_tag(tag)
        if fault == "types are not compared":
            return role, "" if role == "O" else "X"
        if fault == "an I opens nothing":
            return ("O", "") if role == "I" else (role, kind)
        return ("I" if role == "S" else role), kind

    monkeypatch.setattr(metrics, "split_tag", faulty)
    with pytest.raises(AssertionError):
        test_entities_of_every_short_sequence()


@pytest.mark.parametrize("tag", ["", "B-", "S-", "LABEL_0"])
def test_invalid_tags_are_refused(tag):
    with pytest.raises(ValueError, match="is not a tag such as O, B-PER"):
        chunks(["O", tag])


@pytest.mark.parametrize("tag", ["NOUN", "-LRB-", "PRP$", "person-actor", "."])
def test_a_tag_without_a_prefix_is_an_entity_of_one_word(tag):
    assert chunks([tag, tag, "O"]) == [(tag, 0, 1), (tag, 1, 2)]
    assert is_word_tag(tag)
    assert not is_word_tag("O")
    assert not is_word_tag(f"B-{tag}")
    assert are_word_tags({tag})
    assert not are_word_tags({tag, "O"})
    assert not are_word_tags(())


def test_accuracy_of_tags_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    gold, predicted = ([list(rng.choice([*"ABCD"], 7)) for _ in range(30)] for _ in range(2))
    flat = [[tag for sentence in tags for tag in sentence] for tags in (gold, predicted)]
    whole = measure_all(measure_accuracy(gold, predicted), 30)
    assert whole["accuracy"] == pytest.approx(100 * accuracy_score(*flat))
    of_tags = by_tag(gold, predicted)
    expected = precision_recall_fscore_support(*flat, labels=[*"ABCD"], zero_division=0)
    for tag, precision, recall, f1, words in zip("ABCD", *expected, strict=True):
        scores = of_tags[tag]
        assert scores["accuracy"] == scores["recall"] == pytest.approx(100 * recall)
        assert [scores["precision"], scores["f1"]] == pytest.approx([100 * precision, 100 * f1])
        assert scores["words"] == words


def draw(rng, sentences, kinds="XYZ", empty=0.1):
    """Return gold and predicted tags that mostly agree; some sentences have no entities."""
    tags = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in kinds)]
    gold = [rng.choice(tags if rng.random() > empty else ["O"], rng.integers(1, 15)).tolist() for _ in range(sentences)]
    predicted = [[tag if rng.random() < 0.8 else str(rng.choice(tags)) for tag in one] for one in gold]
    return gold, predicted


def entities(tags):
    return [chunks(one) for one in tags]


def measured(gold, predicted):
    return measure_all(measure(entities(gold), entities(predicted)), len(gold))


def assert_same_scores(gold, predicted, **options):
    """Assert that `measure` agrees with seqeval."""
    assert measured(gold, predicted) == pytest.approx(
        {
            "precision": 100 * precision_score(gold, predicted, zero_division=0, **options),
            "recall": 100 * recall_score(gold, predicted, zero_division=0, **options),
            "f1": 100 * f1_score(gold, predicted, zero_division=0, **options),
        }
    )


@pytest.mark.parametrize("sentences", [1, 2, 30])
def test_scores_of_random_predictions(sentences):
    rng = np.random.default_rng(sentences)
    for _ in range(40):
        assert_same_scores(*draw(rng, sentences))


def assert_same_scores_by_type(gold, predicted, kinds):
    report = classification_report(gold, predicted, output_dict=True, zero_division=0)
    found = by_type(entities(gold), entities(predicted))
    assert list(found) == sorted(kinds)
    for kind, scores in found.items():
        theirs = report[kind]
        assert scores["entities"] == theirs["support"]
        for ours, name in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            assert scores[ours] == pytest.approx(100 * theirs[name])


def test_scores_by_type():
    gold, predicted = draw(np.random.default_rng(0), 40)
    predicted[0][0] = "B-NEW"  # a type that occurs only in predictions
    assert_same_scores_by_type(gold, predicted, {*"XYZ", "NEW"})


def test_scores_of_recorded_predictions(recorded):
    gold, predicted = (list(side) for side in zip(*recorded["tags"], strict=True))
    assert len(gold) == 60
    assert [] in gold
    assert any({*true} == {"O"} == {*found} for true, found in zip(gold, predicted, strict=True))
    assert_same_scores(gold, predicted)
    assert_same_scores_by_type(gold, predicted, {"LOC", "PER"})
    # seqeval's strict mode gives the same result for tags in IOB2, which the model's own tags not always are
    written = [write_tags(chunks(found), len(found)) for found in predicted]
    assert written != predicted
    assert_same_scores(gold, written, mode="strict", scheme=IOB2)
    assert measured(gold, written) == measured(gold, predicted)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        (["O"], ["O"], (0, 0, 0)),
        (["B-X"], ["O"], (0, 0, 0)),
        (["O"], ["B-X"], (0, 0, 0)),
        (["B-X", "I-X"], ["B-X", "B-X"], (0, 0, 0)),
        (["B-X"], ["B-Y"], (0, 0, 0)),
        (["I-X", "B-X"], ["S-X", "S-X"], (100, 100, 100)),
        (["B-X", "O", "B-X"], ["B-X", "O", "O"], (100, 50, 200 / 3)),
    ],
)
def test_scores_of_degenerate_cases(gold, predicted, expected):
    found = measure_all(measure([chunks(gold)], [chunks(predicted)]), 1)
    assert tuple(found.values()) == pytest.approx(expected)
    assert found["f1"] == pytest.approx(100 * f1_score([gold], [predicted], zero_division=0))


def test_intervals_are_over_sentences():
    gold, predicted = draw(np.random.default_rng(0), 200)
    measured = measure(entities(gold), entities(predicted))
    chosen = np.random.default_rng(1).integers(200, size=200)
    drawn = [gold[index] for index in chosen], [predicted[index] for index in chosen]
    assert measured(chosen)["f1"] == pytest.approx(100 * f1_score(*drawn))
    point = measure_all(measured, 200)
    for name, (low, high) in intervals(measured, 200).items():
        assert low < point[name] < high
    perfect = measure(entities(gold), entities(gold))
    low, high = intervals(perfect, 200)["f1"]
    assert low == pytest.approx(100 * 200 / (200 + 1.959964**2)) and high == 100


def test_an_entity_has_type_start_and_stop():
    assert chunks(["O", "B-A-B", "I-A-B"]) == [Chunk("A-B", 1, 3)]


@given(st.integers(0, 10**6))
def test_macro_averages_are_those_of_seqeval(seed):
    rng = np.random.default_rng(seed)
    tags = [[[ANY[n] for n in rng.integers(len(ANY), size=size)] for size in (3, 9, 5)] for _ in range(2)]
    tags[1][0] = tags[0][0]
    gold, predicted = ([chunks(sentence) for sentence in side] for side in tags)
    found = measure_all(measure_with_macro(gold, predicted), 3)
    assert found == pytest.approx(
        measure_all(measure(gold, predicted), 3)
        | {
            "precision_macro": 100 * precision_score(*tags, average="macro", zero_division=0),
            "recall_macro": 100 * recall_score(*tags, average="macro", zero_division=0),
            "f1_macro": 100 * f1_score(*tags, average="macro", zero_division=0),
        }
    )
    assert measure_with_macro(gold, predicted)(np.array([1, 1, 2])) == pytest.approx(
        measure_all(measure_with_macro([gold[n] for n in (1, 1, 2)], [predicted[n] for n in (1, 1, 2)]), 3)
    )
