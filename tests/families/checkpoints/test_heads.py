"""Heads: incomplete and damaged ones are refused (C15), and the others are saved and loaded unchanged."""

import json
import re

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.inference.evaluation.scoring import evaluate_encoder
from unmask.model.model import Model, load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.classification import ClassificationHead
from unmask.training.machine import choose_machine
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from .conftest import (
    BODIES,
    VOCABULARY,
    assert_load_refused,
    assert_read_refused,
    configure,
    form_of,
    model,
    put,
    shape_of,
    small,
    weights,
)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_C15_half_a_classifier_is_refused(tokenizer, tmp_path, part):
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    tensors = weights(tmp_path)
    del tensors[f"classifier.{part}"]
    put(tmp_path, tensors)
    assert_load_refused(tmp_path, tmp_path / "model.safetensors", "classifier")


@pytest.mark.parametrize(
    "names",
    [
        *({"0": "a"}, {"0": "a", "1": "a"}, {"0": "a", "1": "b", "2": "c"}, {"1": "a", "2": "b"}),
        *({"0": "a", "1": ""}, {"0": "a", "1": None}),
        *(["a", "b"], "ab", 3, {"x": "a", "y": "b"}),
    ],
)
def test_labels_that_do_not_fit(tokenizer, tmp_path, names):
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    configure(tmp_path, id2label=names)
    assert_load_refused(tmp_path, tmp_path / "config.json", "id2label")


@pytest.mark.parametrize(
    ("architecture", "extra", "expected"),
    [
        (
            "BertForSequenceClassification",
            "crf.transitions",
            "only the classification head is known .* crf.transitions",
        ),
        (
            "BertForMultipleChoice",
            "",
            "config.json states BertForMultipleChoice, but .* 2 tensors, first classifier.bias",
        ),
        ("BertForSequenceClassification", "", ""),
        ("BertForSequenceClassification", "cls.predictions.transform.dense.weight", ""),
        ("BertForSequenceClassification", "bert.embeddings.position_ids", ""),
    ],
)
def test_tensors_that_are_left_out_are_told(tokenizer, tmp_path, recwarn, architecture, extra, expected):
    """A tagger with a CRF predicts other tags without it; a model of multiple choice was read as one of no task."""
    heads = ("masked_lm",) if extra.startswith("cls.") else ()
    save_model(tmp_path, model(tokenizer, heads=heads, labels=("a", "b")), "card")
    configure(tmp_path, architectures=[architecture], unmask=None)
    if extra and not heads:
        put(tmp_path, weights(tmp_path) | {extra: torch.zeros(2, 2)})
    huggingface.read(tmp_path)
    assert [re.search(expected, str(found.message)) is not None for found in recwarn] == [True] * bool(expected)


@pytest.mark.parametrize("ids", [{"a": 1, "b": 0}, {"a": "0", "b": "2"}])
def test_numbers_of_labels_that_contradict_each_other_are_refused(tokenizer, tmp_path, ids):
    """transformers predicts by id2label, and its scripts for training and evaluation read labels by label2id."""
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    for harmless in (None, {}, {"a": "0", "b": 1}, {"b": 1.0}, {"LABEL_0": 0, "LABEL_1": 1}):
        configure(tmp_path, label2id=harmless)
        assert load_model(tmp_path).labels == ("a", "b")
    configure(tmp_path, label2id=ids)
    assert_load_refused(tmp_path, tmp_path / "config.json", "label2id gives the label", "but id2label")


@pytest.mark.parametrize("family", ["roberta", "electra", "albert", "distilbert"])
def test_C15_a_classifier_without_what_it_reads_is_refused(family, tmp_path):
    encoder, names = shape_of(family).build(VOCABULARY), form_of(family)
    head = ClassificationHead(encoder.head, 2)
    huggingface.write(tmp_path, encoder, {"classification": head.state_dict()}, ("a", "b"))
    assert "classification" in huggingface.read(tmp_path).heads
    tensors, pooler = weights(tmp_path), names.head_pooler or names.pooler
    lost = {name for name in tensors if name.removeprefix(names.prefix).startswith(f"{pooler}.")}
    put(tmp_path, {name: value for name, value in tensors.items() if name not in lost})
    assert_read_refused(tmp_path, f"{pooler}.weight, which the classifier reads, is missing")


