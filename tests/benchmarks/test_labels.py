"""The benchmark of wrong labels runs at toy size: what it plants is counted, and what is found is scored."""

import dataclasses

import numpy as np
import pytest

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model

NAMES = ("dog", "cat", "house")


@pytest.fixture
def labels(benchmark_module, tokenizer, tmp_path, monkeypatch):
    """The benchmark, with an encoder of random weights that distinguishes words."""
    body = BertSettings(layers=1, width=64, heads=2, feed_forward=64, positions=32, init_std=0.5).build(tokenizer.size)
    save_model(tmp_path / "encoder", Model(body, tokenizer), "")
    module = benchmark_module("labels")
    monkeypatch.setattr(module, "minilm", lambda: str(tmp_path / "encoder"))
    module.encoder.cache_clear()
    return module


def words(number):
    """Return the words of a text, of which the second tells its label."""
    return ["near", NAMES[number % 3], "sea", "town", str(number)]


@pytest.mark.parametrize("noise", ["random", "confusions"])
def test_wrong_labels_are_planted(labels, noise):
    rng = np.random.default_rng(0)
    true, weak = rng.integers(0, 3, 400), rng.integers(0, 3, 400)
    given, wrong = labels.wrong_labels(noise, 0.1, true, weak, rng)
    assert wrong.sum() == 40
    assert ((given != true) == wrong).all()
    if noise == "confusions":
        assert (given[wrong] == weak[wrong]).all()


def test_texts(labels, tmp_path):
    rows = [Row({"text": " ".join(words(number)), "label": NAMES[number % 3]}, "x", number) for number in range(150)]
    result = labels.audited(labels.of_texts(rows[:120], rows[120:]), 120, "random", 0.1, 0, tmp_path)
    assert (result["examples"], result["wrong"]) == (120, 12)
    assert result["recall"] > 80
    assert result["first_tenth_precision"] > 60
    assert result["clean"] == 100 >= result["fixed"] >= result["noisy"]


def test_entities(labels, tmp_path):
    sentences = [
        TaggedSentence(*join_words(words(number)), ("O", ("B-ANIMAL", "B-PET", "B-PLACE")[number % 3], "O", "O", "O"))
        for number in range(150)
    ]
    result = labels.audited(labels.of_entities(sentences[:120], sentences[120:]), 120, "random", 0.1, 0, tmp_path)
    assert (result["examples"], result["wrong"]) == (120, 12)
    assert result["recall"] > 80
    assert result["clean"] == 100 >= result["fixed"] >= result["noisy"]


def test_published_labels_that_others_corrected(labels, tmp_path):
    corrected = [
        TaggedSentence(*join_words(words(number)), ("O", ("B-ANIMAL", "B-PET", "B-PLACE")[number % 3], "O", "O", "O"))
        for number in range(120)
    ]
    given = [
        dataclasses.replace(one, tags=("O",) * 5) if number % 12 == 0 else one for number, one in enumerate(corrected)
    ]
    result = labels.published(given, corrected, tmp_path)
    assert (result["examples"], result["wrong"]) == (120, 10)
    assert result["first_tenth_recall"] > 80
    with pytest.raises(SystemExit):
        labels.published(given, corrected[1:], tmp_path)


def test_what_is_found_and_regained(labels):
    wrong, flagged, first = (np.array(list(map(int, text))) == 1 for text in ("1100000000", "1011000000", "0100000000"))
    counts = labels.found(flagged, first, wrong)
    assert (counts["wrong"], counts["flagged"], round(counts["precision"]), counts["recall"]) == (2, 3, 33, 50)
    assert (counts["first_tenth_precision"], counts["first_tenth_recall"]) == (100, 50)
    scores = labels.compared(lambda corrected: 50 + 10 * float(corrected[wrong].sum()), first, np.random.default_rng(0))
    assert (scores["noisy"], scores["fixed"], scores["clean"], scores["regained"]) == (50, 60, 70, 50)
