"""Each script of examples/ runs at toy size, and returns what it promises."""

import importlib.util
from pathlib import Path

import pytest

from unmask.model.model import load_model

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def script(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the scores of finetune_reviews.py."""
    out = tmp_path_factory.mktemp("examples") / "reviews"
    return out, script("finetune_reviews").main(out, 0.02)


def test_reviews(finished, capsys):
    out, scores = finished
    assert 0 <= scores["accuracy"] <= 100
    assert load_model(out / "classifier").labels == ("negative", "positive")


def test_a_checkpoint_is_adapted(finished, tmp_path):
    out, _ = finished
    tokens = script("adapt_checkpoint").main(str(out / "encoder"), out / "reviews.txt", tmp_path, 2)
    assert len(tokens) == 5
    assert load_model(tmp_path / "adapted").tokenizer.size > load_model(out / "encoder").tokenizer.size


def test_entities(finished, tmp_path):
    found = script("entities").main(finished[0] / "encoder", tmp_path, 1)
    assert all(label in ("LOC", "PER") for _, label in found)
    assert load_model(tmp_path / "entities").task is not None


def test_questions(finished, tmp_path):
    module = script("question_answering")
    assert module.main(finished[0] / "encoder", tmp_path, 1) in module.PASSAGE


def test_every_script_is_run():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"finetune_reviews", "adapt_checkpoint", "entities", "question_answering"}