@pytest.mark.parametrize("shape", ["electra", "albert", "bert"])
def test_C15_the_pooler_that_a_head_reads_must_be_there(shape, tokenizer, tmp_path):
    encoder = small(BODIES[shape], layers=1).build(tokenizer.size)
    heads = {name: OBJECTIVES[name]().build(BuildContext(encoder)) for name in ("masked_lm", "sentence_order")}
    save_model(tmp_path, Model(encoder, tokenizer, {name: part.published() for name, part in heads.items()}), "")
    load_model(tmp_path)
    put(tmp_path, {name: value for name, value in weights(tmp_path).items() if "pooler" not in name})
    with pytest.raises(UserError, match=r"model.safetensors: the pooler that the sentence_order head reads is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize("shape", ["roberta", "electra", "distilbert", "bert"])
@pytest.mark.parametrize("head", ["next_sentence", "sentence_order"])
def test_a_head_that_reads_the_pooler_is_read_with_it(shape, head, tmp_path):
    encoder = small(BODIES[shape], layers=1).build(VOCABULARY)
    parts = {name: OBJECTIVES[name]().build(BuildContext(encoder)) for name in (head, "masked_lm")}
    huggingface.write(tmp_path, encoder, {name: part.published() for name, part in parts.items()})
    found = huggingface.read(tmp_path)
    assert found.heads.keys() == parts.keys()
    assert torch.equal(found.encoder["pooler.weight"], encoder.pooler.weight)
    assert torch.equal(found.encoder["pooler.bias"], encoder.pooler.bias)
    if (own := "unmask.pooler.weight") in (tensors := weights(tmp_path)):
        put(tmp_path, {**tensors, own: torch.zeros(3, 8)})
        assert_read_refused(tmp_path, own, "has shape (3, 8)")


@pytest.fixture
def pretrained(tokenizer, tmp_path):
    """Return a function that writes a model with changed tensors of a head, and returns one that evaluates it."""

    def write(head, **changes):
        encoder = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=12).build(tokenizer.size)
        part = OBJECTIVES[head]().build(BuildContext(encoder))
        save_model(tmp_path, Model(encoder, tokenizer, {head: part.published()}), "")
        kept = weights(tmp_path) | {f"unmask.{name}": value for name, value in changes.items()}
        put(tmp_path, {name: value for name, value in kept.items() if value is not None})
        (tmp_path / "text.txt").write_text("The dog. The cat.\n\nThe sea. The house.\n")
        return lambda: evaluate_encoder(load_model(tmp_path), [tmp_path / "text.txt"])

    return write


@pytest.mark.parametrize(
    ("head", "name", "value", "message"),
    [
        (
            "span_boundary",
            "span_boundary.first.weight",
            torch.zeros(3, 3),
            "first.weight of the span_boundary head has",
        ),
        ("span_boundary", "span_boundary.places.weight", torch.zeros(3), "the tensors of the span_boundary head are"),
        ("span_boundary", "span_boundary.bias", None, "bias of the span_boundary head is missing"),
        ("span_boundary", "span_boundary.more", torch.zeros(3), "more of the span_boundary head is unknown"),
        ("replaced_token", "replaced_token.generator.dense.weight", torch.zeros(3), "the replaced_token head"),
        ("replaced_token", "replaced_token.generator.dense.weight", torch.zeros(4, 99), "the tensors of the replaced"),
        ("replaced_token", "replaced_token.generator.bias", None, "generator.bias of the replaced_token head is miss"),
        (
            "replaced_token",
            "replaced_token.generator.bias",
            torch.zeros(7),
            r"generator.bias of the replaced_token head has shape \(7,\), but its settings imply",
        ),
        ("span_boundary", "nonsense.a", torch.zeros(3), "unknown head 'nonsense'"),
    ],
)
def test_C15_damaged_heads_of_ours_are_refused(pretrained, head, name, value, message):
    with pytest.raises(UserError, match=message):
        pretrained(head, **{name: value})()


