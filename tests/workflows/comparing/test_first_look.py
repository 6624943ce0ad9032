"""A first look: features, scores and ranking beside plain computations, for each task; and what is refused."""

import json

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.predictor import Predictor
from unmask.metrics.transferability import h_score, log_evidence
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.encoder import Keep
from unmask.support.errors import UserError
from unmask.tasks.rows import as_rows
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import choose_machine
from unmask.workflows.auditing.out_of_fold import word_vectors
from unmask.workflows.comparing.first_look import first_look, text_features

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
CPU = choose_machine("cpu", "float32")


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """Three random models: of the first one, all tokens have the same features but for their positions."""
    folder, paths = tmp_path_factory.mktemp("models"), []
    for number, std in enumerate((1e-4, 0.2, 0.4)):
        torch.manual_seed(number)
        settings = BertSettings(
            layers=1 + number, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=std
        )
        encoder = settings.build(tokenizer.size)
        if not number:
            torch.nn.init.zeros_(encoder.words.weight)
        save_model(folder / str(number), Model(encoder, tokenizer), "")
        paths.append(folder / str(number))
    return paths


@pytest.fixture
def texts(documents):
    return [text[: 20 + number] for number, text in enumerate(documents[:60])]


@torch.no_grad()
def plain_features(model, text, text_b=None):
    """Return the mean over tokens and layers of texts that are read alone."""
    ids = [model.tokenizer.encode(each) for each in (text, text_b) if each is not None]
    sample = Frame.of(model.tokenizer).wrap(*ids)
    ordinary = ~np.isin(sample.ids, [model.tokenizer.cls, model.tokenizer.sep])
    numbers = range(1, model.encoder.num_layers + 1)
    layers = model.encoder.eval()(collate([sample]).tokens, Keep(frozenset(numbers))).layers
    return np.mean([layers[number][torch.from_numpy(ordinary)].mean(0).numpy() for number in numbers], 0)


@pytest.mark.parametrize("pairs", [False, True])
def test_features_of_texts_are_means_over_layers_and_tokens(models, texts, pairs):
    model, notes = load_model(models[2]), []
    short = [text[:30] for text in texts]
    seconds = [text[:12] for text in texts[::-1]] if pairs else None
    features = text_features(TorchBackend(model, CPU), as_rows(short, seconds), notes)
    expected = [plain_features(model, *each) for each in zip(short, *([seconds] if pairs else []), strict=True)]
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert notes == []


def test_long_and_empty_texts(models):
    model, notes = load_model(models[1]), []
    features = text_features(TorchBackend(model, CPU), as_rows(["the dog " * 40, " "]), notes)
    assert notes == ["1 of 2 texts is longer than 32 tokens, and was truncated"]
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[0], plain_features(model, "the dog " * 15), atol=1e-5)


def test_classes_are_ranked_by_the_h_score(models, texts):
    labels = ["long" if len(text) > 50 else "short" for text in texts]
    found = first_look(models, {"text": texts, "label": labels}, "classification", **HERE)
    assert (found.task, found.examples) == ("classification", 60)
    scores = [look.h_score for look in found.ranking]
    assert scores == sorted(scores, reverse=True)
    assert {look.model for look in found.ranking} == set(map(str, models))
    for look in found.ranking:
        features = text_features(TorchBackend(load_model(look.model), CPU), as_rows(texts), [])
        classes = (np.array(labels) == "short").astype(int)
        assert look.h_score == pytest.approx(h_score(features, classes))
        assert look.logme == pytest.approx(log_evidence(features, np.eye(2)[classes]))
        assert look.seconds > 0


def test_features_that_know_the_words_are_ranked_first(models, documents):
    """Each label is of a word, which the first model does not read."""
    texts = [text for text in documents if ("dog" in text) != ("sea" in text)]
    labels = ["dog" if "dog" in text else "sea" for text in texts]
    found = first_look(models, {"text": texts, "label": labels}, "classification", **HERE)
    assert found.ranking[-1].model == str(models[0])


def test_several_labels_are_averaged(models, texts):
    labels = [[name for name in ("dog", "cat", "e") if name in text] for text in texts]
    found = first_look(models[1:], {"text": texts, "label": labels}, "multi-label", **HERE)
    every = np.array([["cat" in row, "dog" in row] for row in labels]).astype(float)
    for look in found.ranking:
        features = text_features(TorchBackend(load_model(look.model), CPU), as_rows(texts), [])
        assert look.h_score == pytest.approx(np.mean([h_score(features, column) for column in every.T]))
        assert look.logme == pytest.approx(log_evidence(features, every))
    assert "labels that all examples have are left out: e" in found.notes


def test_numbers_are_ranked_by_logme_whatever_their_unit(models, texts):
    lengths = np.array([float(len(text)) for text in texts])
    found, other = (
        first_look(models, {"text": texts, "label": values}, "regression", **HERE)
        for values in (lengths.tolist(), (1000 * lengths - 7).tolist())
    )
    assert [look.h_score for look in found.ranking] == [None] * 3
    scores = [look.logme for look in found.ranking]
    assert scores == sorted(scores, reverse=True)
    assert [look.logme for look in other.ranking] == pytest.approx(scores)


