"""No split has equal texts on both sides, a tenth of the examples is held out, and what overlaps is said."""

import math
import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.duplicates import Overlap, overlap
from unmask.data.labelled.folding import fold
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.support.errors import UserError
from unmask.tasks import holding_out
from unmask.tasks.classification import Classification
from unmask.tasks.holding_out import (
    DEV_SHARE,
    assign_folds,
    choose_stratified,
    choose_units,
    describe_overlap,
    parted,
    without,
)
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.rows import texts_of
from unmask.tasks.token_classification import TokenClassification

from .conftest import hold_out

SPELLINGS = ("{}", "{}!", " {}", "{}\u200b", "\u00ab{}\u00bb")


def rows(copies, rng):
    """Rows of random labels, each text so many times, in different spellings."""
    texts = [
        spelling.format(f"Text number {number} \u00e9")
        for number, count in enumerate(copies)
        for spelling in SPELLINGS[:count]
    ]
    rng.shuffle(texts)
    return [Row({"text": text, "label": rng.choice("ab")}, "x.csv", line) for line, text in enumerate(texts, start=2)]


def hold_out_rows(examples, strata, seed):
    return parted(examples, choose_stratified(examples, Identities.of(map(texts_of, examples)), strata, seed))


@given(st.lists(st.integers(1, 5), min_size=30, max_size=80), st.randoms(use_true_random=False), st.integers(0, 5))
def test_equal_texts_are_on_one_side(copies, rng, seed):
    examples = rows(copies, rng)
    train, held = hold_out_rows(examples, [row.values["label"] for row in examples], seed)
    assert Counter(row.line for row in (*train, *held)) == Counter(row.line for row in examples)
    sides = [{fold(row.values["text"]) for row in part} for part in (train, held)]
    assert sides[0].isdisjoint(sides[1])
    assert 0.02 * len(examples) <= len(held) <= 0.1 * len(examples) + 1