def test_a_generator_with_another_vocabulary_cannot_be_trained_further(pretrained, corpus, tmp_path):
    pretrained("replaced_token", **{"replaced_token.generator.bias": torch.zeros(7)})
    recipe = read_recipe("electra-mini", parse_overrides(["layout.length=12", "budget.steps=1"]))
    with pytest.raises(UserError, match=r"generator.bias of the replaced_token head has shape \(7,\)"):
        pretrain_corpus(
            recipe, corpus, tmp_path / "run", init=tmp_path, machine=choose_machine("cpu", "float32"), quiet=True
        )
    assert not (tmp_path / "run").exists()


def test_a_head_with_other_settings_cannot_be_trained_further(pretrained, tmp_path):
    pretrained("span_boundary")
    other = OBJECTIVES["span_boundary"](places=10)
    base = load_model(tmp_path)
    with pytest.raises(UserError, match=r"places.weight of the span_boundary head has shape .* use the settings of"):
        base.take("span_boundary", other.build(BuildContext(base.encoder)))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"labels_map": {"bad": 1, "good": 0}, "labels_list": ["good", "bad"]}, ("good", "bad")),
        ({"labels_list": ["O", "B-PER"], "labels_map": {}}, ("O", "B-PER")),
        ({"labels_list": [0, 1]}, ("0", "1")),
        ({"labels_list": [], "labels_map": {}}, ("LABEL_0", "LABEL_1")),
        ({"max_seq_length": 128}, ("LABEL_0", "LABEL_1")),
    ],
)
@pytest.mark.parametrize("names", [{"0": "LABEL_0", "1": "LABEL_1"}, {"0": "no", "1": "yes"}])
def test_labels_that_simpletransformers_names(tokenizer, tmp_path, arguments, expected, names):
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    configure(tmp_path, id2label=names)
    (tmp_path / "model_args.json").write_text(json.dumps(arguments))
    expected = expected if "LABEL_0" in names.values() else ("no", "yes")
    assert huggingface.read(tmp_path).labels == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"labels_list": ["a", "b", "c"]},
        {"labels_list": "ab"},
        {"labels_map": {"a": 0, "b": 2}},
        {"labels_map": {"a": 0, "b": 0}},
        {"labels_map": {"a": "0", "b": [1]}},
    ],
)
def test_labels_of_simpletransformers_that_do_not_fit(tokenizer, tmp_path, arguments):
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    configure(tmp_path, id2label={"0": "LABEL_0", "1": "LABEL_1"})
    (tmp_path / "model_args.json").write_text(json.dumps(arguments))
    assert_read_refused(tmp_path, "model_args.json", "2 outputs")


@pytest.mark.parametrize(
    ("architecture", "arguments", "problem", "expected"),
    [
        ("BertForMultiLabelSequenceClassification", {}, None, "multi_label"),
        ("BertForMultilabelSequenceClassification", {}, None, "multi_label"),
        ("BertForMultiLabelSequenceClassification", {}, "single_label_classification", "classification"),
        ("BertForSequenceClassification", {"model_class": "MultiLabelClassificationModel"}, None, "multi_label"),
        ("BertForSequenceClassification", {"model_class": "ClassificationModel"}, None, "classification"),
    ],
)
def test_classes_that_decide_on_each_label(tokenizer, tmp_path, architecture, arguments, problem, expected):
    """Their config.json has no `problem_type`: read as one of several labels, they would predict other ones."""
    save_model(tmp_path, model(tokenizer, heads=(), labels=("a", "b")), "card")
    configure(tmp_path, architectures=[architecture], problem_type=problem)
    (tmp_path / "model_args.json").write_text(json.dumps(arguments))
    assert set(huggingface.read(tmp_path).heads) == {expected}
