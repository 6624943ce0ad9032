"""Predictions by names of labels: what is refused, what is truncated, and how templates are tokenized."""

import json
import random

import numpy as np
import pytest
import torch

import unmask
from unmask.data.batches.masking import MASKED
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.inference import fill, zero_shot
from unmask.inference.entailment import entailment_classes
from unmask.inference.predictor import Predictor
from unmask.inference.zero_shot import ClozeLabel, by_labels, label_tokens, read_labels
from unmask.model.model import Model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.tasks.classification import Classification
from unmask.tasks.rows import as_rows

from .conftest import CPU, SETTINGS

NLI = ("entailment", "neutral", "contradiction")
LABELS = ("dog", "garden near the river")


@pytest.fixture
def entailing(tokenizer):
    task, encoder = Classification(length=30, pairs=True), SETTINGS.build(tokenizer.size)
    return Model(encoder, tokenizer, {task.part: task.build(encoder.head, NLI).published()}, NLI, task)


@pytest.fixture
def masked(tokenizer):
    encoder = SETTINGS.build(tokenizer.size)
    return Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).published()})


@pytest.fixture
def texts(documents):
    rng = random.Random(0)
    words = " ".join(documents).split()
    return [" ".join(rng.choices(words, k=rng.randint(1, 60))) for _ in range(60)]


@pytest.mark.parametrize("train", [train_wordpiece, train_bpe, train_unigram])
@pytest.mark.parametrize("template", ["It is about {}.", "{}: all of it", "a ({}) text"])
def test_a_cloze_has_the_tokens_of_the_whole_text(documents, texts, train, template):
    tokenizer = train(documents, size=300)
    task = ClozeLabel(length=1000, pairs=False, template=template)
    tokens = label_tokens(tokenizer, template, LABELS)
    numbers = sorted(set(map(len, tokens)))
    framed = task.frame(tokenizer, as_rows(texts), LABELS, gold=False)
    samples = framed.samples[3 * len(numbers) :]
    for index, text in enumerate(texts):
        for at, number in enumerate(numbers):
            sample = samples[index * len(numbers) + at]
            whole = f"{text} {template.replace('{}', tokenizer.mask_token * number)}"
            assert sample.ids[1:-1].tolist() == tokenizer.encode(whole).tolist()
            assert (sample.ids[sample.positions[MASKED]] == tokenizer.mask).all()
            assert len(sample.positions[MASKED]) == number
    for label, ids in zip(LABELS, tokens, strict=True):
        filled = tokenizer.encode(f"a {template.replace('{}', label)}").tolist()
        assert any(filled[at : at + len(ids)] == ids.tolist() for at in range(len(filled)))


def test_texts_are_truncated_and_templates_are_not(entailing, masked, texts):
    for model, length in ((entailing, 30), (masked, 32)):
        predictor = by_labels(Predictor(model, CPU), LABELS)
        framed = predictor.task.frame(model.tokenizer, as_rows(texts), LABELS, gold=False)
        assert max(map(len, framed.samples)) == length
        tails = {tuple(sample.ids[-4:].tolist()) for sample in framed.samples}
        assert len(tails) == len(LABELS), "how the template ends, with each label"
        number = sum(framed.cut)
        assert 20 < number < 60
        assert f"{number} of 60 texts are longer than {length} tokens with the template and were cut" in framed.notes
        with pytest.warns(unmask.InputWarning, match=f"{number} of 60 texts"):
            predictions = predictor.predict(texts)
        assert [prediction.cut for prediction in predictions] == framed.cut
        for text, prediction in zip(texts, predictions, strict=True):
            assert prediction.text == text
            assert sum(prediction.scores.values()) == pytest.approx(1)


def test_windows_and_blocks_change_nothing(masked, entailing, texts, monkeypatch):
    for model in (masked, entailing):
        expected = by_labels(Predictor(model, CPU), LABELS).run(as_rows(texts))
        with monkeypatch.context() as patch:
            patch.setattr(zero_shot, "MAX_SAMPLES", 14)
            patch.setattr(fill, "MAX_LOGITS", 5 * model.tokenizer.size)
            notes = []
            predictor = by_labels(Predictor(model, CPU), LABELS)
            assert predictor.window == 7
            found = predictor.run(as_rows(texts), notes)
        assert len(notes) == 1
        for one, other in zip(expected, found, strict=True):
            assert one.scores == pytest.approx(other.scores, abs=1e-6)


def test_frequent_labels_do_not_win(masked, texts):
    """With a bias for the token of a label, the calibrated scores stay; those of the model would be its alone."""
    tokenizer = masked.tokenizer
    dog = tokenizer.encode("dog")
    plain = by_labels(Predictor(masked, CPU), ["dog", "cat"]).run(as_rows(texts))
    heads = {name: value.clone() for name, value in masked.heads["masked_lm"].items()}
    (bias,) = (value for value in heads.values() if value.shape == (tokenizer.size,))
    bias[torch.from_numpy(dog)] += 5
    biased = Model(masked.encoder, tokenizer, {"masked_lm": heads})
    for one, other in zip(plain, by_labels(Predictor(biased, CPU), ["dog", "cat"]).run(as_rows(texts)), strict=True):
        assert np.log(one.scores["dog"] / one.scores["cat"]) == pytest.approx(
            np.log(other.scores["dog"] / other.scores["cat"]), abs=0.7
        ), "5 without calibration"


