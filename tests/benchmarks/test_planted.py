"""The benchmark of planted truths runs at toy size."""

import random
from itertools import pairwise

import pytest

from unmask.inference.bench import Bench, EngineMeasurement
from unmask.workflows.comparing import compute
from unmask.workflows.finetuning import job


@pytest.fixture
def planted(benchmark_module, monkeypatch):
    measured = Bench([EngineMeasurement("torch", "float32", 1000.0, 2.0, 3.0, 0.0)], 0, [])
    monkeypatch.setattr(compute, "measure_engines", lambda model, *, sequences, requests: measured)
    monkeypatch.setattr("unmask.metrics.intervals.RESAMPLES", 50)
    return benchmark_module("planted")


def test_a_repetition_is_recorded(planted, run_main, records, tmp_path, monkeypatch):
    for owner, name, value in (
        (planted, "SEEDS", 1),
        (planted, "TRAIN", 40),
        (planted, "TEST", 100),
        (job, "MAX_EPOCHS", 2),
    ):
        monkeypatch.setattr(owner, name, value)
    monkeypatch.setitem(planted.WORLDS, "context", (planted.context, "2ktok", "length=64"))
    run_main(planted, "context", "--runs", str(tmp_path), "--repetitions", "3")
    (record,) = records("planted")
    assert (record["world"], record["number"], record["planted"]) == ("context", 3, "length=64")
    assert set(record["scores"]) == {"length=16", "length=64"}
    assert record["recommended"] in {"length=16", "length=64", "neither"}
    assert record["right"] == 100.0 * (record["recommended"] == "length=64")


@pytest.mark.parametrize("world", ["same", "spans"])
def test_words_to_test_on_are_new(planted, world):
    for number in range(50):
        _, train, test, _ = planted.WORLDS[world][0](random.Random(number))
        known = {word for text, _ in train for word in text.split()}
        assert known.isdisjoint({word for text, _ in test for word in text.split()})


def test_words_that_stand_in_a_row_are_on_one_topic(planted):
    for number in range(10):
        documents, train, test, _ = planted.spans(random.Random(number))
        topics = {}
        for text, topic in (*train, *test):
            topics |= dict.fromkeys(text.split(), topic)
        for document in documents:
            runs = [document.split()[start : start + 4] for start in range(0, 28, 4)]
            assert all(len(set(run)) == 1 for run in runs) and len({run[0] for run in runs}) == 7
            assert len({topics[run[0]] for run in runs if run[0] in topics}) == 1


def test_only_the_long_arm_sees_the_deciding_word(planted):
    for number in range(50):
        _, train, _, _ = planted.context(random.Random(number))
        labels, seen = {}, {}
        for text, label in train:
            labels.setdefault(text.split()[-1], set()).add(label)
            seen.setdefault(text.split()[0], set()).add(label)
            assert len(text.split()) == 26
        assert all(len(each) == 1 for each in labels.values())  # the last word decides
        assert any(len(each) == 2 for each in seen.values())  # the first one does not


def test_both_orders_have_the_same_words(planted):
    for number in range(10):
        documents, train, test, _ = planted.order(random.Random(number))
        assert {row[2] for row in (*train, *test)} == {"right", "wrong"}
        following = {}
        for document in documents:
            sentences = [part.split() for part in document.rstrip(".").split(". ")]
            for first, second in pairwise(sentences):
                for word in first:
                    following.setdefault(word, set()).update(second)
        for first, second, label in (*train, *test):
            here, there = first.rstrip(".").split(), second.rstrip(".").split()
            before = any(set(there) & following.get(word, set()) for word in here)
            after = any(set(here) & following.get(word, set()) for word in there)
            assert (before, after) == ((True, False) if label == "right" else (False, True))
