"""Explanations of predictions: what words contribute to them; tests/parity compares the values with transformers."""

import json
import warnings

import msgspec
import numpy as np
import pytest
import torch

from unmask.cli.main import main
from unmask.data.tokenizers.word_level import train_words
from unmask.families.elmo import ElmoSettings
from unmask.inference import explanation
from unmask.inference.calls import predict
from unmask.inference.explanation import TOLERANCE, Explainer, is_complete
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, save_model
from unmask.support.errors import InputWarning, UserError
from unmask.tasks.classification import Classification
from unmask.tasks.token_classification import TokenClassification
from unmask.workflows.formats import export

from .conftest import BF16, CPU, LSTM, TEXTS

WORDS = ["the", "dog", "sees", "a", "cat", "near", "sea", "garden", "poem", "letter", "under", "tree", "unseen", ","]


def texts_of(count, seed=0, most=9):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, most))) for _ in range(count)]


def total(explained):
    return sum(word.contribution for word in explained.words)


@pytest.mark.parametrize("downstream", [None, LSTM], ids=["", "rnn"])
@pytest.mark.parametrize("kind", ["classification", "regression", "token-classification"])
def test_integrated_gradients_add_up_to_the_difference_from_all_words_masked(make, kind, downstream):
    model = make(kind, downstream)
    predictor, mask = Predictor(model, CPU), model.tokenizer.mask
    texts = texts_of(20, most=7)
    predictions = predictor.predict(texts, explain="integrated-gradients")
    framed = model.task.frame(model.tokenizer, model.task.from_texts(texts), model.labels, gold=False)
    explained = 0
    for number, sample in enumerate(framed.samples):
        words = framed.words(number)
        masked = sample.changed(ids=np.where(words.index >= 0, mask, sample.ids))
        logits = [torch.from_numpy(rows) for rows in predictor.backend.logits(model.task.part, [sample, masked])]
        decisions = model.task.decisions(logits[0].numpy(), model.labels)
        found = predictions[words.example].explanations
        assert len(found) == len(decisions)
        for decision, explanation_of in zip(decisions, found, strict=True):
            whole, baseline = (decision.value(rows).item() for rows in logits)
            assert (explanation_of.value, explanation_of.baseline) == pytest.approx((whole, baseline), abs=1e-4)
            difference = whole - baseline
            assert abs(total(explanation_of) - difference) <= TOLERANCE * max(1, abs(difference)) + 1e-4
            explained += 1
    assert explained >= 15


def test_what_does_not_add_up_is_noted(make, monkeypatch):
    monkeypatch.setattr(explanation, "STEPS", (1,))
    monkeypatch.setattr(explanation, "TOLERANCE", 1e-9)
    notes = []
    predictor = Predictor(make(), CPU)
    predictions = predictor.run(predictor.task.from_texts(TEXTS), notes, explain="integrated-gradients")
    assert not any(is_complete(prediction.explanations[0]) for prediction in predictions)
    assert "4 of 4 explanations" in notes[-1] and "after 1 steps" in notes[-1]


