"""A predictor never changes the model and uses no random numbers; it warns of texts that it truncates."""

import json
import warnings
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

import unmask
from unmask.cli.main import main
from unmask.data.labelled.labelled_file import Row
from unmask.inference.backend import BATCH_TOKENS
from unmask.inference.evaluation.scoring import evaluate_encoder, evaluate_task
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, save_model
from unmask.support.errors import InputWarning
from unmask.tasks.classification import Classification

from .conftest import BF16, CPU, LSTM, TASKS, TEXTS


def ask(predictor, kind):
    """Return the results of all that a predictor does."""
    if kind == "question-answering":
        used = [predictor.answer("who?", "the dog sees the cat")]
    else:
        used = predictor.predict(TEXTS)
    features = predictor.features(TEXTS, (0, -1)).values.tolist()
    return msgspec.to_builtins([used, predictor.fill(["The [MASK] sees."]), features])


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("downstream", [None, LSTM], ids=["", "rnn"])
@pytest.mark.parametrize("kind", TASKS)
def test_two_calls_are_identical_and_use_no_random_numbers(make, kind, downstream, precision):
    before = torch.get_rng_state()
    model = make(kind, downstream)
    torch.set_rng_state(before)
    predictor = Predictor(model, CPU if precision == "float32" else BF16)
    first, second = ask(predictor, kind), ask(predictor, kind)
    assert first == second
    assert first == ask(Predictor(model, predictor.backend.machine), kind)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("machine", [CPU, BF16], ids=["float32", "bf16"])
def test_the_model_is_not_changed(make, tmp_path, machine):
    def state(model):
        own = [(one.dtype, one.device, one.requires_grad, one.data_ptr()) for one in model.encoder.parameters()]
        return own, [module.training for module in model.encoder.modules()], model.fingerprint()

    model = make(downstream=LSTM)
    before = state(model)
    ask(Predictor(model, machine), "classification")
    (tmp_path / "text.txt").write_text("The dog sees the cat. The cat sees the dog.\n")
    evaluate_encoder(without_task(model), [tmp_path / "text.txt"], machine=machine)
    assert state(model) == before
    assert all(module.training for module in model.encoder.modules())


def without_task(model):
    """Return the model without its task, as pretraining leaves it."""
    return Model(model.encoder, model.tokenizer, {"masked_lm": model.heads["masked_lm"]})


def test_results_come_in_the_order_of_the_texts(make, monkeypatch):
    predictor = Predictor(make(), CPU)
    texts = ["the dog " * number for number in (4, 1, 3, 2)]
    alone = [predictor.predict(text)[0].scores["yes"] for text in texts]
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 12)  # several batches
    together = predictor.predict(texts)
    assert [one.text for one in together] == texts
    assert [one.scores["yes"] for one in together] == pytest.approx(alone, abs=1e-6)
    assert len(set(alone)) == 4


def test_another_backend_can_be_passed(make):
    class Constant:
        precision = "float32"

        def logits(self, head, samples):
            assert head == "classification"
            return [np.array([[0.0, len(sample)]], np.float32) for sample in samples]

        def layers(self, samples, layers, *, at=None, pooled=False):
            return ((number, np.full((len(one), len(layers), 16), number)) for number, one in enumerate(samples))

    predictor = Predictor(make(), backend=Constant())
    assert [one.label for one in predictor.predict(TEXTS)] == ["yes"] * 4
    assert predictor.features(["dog", "cat"]).values[:, 0, 0].unique().tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_truncated_texts_are_reported(make, kind):
    predictor = Predictor(make(kind), CPU)
    with pytest.warns(InputWarning) as caught:
        found = predictor.predict(["the dog", "the dog " * 20, "the cat " * 30])
    (warning,) = caught  # a single one, whatever the number of texts
    assert str(warning.message) == "2 of 3 texts are longer than 12 tokens and were cut"
    assert Path(warning.filename) == Path(__file__)  # the line of the user's call
    assert [one.cut for one in found] == [False, True, True]
    written = [json.loads(msgspec.json.encode(one)) for one in found]
    assert "cut" not in written[0] and written[1]["cut"] is True
    with pytest.warns(InputWarning, match="1 of 1 pair is longer than 12 tokens and was cut"):
        assert predictor.predict("the dog", "the cat " * 20)[0].cut


def test_truncated_questions_are_reported(make):
    predictor = Predictor(make("question-answering"), CPU)
    with pytest.warns(InputWarning, match="^questions truncated to 4 tokens: 1$"):
        found = predictor.answer("which dog sees the cat near the sea?", "the dog")
    assert found.cut and json.loads(msgspec.json.encode(found))["cut"] is True
    found = predictor.answer("who?", "the dog " * 30)  # long passages are read in windows
    assert not found.cut and "cut" not in json.loads(msgspec.json.encode(found))


@pytest.mark.parametrize("kind", ["classification", "regression", "token-classification"])
@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_empty_text_is_counted(make, kind, nothing):
    predictor = Predictor(make(kind), CPU)
    with pytest.warns(InputWarning, match="^2 of 3 texts are empty$"):
        assert len(predictor.predict(["the dog", nothing, nothing])) == 3
    if kind == "token-classification":
        with pytest.warns(InputWarning, match="^1 of 1 text is empty$"):
            assert predictor.tag(nothing).entities == []


def test_notes_and_warnings_are_not_both_given(make):
    predictor, notes = Predictor(make(), CPU), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.run(predictor.task.from_texts(["the dog " * 20, ""]), notes)
        predictor.run(predictor.task.from_texts(["the dog " * 20, ""]))
    assert notes == ["1 of 2 texts is longer than 12 tokens and was cut", "1 of 2 texts is empty"]


def test_the_command_line_prints_notes(make, tmp_path, capsys):
    save_model(tmp_path / "model", make(), "card")
    assert main(["predict", "--model", str(tmp_path / "model"), "the dog " * 20, "", "dog", "--json"]) == 0
    output, errors = capsys.readouterr()
    assert errors.splitlines() == ["1 of 3 texts is longer than 12 tokens and was cut", "1 of 3 texts is empty"]
    assert [json.loads(line).get("cut") for line in output.splitlines()] == [True, None, None]


def test_empty_and_truncated_rows_of_labeled_files_are_noted(make, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\nthe dog\tyes\n\u200b\tno\n" + "the dog " * 20 + "\tno\n")
    notes = evaluate_task(Predictor(make(), CPU), path)["notes"]
    assert notes[:2] == ["1 of 3 texts is longer than 12 tokens and was cut", "1 of 3 texts is empty"]
    rows = [Row({"text": text, "label": "yes"}, "a.tsv", 1) for text in ("the dog", "\u200b")]
    assert Classification(length=12).frame(make().tokenizer, rows, ("no", "yes"), gold=True).notes == (
        "1 of 2 texts is empty",
    )


def test_the_public_names_of_the_package():
    assert unmask.load.__module__ == "unmask.inference.load" and Predictor.__module__ == "unmask.inference.predictor"
    assert unmask.Predictor is Predictor and unmask.InputWarning is InputWarning
