"""Classification by names of labels beside transformers: its zero-shot pipeline, and its masked language models."""

import random

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    BertForSequenceClassification,
    ZeroShotClassificationPipeline,
)

import unmask
from unmask.inference.load import load
from unmask.inference.zero_shot import by_labels

from .conftest import scale, their_config

NLI = ("contradiction", "entailment", "neutral")
LABELS = ("the sea", "dog", "old town", "a garden of letters")
TEMPLATE = "The {} is near the river."


@pytest.fixture(scope="module")
def texts(documents):
    rng = random.Random(0)
    words = " ".join(documents).split()
    return [" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(50)]


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory):
    """Write a model of transformers with our tokenizer."""

    def save(kind, **config):
        path = tmp_path_factory.mktemp("theirs")
        torch.manual_seed(0)
        scale(kind(their_config(tokenizer, config.pop("labels", ["a"]), **config)), 1).save_pretrained(path)
        tokenizer.save(path)
        return path

    return save


@pytest.mark.parametrize("multi_label", [False, True])
def test_entailment_is_that_of_the_zero_shot_pipeline(saved, texts, multi_label):
    path = saved(BertForSequenceClassification, labels=NLI)
    pipeline = ZeroShotClassificationPipeline(
        model=BertForSequenceClassification.from_pretrained(path).eval(),
        tokenizer=AutoTokenizer.from_pretrained(path),
        device="cpu",
    )
    theirs = pipeline(texts, list(LABELS), hypothesis_template=TEMPLATE, multi_label=multi_label)
    ours = unmask.predict(path, texts=texts, labels=LABELS, template=TEMPLATE, multi_label=multi_label, quiet=True)
    for prediction, other in zip(ours, theirs, strict=True):
        expected = dict(zip(other["labels"], other["scores"], strict=True))
        assert prediction.scores == pytest.approx(expected, abs=1e-5)
        if multi_label:
            assert prediction.labels == tuple(label for label in LABELS if expected[label] > 0.5)
        else:
            assert prediction.label == other["labels"][0]


def probabilities(model, tokenizer, prefix):
    """Return the mean log probability of each label after a text, computed with transformers, without calibration."""
    scores = []
    for label in LABELS:
        ids = tokenizer(label, add_special_tokens=False)["input_ids"]
        encoded = tokenizer(f"{prefix} {TEMPLATE.format('[MASK]' * len(ids))}", return_tensors="pt")
        places = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero().squeeze(1)[-len(ids) :]
        with torch.no_grad():
            logits = model(**encoded).logits[0, places].double().log_softmax(-1)
        scores.append(logits[torch.arange(len(ids)), ids].mean().item())
    return np.exp(scores) / np.exp(scores).sum()


def test_a_cloze_is_that_of_filled_masks_relative_to_texts_without_content(saved, texts):
    path = saved(BertForMaskedLM)
    model, tokenizer = BertForMaskedLM.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    prior = np.mean([probabilities(model, tokenizer, text) for text in ("", "N/A", "[MASK]")], 0)
    for prediction in unmask.predict(path, texts=texts, labels=LABELS, template=TEMPLATE, quiet=True):
        relative = probabilities(model, tokenizer, prediction.text) / prior
        assert [*prediction.scores.values()] == pytest.approx((relative / relative.sum()).tolist(), abs=1e-5)
        assert prediction.label == LABELS[int(relative.argmax())]


def test_a_text_without_content_has_no_label(saved):
    """Calibration makes the labels of texts without content equally probable in the mean."""
    predictor = by_labels(load(saved(BertForMaskedLM), device="cpu"), LABELS)
    with pytest.warns(unmask.InputWarning, match="1 of 3 texts is empty"):
        scores = np.array([[*each.scores.values()] for each in predictor.predict(["", "N/A", "[MASK]"])])
    assert scores.mean(0) == pytest.approx(np.full(len(LABELS), 1 / len(LABELS)), abs=0.1)
