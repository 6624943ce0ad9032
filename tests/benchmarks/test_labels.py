"""The benchmark of wrong labels runs at toy size: what it plants is counted, and what is found is scored."""

import random

import numpy as np
import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.workflows.finetuning import job

NAMES = ("dog", "cat", "house")
TYPES = ("ANIMAL", "PET", "PLACE")


@pytest.fixture
def labels(benchmark_module, tokenizer, tmp_path, monkeypatch):
    """The benchmark, with an encoder of random weights that distinguishes words."""
    body = BertSettings(layers=1, width=64, heads=2, feed_forward=64, positions=32, init_std=0.5).build(tokenizer.size)
    save_model(tmp_path / "encoder", Model(body, tokenizer), "")
    module = benchmark_module("labels")
    monkeypatch.setattr(module, "minilm", lambda: str(tmp_path / "encoder"))
    monkeypatch.setattr(module, "WEAK_EXAMPLES", 12)
    monkeypatch.setattr(job, "MAX_EPOCHS", 10)
    monkeypatch.setattr(job, "MAX_EPOCHS_FROZEN", 15)
    return module


def words(number):
    """Return the words of a text, of which the second tells its label."""
    return ["near", NAMES[number % 3], "sea", "town", str(number)]


def data(labels, task):
    """Return texts, or sentences with an entity each."""
    if task == "classification":
        every = [{"text": " ".join(words(number)), "label": NAMES[number % 3]} for number in range(90)]
    else:
        every = [
            {"words": words(number), "tags": ["O", f"B-{TYPES[number % 3]}", "O", "O", "O"]} for number in range(90)
        ]
    return labels.Data(task, every[:60], every[60:])


@pytest.mark.parametrize("noise", ["random", "confusions"])
@pytest.mark.parametrize("task", ["classification", pytest.param("token-classification", marks=pytest.mark.exhaustive)])
def test_wrong_labels_are_found(labels, task, noise, tmp_path):
    finetuned = noise == "random"
    result = labels.audited(data(labels, task), noise, 0.1, 0, tmp_path, finetuned=finetuned)
    assert (tmp_path / "folds" / "fold-5" / "model").exists() == finetuned
    if noise == "confusions":  # no more than the mistakes of the weaker model, which knows these words
        assert 0 <= result["wrong"] <= 12
        return
    assert (result["examples"], result["wrong"]) == (60, 6)
    assert result["recall"] > 80 and result["first_tenth_precision"] > 60
    assert result["clean"] >= result["fixed"] >= result["noisy"]


def test_random_labels_are_others(labels):
    rng, every = random.Random(0), data(labels, "token-classification").train
    for one in every:
        changed = labels.wrong_at_random(one, TYPES, rng)
        assert changed["words"] == one["words"] and changed["tags"] != one["tags"]
        assert changed["tags"][0] == "O" and changed["tags"][1][2:] in (*TYPES, "")
    assert labels.wrong_at_random({"words": ["a"], "tags": ["O"]}, TYPES, rng)["tags"] == ["O"]
    texts = {labels.wrong_at_random({"text": "", "label": "cat"}, NAMES, rng)["label"] for _ in range(20)}
    assert texts == {"dog", "house"}


def test_published_labels_that_others_corrected(labels, tmp_path):
    corrected = data(labels, "token-classification").train
    given = [{**one, "tags": ["O"] * 5} if number % 12 == 0 else one for number, one in enumerate(corrected)]
    result = labels.published(given, corrected, tmp_path, finetuned=False)
    assert (result["examples"], result["wrong"]) == (60, 5)
    assert result["first_tenth_recall"] > 80
    with pytest.raises(SystemExit):
        labels.published(given, corrected[1:], tmp_path, finetuned=False)


def test_what_is_found(labels):
    wrong, flagged, first = (np.array(list(map(int, text))) == 1 for text in ("1100000000", "1011000000", "0100000000"))
    counts = labels.found(flagged, first, wrong)
    assert (counts["wrong"], counts["flagged"], round(counts["precision"]), counts["recall"]) == (2, 3, 33, 50)
    assert (counts["first_tenth_precision"], counts["first_tenth_recall"]) == (100, 50)
