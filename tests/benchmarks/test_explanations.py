"""The benchmark of explanations runs at toy size; its curves are what their definition says."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import unmask
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.tasks.classification import Classification
from unmask.tasks.explained import Contribution

TEXTS = ["the dog sees the cat near the sea", "a garden and a letter under the tree", "the cat sees a poem"]


@pytest.fixture
def classifier(tokenizer, tmp_path):
    """A random classifier of texts that depends on its input."""
    torch.manual_seed(0)
    task = Classification(length=32)
    settings = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=32, init_std=0.5)
    head = task.build(settings.head, ("bad", "good")).published()
    model = Model(settings.build(tokenizer.size), tokenizer, {task.part: head}, ("bad", "good"), task)
    save_model(tmp_path / "model", model, "")
    return unmask.load(tmp_path / "model", device="cpu")


def test_methods_are_compared_with_random_orders(benchmark_module, classifier, records):
    module = benchmark_module("explanations")
    for _ in range(2):  # the second run replaces the records of the first
        module.measure("toy", "dev", classifier, [(text,) for text in TEXTS])
    found = {record["method"]: record for record in records("explanations")}
    assert len(records("explanations")) == len(found) == 3
    random = found["random order"]
    for record in found.values():
        low, high = record["intervals"]["area"]
        assert 0 <= low <= record["area"] <= high <= 1
        if record is not random:
            assert record["minus_random"] == pytest.approx(record["area"] - random["area"])
    apart = found["integrated gradients"]["area"] - found["occlusion"]["area"]
    assert found["integrated gradients"]["minus_occlusion"] == pytest.approx(apart)


def test_a_curve_is_the_area_under_the_probabilities_of_masked_texts(benchmark_module, classifier):
    module, words = benchmark_module("explanations"), TEXTS[0].split()
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    order = np.random.default_rng(0).permutation(len(words))
    named = [Contribution(int(starts[at]), int(starts[at]) + len(words[at]), 0.0) for at in order]
    probabilities = []
    for level in range(11):
        gone = set(order[: round(len(order) * level / 10)])
        text = " ".join("[MASK]" if at in gone else word for at, word in enumerate(words))
        probabilities.append(classifier.predict([text])[0].scores["good"])
    expected = sum((first + second) / 20 for first, second in pairwise(probabilities))
    assert module.curve(classifier, (TEXTS[0],), named, "good") == pytest.approx(expected, abs=1e-5)
    assert module.masked(("a dog", "a cat"), [Contribution(2, 5, 0.0, text=1)]) == ("a dog", "a [MASK]")
