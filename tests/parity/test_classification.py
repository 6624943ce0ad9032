"""Parity of classifiers and of filled masks with transformers, for directories written by us and by transformers."""

import json

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
)

import unmask
from unmask.model.model import Model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import InputWarning
from unmask.tasks.classification import Classification, ClassificationHead

from .conftest import SETTINGS, load_theirs, their_config

LABELS = ("negative", "neutral", "äußerst gut")
TEXTS = ["The dog sees the cat near the sea.", "The poem", "", "The garden opens the letter under a tree. " * 20]


@pytest.fixture
def ours(tokenizer):
    """Return a function that builds a model of ours with random heads."""

    def make(*names, labels=()):
        encoder = SETTINGS.build(tokenizer.size)
        made = {name: OBJECTIVES[name]().build(BuildContext(SETTINGS.build(tokenizer.size))) for name in names}
        if labels:
            made["classification"] = ClassificationHead(SETTINGS.head, len(labels))
        for head in made.values():
            for parameter in head.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        task = Classification(length=SETTINGS.positions) if labels else None
        return Model(encoder, tokenizer, {name: head.state_dict() for name, head in made.items()}, labels, task)

    return make


def their_probabilities(directory, texts):
    """Return the configuration and the probabilities of transformers, computed with its own tokenizer and classes."""
    theirs = load_theirs(AutoModelForSequenceClassification, directory)
    reader = AutoTokenizer.from_pretrained(directory)
    inputs = reader(texts, padding=True, truncation=True, max_length=SETTINGS.positions, return_tensors="pt")
    with torch.no_grad():
        return theirs.config, theirs(**inputs).logits.softmax(1)


def assert_same_predictions(directory, labels):
    config, expected = their_probabilities(directory, TEXTS)
    pipeline = unmask.load(directory, device="cpu")
    assert pipeline.labels == labels == tuple(config.id2label[number] for number in range(len(labels)))
    assert config.label2id == {label: number for number, label in enumerate(labels)}
    assert torch.pdist(expected).min() > 1e-3  # predictions differ between the texts
    with pytest.warns(InputWarning, match="^1 of 4 texts is longer than 64 tokens and was cut; 1 of 4 .* empty$"):
        found = pipeline.predict(TEXTS)
    for text, row, prediction in zip(TEXTS, expected, found, strict=True):
        assert (prediction.text, tuple(prediction.scores)) == (text, labels)
        torch.testing.assert_close(torch.tensor(list(prediction.scores.values())), row, rtol=0, atol=1e-5)
        assert prediction.label == labels[row.argmax()]
        assert prediction.cut == (text == TEXTS[3])


@pytest.mark.parametrize("labels", [LABELS, LABELS[::-1], ("0", "1")])
def test_our_classifier_in_transformers(ours, tmp_path, labels):
    save_model(tmp_path, ours(labels=labels), "card")
    assert_same_predictions(tmp_path, labels)


def write_theirs(tokenizer, directory, labels=LABELS):
    """Write a random model and the tokenizer as transformers does."""
    model = BertForSequenceClassification(their_config(tokenizer, labels))
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(directory)
    tokenizer.save(directory)
    AutoTokenizer.from_pretrained(directory).save_pretrained(directory)  # now all files are written by transformers


@pytest.mark.parametrize("labels", [LABELS, LABELS[::-1]])
def test_their_classifier_in_ours(tokenizer, tmp_path, labels):
    write_theirs(tokenizer, tmp_path, labels)
    assert_same_predictions(tmp_path, labels)


def test_reading_and_writing_a_classifier_preserves_it(tokenizer, tmp_path):
    write_theirs(tokenizer, tmp_path / "theirs")
    save_model(tmp_path / "ours", unmask.load(tmp_path / "theirs").model, "card")
    first, again = (their_probabilities(tmp_path / name, TEXTS)[1] for name in ("theirs", "ours"))
    assert torch.equal(first, again)


def test_a_classifier_without_names_gets_those_of_transformers(tokenizer, tmp_path):
    write_theirs(tokenizer, tmp_path)
    path = tmp_path / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("id2label", "label2id")}
    path.write_text(json.dumps(config))
    assert unmask.load(tmp_path).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize("planted", ["labels", "pooler", "head"])
def test_the_comparison_notices_a_planted_fault(ours, tmp_path, monkeypatch, planted):
    model = ours(labels=LABELS)
    save_model(tmp_path, model, "card")
    if planted == "labels":
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        config |= {"id2label": dict(zip("021", LABELS, strict=True)), "label2id": {}}
        path.write_text(json.dumps(config))
        (tmp_path / "checksums.json").unlink()  # otherwise the change is noticed before anything is compared
    elif planted == "pooler":
        monkeypatch.setattr(type(model.encoder.pooler), "forward", lambda self, rows: rows)
    else:
        monkeypatch.setattr(Model, "take", lambda self, name, head: [])  # the head keeps its random weights
    with pytest.raises(AssertionError):
        assert_same_predictions(tmp_path, LABELS)


FILLED = ["The [MASK] sees the cat near the [MASK].", "[MASK]", "The garden opens the [MASK] under a tree."]


@pytest.mark.parametrize(
    ("auto", "heads"),
    [
        (AutoModelForPreTraining, ("masked_lm", "next_sentence")),
        (AutoModelForMaskedLM, ("masked_lm", "next_sentence")),
        (AutoModelForMaskedLM, ("masked_lm",)),
    ],
)
def test_a_pretrained_directory_fills_masks_as_transformers_does(ours, tmp_path, auto, heads):
    save_model(tmp_path, ours(*heads), "card")
    theirs, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    reader = AutoTokenizer.from_pretrained(tmp_path)
    for text, filling in zip(
        FILLED, unmask.load(tmp_path, device="cpu").fill(FILLED, top=reader.vocab_size), strict=True
    ):
        inputs = reader(text, return_tensors="pt")
        with torch.no_grad():
            out = theirs.eval()(**inputs)
        logits = out.prediction_logits if "prediction_logits" in out else out.logits
        expected = logits[inputs["input_ids"] == reader.mask_token_id].softmax(1)
        assert [mask.position for mask in filling.masks] == [
            i for i in range(len(text)) if text.startswith("[MASK]", i)
        ]
        for mask, row in zip(filling.masks, expected, strict=True):
            ids = reader.convert_tokens_to_ids([candidate.piece for candidate in mask.candidates])
            found = torch.tensor([candidate.probability for candidate in mask.candidates])
            assert sorted(ids) == sorted(set(range(reader.vocab_size)) - set(reader.all_special_ids))
            torch.testing.assert_close(found, row[ids], rtol=0, atol=1e-5)
            assert found.equal(found.sort(descending=True).values)