def test_a_file_is_predicted(masked, texts, tmp_path):
    save_model(tmp_path / "model", masked, "card")
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    options = {"labels": ["dog,cat"], "out": tmp_path / "out.jsonl", "quiet": True}
    unmask.predict(tmp_path / "model", tmp_path / "texts.txt", **options)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == texts
    assert all(line["scores"].keys() == {"dog", "cat"} for line in lines)
    unmask.predict(tmp_path / "model", tmp_path / "texts.txt", **options | {"out": tmp_path / "out.csv"})
    assert (tmp_path / "out.csv").read_text().startswith("text,predicted,scores:dog,scores:cat")


def test_other_labels_do_not_continue_a_file(masked, texts, tmp_path, monkeypatch):
    save_model(tmp_path / "model", masked, "card")
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    monkeypatch.setattr(zero_shot, "MAX_SAMPLES", 14)
    stream = zero_shot.LabelPredictor.stream

    def interrupted(predictor, examples, notes=None, explain=None):
        yield next(stream(predictor, examples, notes, explain=explain))
        raise KeyboardInterrupt

    options = {"out": tmp_path / "out.jsonl", "quiet": True}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(zero_shot.LabelPredictor, "stream", interrupted)
        unmask.predict(tmp_path / "model", tmp_path / "texts.txt", labels="dog,cat", **options)
    with pytest.raises(unmask.UserError, match=r"the interrupted run was another one: .*labels"):
        unmask.predict(tmp_path / "model", tmp_path / "texts.txt", labels="dog,poem", resume=True, **options)
    with pytest.raises(unmask.UserError, match=r"the interrupted run was another one: .*template"):
        other = {"labels": "dog,cat", "template": "a {}", "resume": True}
        unmask.predict(tmp_path / "model", tmp_path / "texts.txt", **other, **options)
    unmask.predict(tmp_path / "model", tmp_path / "texts.txt", labels="dog,cat", resume=True, **options)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(texts)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (NLI, (0, 2)),
        (("contradiction", "entailment", "neutral"), (1, 0)),
        (("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), (2, 0)),
        (("entailment", "not_entailment"), (0, 1)),
        (("contradiction", "entails", "other"), (1, 0)),
    ],
)
def test_labels_of_entailment_are_recognized_by_their_names(labels, expected):
    assert entailment_classes(labels, True) == expected


@pytest.mark.parametrize(
    "labels", [("0", "1", "2"), ("yes", "no"), ("entailment", "a", "b", "c"), ("neutral", "other")]
)
def test_other_labels_are_refused(labels):
    with pytest.raises(unmask.UserError, match="needs a model of entailment, but the labels of this one are"):
        entailment_classes(labels, False)


def test_a_single_string_has_the_labels_separated_by_commas():
    assert read_labels("sports, politics,art") == read_labels(["sports, politics,art"]) == ("sports", "politics", "art")
    assert read_labels(["the sea, or not", "a"]) == ("the sea, or not", "a")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("masked", {"labels": "one"}, "at least two names are needed"),
        ("masked", {"labels": ""}, "at least two names are needed"),
        ("masked", {"labels": []}, "at least two names are needed"),
        ("masked", {"labels": "one,,two"}, "none of them empty"),
        ("masked", {"labels": ["one", "One "]}, "two are equal"),
        ("masked", {"labels": "a,b", "template": "no slot"}, r"one {} must stand for the label"),
        ("masked", {"labels": "a,b", "template": "{} and {}"}, r"one {} must stand for the label"),
        ("masked", {"labels": "a,b", "multi_label": True}, "multi_label needs a model of entailment"),
        ("masked", {"labels": "a,\u4f60"}, "lacks characters of the label '\u4f60'"),
        ("masked", {"labels": "dog,cat", "template": "[MASK] is {}"}, "{} becomes the mask; remove the other one"),
        ("masked", {"labels": "dog,cat", "template": "near the river " * 20 + "{}"}, "none of the 32 of the model"),
        ("masked", {"template": "It is {}"}, "at least two names are needed"),
        (
            "masked",
            {"labels": "dog,cat", "texts": ["a"], "text_b": ["b"]},
            "labels are predicted of single texts, but this is a pair",
        ),
        ("regression", {"labels": "a,b"}, "needs a classifier of pairs with the labels of entailment, or a masked"),
        ("classification", {"labels": "a,b"}, "the labels of this one are no, yes; if it is one, name them"),
    ],
)
def test_mistakes_are_errors(make, masked, tmp_path, model, options, message):
    save_model(tmp_path / "model", masked if model == "masked" else make(model), "card")
    with pytest.raises(unmask.UserError, match=message):
        unmask.predict(tmp_path / "model", **{"texts": ["the dog"], "quiet": True, **options})