def test_words_have_the_features_of_their_first_tokens(models, tmp_path):
    path = tmp_path / "a.conll"
    lines = ["the O", "dog B-X", "", "river I-X", "sees O", "bridge B-X", ""] * 20
    path.write_text("\n".join(lines))
    found = first_look(models[2:], path, "token-classification", examples=30, **HERE)
    assert found.examples == 30
    assert "30 of 40 examples, drawn at random" in found.notes
    predictor = Predictor(load_model(models[2]), CPU)
    sentences = TokenClassification().read([path], columns={})
    layers = range(1, predictor.model.encoder.num_layers + 1)
    features = word_vectors(predictor.backend, sentences, ("O", "B-X", "I-X"), layers)
    words = [states for sentence in sentences for states in first_rows(predictor, sentence)]
    np.testing.assert_allclose(features, words, atol=1e-5)


def first_rows(predictor, sentence):
    """Return the mean over layers of the first token of each word, read alone."""
    features = predictor.features(" ".join(sentence.words), range(1, 4))
    firsts = np.unique(features.word_ids.numpy(), return_index=True)[1][1:]  # without the special tokens
    return features.values.numpy()[firsts].mean(1)


def test_the_same_examples_are_drawn_each_time(models, texts):
    data = {"text": texts, "label": ["a", "b", "c"] * 20}
    looks = [first_look(models[1:], data, "classification", examples=25, **HERE) for _ in range(2)]
    assert looks[0].examples == 25
    assert [look.h_score for look in looks[0].ranking] == [look.h_score for look in looks[1].ranking]
    assert looks[0].notes == ["25 of 60 examples, drawn at random"]


def test_bad_input_is_refused(models, texts, tmp_path):
    good = {"text": texts, "label": ["a", "b"] * 30}
    for data, other, message in (
        ({**good, "label": ["a"] * 60}, {}, "all 60 examples have the label 'a'"),
        ({**good, "label": list(map(str, range(60)))}, {}, "60 examples have 60 different labels"),
        ({**good, "label": [3.0] * 60}, {"task": "regression"}, "equal|same"),
        ({**good, "label": [["a"]] * 60}, {"task": "multi-label"}, "same labels"),
        ({**good, "label": [{"a": 0.5, "b": 0.5}] * 60}, {}, "probabilities"),
        (good, {"examples": 1}, "examples=1: not a whole number of 2 or more"),
        (good, {"task": "spans"}, 'task="spans": unknown'),
        (good, {"columns": {"weight": "label"}}, "features are judged by all examples alike"),
        (good, {"models": []}, "a list of models is needed"),
        (good, {"models": str(models[0])}, "a list of models is needed"),
        (good, {"models": [*models, None]}, "a NoneType is given, where a model is expected"),
    ):
        arguments = {"models": models, "train": data, "task": "classification", **HERE, **other}
        with pytest.raises(UserError, match=message):
            first_look(**arguments)
    path = tmp_path / "a.conll"
    path.write_text("the O\ndog O\n\n")
    with pytest.raises(UserError, match=r"a\.conll"):
        first_look(models, path, "token-classification", **HERE)


def test_features_that_are_no_numbers_are_refused(models, texts, tmp_path):
    model = load_model(models[1])
    with torch.no_grad():
        for weight in model.encoder.blocks[0].feed_forward.parameters():
            weight.mul_(1e38)
    save_model(tmp_path / "damaged", model, "")
    with pytest.raises(UserError, match="outputs are not numbers"):
        first_look([tmp_path / "damaged"], {"text": texts, "label": ["a", "b"] * 30}, "classification", **HERE)


@pytest.mark.parametrize("task", ["classification", "multi-label", "regression"])
def test_texts_with_the_same_features_are_refused(task, models, tmp_path):
    """Texts may differ only after what the model reads, or in words that it does not know."""
    path = tmp_path / "rows.jsonl"
    labels = {"classification": ["a", "b"], "multi-label": [["a"], ["a", "b"]], "regression": [1, 2]}[task]
    for texts in ([f"{'dog ' * 100}{number}" for number in range(12)], [chr(0x4E00 + number) for number in range(12)]):
        rows = [{"text": text, "label": labels[number % 2]} for number, text in enumerate(texts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(UserError, match=f"{models[1]}: all examples have the same features"):
            first_look([models[1]], path, task, **HERE)


def test_numbers_of_any_size_are_scaled(models, documents, tmp_path):
    rng, path, scores = np.random.default_rng(0), tmp_path / "rows.tsv", []
    values = rng.standard_normal(60)
    for factor in (1.0, 1e12, 1e-30, 1e-200, 1e-300):
        rows = [f"{text}\t{factor * value!r}\n" for text, value in zip(documents[:60], values.tolist(), strict=True)]
        path.write_text("text\tlabel\n" + "".join(rows))
        scores.append(first_look([models[1]], path, "regression", **HERE).ranking[0].logme)
    np.testing.assert_allclose(scores, scores[0], rtol=1e-6)


@pytest.mark.parametrize("examples", [2.5, "x", float("nan"), 1, -3])
def test_numbers_of_examples_that_are_none_are_refused(examples, models):
    with pytest.raises(UserError, match="examples"):
        first_look(models, "rows.tsv", "classification", examples=examples, **HERE)
