"""Entities and scores are seqeval's in its default mode, whose rules are those of conlleval."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2

from unmask.labelled.tag_schemes import write_tags
from unmask.metrics import token_classification as metrics
from unmask.metrics.intervals import intervals, whole
from unmask.metrics.token_classification import Chunk, by_type, chunks, measure, split_tag

ANY = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC", "A-B"))]
NAMES = {"BMES": "BIES", "BMEW": "BIES", "BILU": "BIES"}


def assert_same_entities(tags):
    found = [(kind, start, stop - 1) for kind, start, stop in metrics.chunks(tags)]
    assert found == get_entities(tags), tags


def every_sequence():
    """All sequences of up to 4 tags of two types in all roles."""
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


@pytest.mark.parametrize(
    "tag", ["", "o", "X-PER", "B", "B-", "PER", "B_PER", "b-PER", "-PER", "O-PER", "BI-PER", "LABEL_0"]
)
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match="is no tag such as O, B-PER"):
        chunks(["O", tag])


def draw(rng, sentences, kinds="XYZ", empty=0.1):
    """Gold and predicted tags that agree more often than not; some sentences have no entity at all."""
    tags = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in kinds)]
    gold = [rng.choice(tags if rng.random() > empty else ["O"], rng.integers(1, 15)).tolist() for _ in range(sentences)]
    said = [[tag if rng.random() < 0.8 else str(rng.choice(tags)) for tag in one] for one in gold]
    return gold, said


def entities(tags):
    return [chunks(one) for one in tags]


def measured(gold, said):
    return whole(measure(entities(gold), entities(said)), len(gold))


def assert_same_scores(gold, said, **options):
    """Those of `measure` are seqeval's."""
    assert measured(gold, said) == pytest.approx(
        {
            "precision": 100 * precision_score(gold, said, zero_division=0, **options),
            "recall": 100 * recall_score(gold, said, zero_division=0, **options),
            "f1": 100 * f1_score(gold, said, zero_division=0, **options),
        }
    )


@pytest.mark.parametrize("sentences", [1, 2, 30])
def test_scores_of_random_predictions(sentences):
    rng = np.random.default_rng(sentences)
    for _ in range(40):
        assert_same_scores(*draw(rng, sentences))


def assert_same_scores_by_type(gold, said, kinds):
    report = classification_report(gold, said, output_dict=True, zero_division=0)
    found = by_type(entities(gold), entities(said))
    assert list(found) == sorted(kinds)
    for kind, scores in found.items():
        theirs = report[kind]
        assert scores["entities"] == theirs["support"]
        for ours, name in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            assert scores[ours] == pytest.approx(100 * theirs[name])


def test_scores_by_type():
    gold, said = draw(np.random.default_rng(0), 40)
    said[0][0] = "B-NEW"  # a type that is only predicted
    assert_same_scores_by_type(gold, said, {*"XYZ", "NEW"})


def test_scores_of_recorded_predictions(recorded):
    gold, said = (list(side) for side in zip(*recorded["tags"], strict=True))
    assert len(gold) == 60
    assert [] in gold
    assert any({*true} == {"O"} == {*found} for true, found in zip(gold, said, strict=True))
    assert_same_scores(gold, said)
    assert_same_scores_by_type(gold, said, {"LOC", "PER"})
    # as IOB2, which the model's own tags are not always, the strict mode of seqeval says the same
    written = [write_tags(chunks(found), len(found)) for found in said]
    assert written != said
    assert_same_scores(gold, written, mode="strict", scheme=IOB2)
    assert measured(gold, written) == measured(gold, said)


@pytest.mark.parametrize(
    ("gold", "said", "expected"),
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
def test_scores_of_degenerate_cases(gold, said, expected):
    found = whole(measure([chunks(gold)], [chunks(said)]), 1)
    assert tuple(found.values()) == pytest.approx(expected)
    assert found["f1"] == pytest.approx(100 * f1_score([gold], [said], zero_division=0))


def test_intervals_are_over_sentences():
    gold, said = draw(np.random.default_rng(0), 200)
    measured = measure(entities(gold), entities(said))
    chosen = np.random.default_rng(1).integers(200, size=200)
    drawn = [gold[place] for place in chosen], [said[place] for place in chosen]
    assert measured(chosen)["f1"] == pytest.approx(100 * f1_score(*drawn))
    point = whole(measured, 200)
    for name, (low, high) in intervals(measured, 200).items():
        assert low < point[name] < high
    perfect = measure(entities(gold), entities(gold))
    assert intervals(perfect, 200)["f1"] == [100, 100]


def test_an_entity_is_type_and_place():
    assert chunks(["O", "B-A-B", "I-A-B"]) == [Chunk("A-B", 1, 3)]
