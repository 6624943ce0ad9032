"""A predictor is pickled by its directory, or with its model, and shown in a line."""

import pickle
import shutil
from dataclasses import replace

import pytest

from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.inference.zero_shot import by_labels
from unmask.model.model import load_model, save_model
from unmask.support.errors import UserError

from .conftest import CPU, TEXTS


@pytest.fixture
def saved(make, tmp_path):
    save_model(tmp_path / "model", make(), "card")
    return tmp_path / "model"


def test_a_loaded_model_is_pickled_by_its_directory(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    predictor = load("model", device="cpu")
    predictor.window = 7
    content = pickle.dumps(predictor)
    assert len(content) < 2000, "without weights"
    monkeypatch.chdir("/")
    found = pickle.loads(content)
    assert found.origin is not None and found.origin.source == str(saved) and found.window == 7
    assert found.origin.reopen.args == (str(saved), "cpu", "float32", False, "torch")
    assert found.predict(TEXTS) == predictor.predict(TEXTS)


def test_a_model_that_was_changed_is_refused(saved, make):
    content = pickle.dumps(load(saved, device="cpu"))
    shutil.rmtree(saved)
    with pytest.raises(UserError, match="model"):
        pickle.loads(content)
    save_model(saved, make("regression"), "card")
    with pytest.raises(UserError, match="the model was changed after it was pickled"):
        pickle.loads(content)


def test_a_model_in_memory_is_pickled_with_its_weights(saved):
    predictor = Predictor(load_model(saved), CPU)
    found = pickle.loads(pickle.dumps(predictor))
    assert found.origin is None and found.predict(TEXTS) == predictor.predict(TEXTS)
    masked = replace(predictor.model, task=None, labels=(), heads={"masked_lm": predictor.model.heads["masked_lm"]})
    labelled = by_labels(Predictor(masked, CPU), ["dog", "garden"])
    assert pickle.loads(pickle.dumps(labelled)).predict(TEXTS) == labelled.predict(TEXTS)


def test_a_predictor_is_shown_in_a_line(saved, make):
    shown = repr(load(saved, device="cpu"))
    about = "bert (1 layer, width 16, 2 heads), task=classification, 2 labels (no, yes), float32"
    assert shown == f"Predictor({str(saved)!r}, {about})"
    assert repr(Predictor(make("regression"), CPU)).endswith("task=regression, float32)")


def test_the_task_may_be_stated(saved):
    assert load(saved, "classification").labels == ("no", "yes")
    with pytest.raises(UserError, match=r'task="ranking": the model was fine-tuned for classification'):
        load(saved, "ranking")
