"""The benchmark of explanations runs at toy size; its curves and attention are what their definitions say."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.explanation import Explainer
from unmask.model.model import Model, save_model
from unmask.tasks.classification import Classification
from unmask.training.machine import choose_machine

TEXTS = ["the dog sees the cat near the sea", "a garden and a letter under the tree", "the cat sees a poem"]


@pytest.fixture
def classifier(tokenizer):
    """A random classifier of texts that depends on its input."""
    torch.manual_seed(0)
    task, settings = (
        Classification(length=32),
        BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=32, init_std=0.5),
    )
    head = task.build(settings.head, ("bad", "good")).published()
    return Model(settings.build(tokenizer.size), tokenizer, {task.part: head}, ("bad", "good"), task)


@pytest.fixture
def explainer(classifier):
    backend = TorchBackend(classifier, choose_machine("cpu", "float32"))
    return Explainer(classifier, classifier.task, backend)


def test_methods_are_compared_with_random_orders(benchmark_module, classifier, records, tmp_path, monkeypatch):
    save_model(tmp_path / "model", classifier, "")
    module = benchmark_module("explanations")
    monkeypatch.setattr(module, "DRAWS", 2)
    for _ in range(2):  # the second run replaces the records of the first
        module.measure("toy", "dev", tmp_path / "model", classifier.task.from_texts(TEXTS))
    found = {record["method"]: record for record in records("explanations")}
    assert len(records("explanations")) == len(found) == 5
    random = found["random order"]
    assert random["area"] == pytest.approx(np.mean(random["by_draw"])) and len(random["by_draw"]) == 2
    for record in found.values():
        low, high = record["intervals"]["area"]
        assert 0 <= low <= record["area"] <= high <= 1
        if record is not random:
            assert record["minus_random"] == pytest.approx(record["area"] - random["area"])
    apart = found["integrated gradients"]["area"] - found["occlusion"]["area"]
    assert found["integrated gradients"]["minus_occlusion"] == pytest.approx(apart)


def test_a_curve_is_the_area_under_the_probabilities_of_masked_texts(benchmark_module, explainer):
    module, tokenizer = benchmark_module("explanations"), explainer.model.tokenizer
    framed = explainer.task.frame(tokenizer, explainer.task.from_texts(TEXTS), explainer.model.labels, gold=False)
    for number, sample in enumerate(framed.samples):
        words = explainer.words(framed, number)
        order = np.random.default_rng(number).permutation(len(words.words))
        probabilities = []
        for level in range(11):
            ids = sample.ids.copy()
            for word in order[: round(len(order) * level / 10)]:
                ids[words.index == word] = tokenizer.mask
            (logits,) = explainer.backend.logits("classification", [sample.changed(ids=ids)])
            probabilities.append(torch.from_numpy(logits[0]).softmax(0)[1].item())
        expected = sum((first + second) / 20 for first, second in pairwise(probabilities))
        assert module.curve(explainer, sample, words, order, 1) == pytest.approx(expected, abs=1e-5)


def test_attention_is_summed_over_the_tokens_of_a_word(benchmark_module, explainer):
    module = benchmark_module("explanations")
    framed = explainer.task.frame(
        explainer.model.tokenizer, explainer.task.from_texts(TEXTS), explainer.model.labels, gold=False
    )
    sample, words = framed.samples[0], explainer.words(framed, 0)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (3, 2, 5))  # (layers, heads, tokens, tokens)
    assert module.last_layer(weights) == pytest.approx(weights[2, :, 0].mean(0))
    product = np.eye(5)
    for layer in range(3):
        product = (0.5 * weights[layer].mean(0) + 0.5 * np.eye(5)) @ product
    assert module.rollout(weights) == pytest.approx(product[0])
    assert module.rollout(weights).sum() == pytest.approx(1)
    importance = module.from_attention(explainer, module.last_layer)(sample, words)
    assert importance.shape == (len(words.words),) and 0 < importance.sum() < 1