def test_pairs_are_equal_in_either_order():
    pairs = [Row({"text": f"a{number // 2}", "text_b": "b", "label": "x"}, "f", number) for number in range(0, 80, 2)]
    swapped = [Row({"text": "B.", "text_b": row.values["text"], "label": "x"}, "f", row.line + 1) for row in pairs]
    train, held = hold_out_rows([*pairs, *swapped], ["x"] * 80, 0)
    assert {row.line // 2 for row in train}.isdisjoint(row.line // 2 for row in held)
    assert len(held) == 8


def test_copies_of_a_few_texts_are_on_both_sides_which_is_said():
    same = [Row({"text": "the same", "label": label}, "x.csv", 2) for label in "ab" * 30]
    train, held = hold_out_rows(same, [row.values["label"] for row in same], 0)
    assert (len(train), len(held)) == (54, 6)
    (note,) = describe_overlap(
        overlap(*(Identities.of(map(texts_of, part)) for part in (train, held))), train, held, "held-out"
    )
    assert note.startswith("6 of the 6 held-out examples (100.0 %) are also training examples, so scores are too high")


def reference(texts, strata, seed):
    """The examples that are held out, unit by unit."""
    units, by_stratum, chosen, seen = {}, {}, set(), 0
    for index, text in enumerate(texts):
        units.setdefault(fold(text), []).append(index)
    for unit in units.values():
        by_stratum.setdefault(strata[unit[0]], []).append(unit)
    for number, members in enumerate(by_stratum.values()):
        size = sum(map(len, members))
        seen += size
        room = min(round(DEV_SHARE * seen) - len(chosen), math.ceil(DEV_SHARE * size), size - 1)
        for rank in derive_rng(seed, "dev", number).permutation(len(members)):
            if len(members[rank]) <= room:
                chosen.update(members[rank])
                room -= len(members[rank])
    return chosen


@pytest.mark.seeds(80)
def test_the_choice_is_that_of_a_loop_over_all_units(seed):
    rng = random.Random(seed)
    labels = [f"{number}" for number in range(rng.choice([1, 2, 3, 40]))]
    copies = [rng.choice([1, 1, 1, 2, 5]) for _ in range(rng.randint(40, 300))]
    examples = rows(copies, rng)
    strata = rng.choices(labels, weights=[rng.random() ** 3 + 0.01 for _ in labels], k=len(examples))
    texts = [row.values["text"] for row in examples]
    held = choose_stratified(examples, Identities.of((text,) for text in texts), strata, seed)
    assert {*np.flatnonzero(held).tolist()} == reference(texts, strata, seed)


def test_a_tenth_of_each_stratum_is_held_out():
    examples = [Row({"text": str(number)}, "a.tsv", number) for number in range(250)]
    strata = [number % 5 == 0 for number in range(250)]
    train, held = hold_out_rows(examples, strata, seed=3)
    assert (len(train), len(held)) == (225, 25)
    assert sum(int(it.values["text"]) % 5 == 0 for it in held) == 5


@pytest.mark.parametrize("each", [1, 2, 5, 14])
def test_a_tenth_of_many_small_strata_is_held_out(each):
    examples = [Row({"text": str(number)}, "a.tsv", number) for number in range(100 * each)]
    strata = [number % 100 for number in range(100 * each)]
    if each == 1:  # no label loses its only example
        with pytest.raises(UserError, match=r"too few|has a different label"):
            hold_out_rows(examples, strata, seed=0)
        return
    train, held = hold_out_rows(examples, strata, seed=0)
    assert len(held) == 10 * each
    assert {int(row.values["text"]) % 100 for row in train} == set(range(100))


def test_a_small_stratum_does_not_make_up_for_rare_labels():
    strata = [*range(60), *["mid"] * 10, *["big"] * 200]
    examples = [Row({"text": str(number)}, "a.tsv", number) for number in range(len(strata))]
    _, held = hold_out_rows(examples, strata, seed=0)
    labels = [strata[int(row.values["text"])] for row in held]
    assert labels.count("mid") == 1
    assert labels.count("big") == 20


def test_too_few_examples_are_refused():
    with pytest.raises(UserError, match=r"x: 3 examples are too few to hold out a tenth"):
        hold_out_rows([Row({"text": str(number)}, "x", number) for number in range(3)], [0] * 3, 0)


@pytest.mark.seeds(50)
def test_units_hold_as_nearly_a_tenth_as_any_choice_in_that_order(seed):
    rng = random.Random(seed)
    sizes = [rng.choice((1, 2, 5, 40, 300)) for _ in range(rng.randint(5, 30))]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    units = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    of_examples = [number for number, size in enumerate(sizes) for _ in range(size)]
    chosen, wanted = {*np.flatnonzero(choose_units(of_examples, seed)).tolist()}, 0.1 * ends[-1]
    assert all(chosen.issuperset(unit) or chosen.isdisjoint(unit) for unit in units)
    assert abs(len(chosen) - wanted) <= wanted, "no worse than nothing"
    left = [size for size, unit in zip(sizes, units, strict=True) if chosen.isdisjoint(unit)]
    assert len(chosen) >= wanted or all(len(chosen) + size - wanted >= wanted - len(chosen) for size in left)


def sentences(sizes, marked=True):
    return [
        TaggedSentence(
            f"Sentence {document} {number}", (0,), (8,), ("O",), "x.conll", 1, 1, document if marked else None
        )
        for document, size in enumerate(sizes)
        for number in range(size)
    ]


@pytest.mark.parametrize(("sizes", "documents"), [((5, 900, 5, 5, 5, 5), 5), ((10,) * 30, 3), ((100, 100, 30, 20), 1)])
def test_documents_are_held_out_by_their_sentences(sizes, documents):
    notes = []
    train, held = hold_out(TokenClassification(), sentences(sizes), 0, notes)
    assert {it.document for it in train}.isdisjoint(it.document for it in held)
    assert len({it.document for it in held}) == documents
    assert len(held) <= 0.2 * sum(sizes)
    assert not notes


@pytest.mark.parametrize("sizes", [(60,), (400, 500)])
def test_of_documents_that_are_too_large_sentences_are_held_out_and_that_is_said(sizes):
    notes = []
    examples = sentences(sizes)
    train, held = hold_out(TokenClassification(), examples, 0, notes)
    assert (len(held), len(train) + len(held)) == (sum(sizes) // 10, sum(sizes))
    (note,) = notes
    assert note.startswith(f"{sum(sizes)} sentences are in {len(sizes)} document")
    assert hold_out(TokenClassification(), examples, 0) == (train, held)


def test_questions_about_passages_that_differ_in_spaces_stay_together():
    task = QuestionAnswering()
    passages = [f"{start}passage {number}" for number, start in product(range(40), ("", " "))]
    examples = [task.pose(f"What is {number}?", passage) for number, passage in enumerate(passages)]
    train, held = hold_out(task, examples, 0)
    assert {it.passage.strip() for it in train}.isdisjoint(it.passage.strip() for it in held)
    assert len(held) == 8
    assert task.texts(examples[3]) == ("What is 3?", " passage 1")


def test_what_overlaps_is_counted_and_named():
    train = [Row({"text": str(number)}, "train.csv", number + 2) for number in range(6)]
    held = [Row({"text": str(number)}, "dev.csv", number + 2) for number in range(8)]
    notes = describe_overlap(Overlap({0: 3, 1: 1, 2: 0, 4: 4}, {5: 2}, 4, 6), train, held, "dev")
    assert notes == [
        "4 of the 8 dev examples (50.0 %) are also training examples, so scores are too high: dev.csv:2 as "
        "train.csv:5, dev.csv:3 as train.csv:3, dev.csv:4 as train.csv:2, …",
        "1 of the 8 dev examples (12.5 %) nearly equal training examples, so scores may be too high: dev.csv:7 "
        "as train.csv:4",
    ]
    assert describe_overlap(Overlap({}, {}, 8, 6), train, held, "dev") == []
    assert without(held, Overlap({0: 3}, {5: 2}, 7, 6)).tolist() == [False, True, True, True, True, False, True, True]


def test_examples_in_memory_are_named_too():
    memory = Classification().from_texts(["a"])
    assert "one in memory as one in memory" in describe_overlap(Overlap({0: 0}, {}, 0, 1), memory, memory, "dev")[0]


def test_the_stratum_of_equal_texts_is_that_of_the_first():
    examples = [Row({"text": f"{number // 2}"}, "x", number) for number in range(200)]
    train, held = hold_out_rows(examples, ["ab"[n % 2] for n in range(200)], 0)
    assert (len(train), len(held)) == (180, 20)


def test_of_many_held_out_examples_those_that_were_compared_are_counted():
    held = [Row({"text": str(number)}, "dev.csv", number + 2) for number in range(8)]
    (note,) = describe_overlap(Overlap({}, {5: 2}, 4, 8), held, held, "dev")
    assert note.startswith("1 of the 4 dev examples that were compared (25.0 %) nearly equal training examples")


def test_what_was_estimated_is_said():
    train = [Row({"text": str(number)}, "train.csv", number + 2) for number in range(60)]
    held = [Row({"text": str(number)}, "dev.csv", number + 2) for number in range(8)]
    assert describe_overlap(Overlap({}, {5: 2}, 8, 20), train, held, "dev") == [
        "1 of the 8 dev examples (12.5 %) nearly equal one of 20 of the 60 training examples, estimated 12.5 to 37.5 % "
        "one of all, so scores may be too high: dev.csv:7 as train.csv:4"
    ]
    (note,) = describe_overlap(Overlap({}, dict.fromkeys(range(5), 2), 8, 20), train, held, "dev")
    assert "estimated 62.5 to 100.0 % one of all" in note
    assert describe_overlap(Overlap({}, {}, 4, 20), train, held, "dev") == [
        "none of the 4 dev examples that were compared nearly equals one of 20 of the 60 training examples"
    ]


def naive_units(firsts, strata):
    """The units of each stratum, in the order of the first unit of each."""
    by_stratum = {}
    for index, first in enumerate(firsts):
        if index == first:
            by_stratum.setdefault(strata[index], []).append(index)
    return list(by_stratum.values())


@pytest.mark.seeds(50)
def test_strata_are_numbered_by_their_first_units(monkeypatch, seed):
    """The choice depends on these numbers; strata of which all examples equal earlier ones have none."""
    rng = random.Random(seed)
    texts = [str(rng.randrange(40)) for _ in range(rng.randrange(20, 120))]
    strata = [rng.choice("abcdefgh") for _ in texts]
    sizes = []

    def derive(*path):
        class Recording:
            def permutation(self, size):
                sizes.append((path[-1], size))
                return np.arange(size)

        return Recording()

    monkeypatch.setattr(holding_out, "derive_rng", derive)
    first_of = {}
    firsts = np.array([first_of.setdefault(text, index) for index, text in enumerate(texts)])
    holding_out._choose_stratified(firsts, strata, 0)
    assert [pair for pair in sizes if pair[1]] == [
        (number, len(units)) for number, units in enumerate(naive_units(firsts, strata))
    ]


@pytest.mark.seeds(50)
def test_folds_have_equal_texts_together_and_labels_apart(seed):
    rng = random.Random(seed)
    number, folds = rng.randint(2, 200), rng.randint(2, 6)
    units = [rng.randrange(max(1, number // rng.choice([1, 2, 5]))) for _ in range(number)]
    strata = [rng.choice("aaabbc") for _ in range(number)]
    chosen = assign_folds(units, strata, folds, seed)
    together = dict(zip(units, chosen.tolist(), strict=True))
    assert [together[unit] for unit in units] == chosen.tolist()
    first = dict(
        zip(reversed(units), reversed(strata), strict=True)
    )  # the label of a unit is that of its first example
    for label in set(first.values()):
        sizes = Counter(together[unit] for unit, stratum in first.items() if stratum == label)
        assert len(sizes) == min(folds, list(first.values()).count(label))
    largest = max(Counter(units).values())
    inside = [Counter(chosen.tolist())[fold] for fold in range(folds)]
    assert max(inside) - min(inside) <= len(set(first.values())) * largest