def test_explanations_change_no_prediction_and_name_the_words_as_given(make):
    predictor = Predictor(make(), CPU)
    texts = [f"  {text.title()}!" for text in texts_of(60)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        plain, explained = predictor.predict(texts), predictor.predict(texts, explain="occlusion")
    for before, after in zip(plain, explained, strict=True):
        assert msgspec.structs.replace(after, explanations=()) == before
        (found,) = after.explanations
        assert found.label == after.label
        assert found.value == pytest.approx(
            np.log(after.scores[after.label] / (1 - after.scores[after.label])), abs=1e-3
        )
        words = [after.text[word.start : word.end] for word in found.words]
        expected = after.text.replace(",", " , ").replace("!", " !").split()
        assert words == expected[: len(words)]
        assert after.cut or words == expected


def test_a_text_without_words_and_one_word(make):
    predictor = Predictor(make(), CPU)
    for method in ("occlusion", "integrated-gradients"):
        with pytest.warns(InputWarning, match="1 of 2 texts is empty"):
            empty, single = predictor.predict(["", "dog"], explain=method)
        assert [len(one.explanations[0].words) for one in (empty, single)] == [0, 1]
    assert total(single.explanations[0]) == pytest.approx(
        single.explanations[0].value - single.explanations[0].baseline, abs=0.02
    )


def test_a_pair_is_explained_by_the_words_of_both_texts_that_were_read(make):
    predictor = Predictor(make(), CPU)
    with pytest.warns(InputWarning, match="cut"):
        (found,) = predictor.predict(["the dog"], ["the cat near the sea " * 4], explain="occlusion")
    words = found.explanations[0].words
    assert [word.text for word in words] == [0] * 2 + [1] * (len(words) - 2)
    assert [found.text_b[word.start : word.end] for word in words if word.text] == found.text_b.split()[
        : len(words) - 2
    ]
    assert len(words) <= 12 - 3


def test_each_tag_of_a_long_sentence_is_explained_in_its_window(make):
    predictor = Predictor(make("token-classification"), CPU)
    text = " ".join(texts_of(3, seed=5, most=12))
    (found,) = predictor.predict([text], explain="occlusion")
    scores = found.scores
    tagged = [number for number, row in enumerate(scores.logits) if scores.labels[row.argmax()] != "O"]
    assert len(found.explanations) == len(tagged) > 0
    assert [(one.start, one.end) for one in found.explanations] == sorted(
        (one.start, one.end) for one in found.explanations
    )
    for one, number in zip(found.explanations, tagged, strict=True):
        assert one.label == scores.labels[scores.logits[number].argmax()]
        assert len(one.words) <= 10 and any((word.start, word.end) == (one.start, one.end) for word in one.words)


@pytest.fixture
def elmo():
    """Build an ELMo with the head of a task."""

    def build(task, labels):
        torch.manual_seed(0)
        words = train_words(["the dog sees the cat"], size=20)
        encoder = ElmoSettings(width=8, cells=8, filters=((1, 4), (2, 4)), characters=4).build(words.size)
        for parameter in encoder.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        return Model(encoder, words, {task.part: task.build(encoder.head, labels).published()}, labels, task)

    return build


def test_words_are_removed_for_elmo_whose_gradients_are_refused(elmo):
    predictor = Predictor(elmo(Classification(length=12), ("no", "yes")), CPU)
    words = ["the", "dog", "sees", "a", "cat"]
    (found,) = predictor.predict([" ".join(words)], explain="auto")
    (explained,) = found.explanations
    assert explained.baseline is None
    for number, word in enumerate(explained.words):
        shorter = predictor.predict([" ".join(words[:number] + words[number + 1 :])])[0].scores[found.label]
        assert word.contribution == pytest.approx(explained.value - np.log(shorter / (1 - shorter)), abs=1e-3)
    with pytest.raises(UserError, match=r"this model reads characters \(ELMo\); pass explain=\"occlusion\""):
        predictor.predict(["the dog"], explain="integrated-gradients")
    tagger = Predictor(elmo(TokenClassification(length=12), ("B-X", "I-X")), CPU)
    with pytest.raises(UserError, match=r"the word itself cannot be removed$"):
        tagger.predict(["the dog"], explain="auto")


def test_what_cannot_be_explained_is_refused(make):
    reader = Predictor(make("question-answering"), CPU)
    with pytest.raises(UserError, match="predictions of question answering are not explained; those of classification"):
        reader.run([reader.question("who?", "the dog")], explain="occlusion")
    model = make()
    windows = Model(model.encoder, model.tokenizer, model.heads, model.labels, Classification(length=12, windows=2))
    assert Predictor(windows, CPU).predict(["the dog"], explain="occlusion")[0].explanations
    with pytest.raises(UserError, match="are computed in float32, not bf16"):
        Predictor(model, BF16).predict(["the dog"], explain="integrated-gradients")
    assert Predictor(model, BF16).predict(["the dog"], explain="auto")[0].explanations[0].baseline is None
    with pytest.raises(UserError, match="explain"):
        Predictor(model, CPU).predict(["the dog"], explain="lime")


def test_an_exported_model_is_explained_by_occlusion(make, tmp_path):
    pytest.importorskip("onnxruntime")
    save_model(tmp_path / "model", make(), "")
    export(tmp_path / "model", tmp_path / "exported", "onnx")
    exported, original = load(tmp_path / "exported"), Predictor(make(), CPU)
    with pytest.raises(UserError, match="need the weights"):
        exported.predict(TEXTS, explain="integrated-gradients")
    for ours, theirs in zip(
        exported.predict(TEXTS, explain="auto"), original.predict(TEXTS, explain="occlusion"), strict=True
    ):
        pairs = zip(ours.explanations[0].words, theirs.explanations[0].words, strict=True)
        assert all(first.contribution == pytest.approx(second.contribution, abs=1e-4) for first, second in pairs)


def test_the_number_of_scores_is_bounded(make, monkeypatch):
    monkeypatch.setattr(explanation, "MAX_OCCLUDED", 7)
    predictor = Predictor(make(), CPU)
    predictor.predict(["the dog"], explain="occlusion")  # 2 words, 3 × 2 scores
    with pytest.warns(InputWarning, match="^1 of 2 texts has too many words to be explained, with so many scores"):
        long, short = predictor.predict(["the dog sees", "the dog"], explain="occlusion")
    assert not long.explanations and short.explanations


@pytest.mark.parametrize("method", ["occlusion", "integrated-gradients"])
def test_texts_in_several_windows_are_left_out_and_the_others_explained(make, method):
    model = make()
    windows = Model(model.encoder, model.tokenizer, model.heads, model.labels, Classification(length=12, windows=2))
    texts = ["the dog", "the dog " * 7, "the cat near the sea", "a tree " * 7]
    with pytest.warns(InputWarning, match="2 of 4 texts are read in several windows of 12 tokens, and are"):
        found = Predictor(windows, CPU).predict(texts, explain=method)
    alone = Predictor(windows, CPU).predict(texts[::2], explain=method)
    assert [bool(of.explanations) for of in found] == [True, False, True, False]
    for together, single in zip(found[::2], alone, strict=True):
        (ours,), (theirs,) = together.explanations, single.explanations
        assert ours.label == theirs.label and ours.value == pytest.approx(theirs.value, abs=1e-4)
        pairs = zip(ours.words, theirs.words, strict=True)
        assert all(first.contribution == pytest.approx(second.contribution, abs=1e-3) for first, second in pairs)


def test_explanations_are_written_and_printed(make, tmp_path, capsys):
    save_model(tmp_path / "model", make(), "")
    texts = texts_of(5, most=6)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text, "id": text[:2]}) + "\n" for text in texts))
    options = {"device": "cpu", "quiet": True, "explain": "occlusion"}
    predict(tmp_path / "model", tmp_path / "in.jsonl", out=tmp_path / "out.jsonl", **options)
    expected = Predictor(make(), CPU).predict(texts, explain="occlusion")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [text[:2] for text in texts]
    for line, prediction in zip(lines, expected, strict=True):
        (found,), (wanted,) = line["explanations"], prediction.explanations
        assert found["label"] == wanted.label
        assert [(word["start"], word["end"]) for word in found["words"]] == [(w.start, w.end) for w in wanted.words]
        values = [word["contribution"] for word in found["words"]]
        assert values == pytest.approx([word.contribution for word in wanted.words], abs=1e-5)
    for name in ("out.csv", "out.doccano.jsonl", "out"):
        with pytest.raises(UserError, match="explanations are not written in this format"):
            predict(tmp_path / "model", tmp_path / "in.jsonl", out=tmp_path / name, **options)
    assert main(["predict", "--model", str(tmp_path / "model"), "--explain", "occlusion", "the dog sees"]) == 0
    label, _, text, marked = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (label, text) == (Predictor(make(), CPU).predict("the dog sees")[0].label, "the dog sees")
    head, marked = marked.split(": ")
    assert head == label
    assert marked != text and marked.replace("{+", "").replace("+}", "").replace("[-", "").replace("-]", "") == text


def test_explaining_uses_no_random_numbers_and_leaves_the_model_as_it_is(make):
    model = make(downstream=LSTM)
    before, weights = torch.get_rng_state(), {name: value.clone() for name, value in model.encoder.state_dict().items()}
    predictor = Predictor(model, CPU)
    first, second = (predictor.predict(TEXTS, explain="integrated-gradients") for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(weights[name], value) for name, value in model.encoder.state_dict().items())
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert isinstance(Explainer(model, model.task, predictor.backend).reads_masks, bool)
