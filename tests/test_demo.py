"""The demonstration: its stages run in order, are skipped if their results exist, and its results are printed."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from unmask import demo

RESULTS = {
    name: {
        "metrics": {"accuracy": accuracy, "f1": accuracy},
        "intervals": {"accuracy": [accuracy - 5, accuracy + 5]},
        "run": f"run-{name}",
    }
    for name, accuracy in (("random", 60.0), ("pretrained", 62.0), ("published", 90.0))
}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200, highlight=False)


class Labels:
    """Predicts the same label for every text."""

    def __init__(self, model):
        self.model = model

    def predict(self, texts):
        return [SimpleNamespace(text=f"{self.model}: {text}", label="good", scores={"good": 0.75}) for text in texts]


def test_the_best_model_labels_the_sentences_of_the_folder(console, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "load_model", str)
    monkeypatch.setattr(demo, "Predictor", Labels)
    demo._conclude(tmp_path, RESULTS, console)
    text = console.file.getvalue()
    assert "published" in text and "85.0 to 95.0" in text
    assert "good      75.0 %  run-published: I would buy it again tomorrow." in text
    assert (tmp_path / "sentences.txt").read_text().splitlines() == list(demo.SENTENCES)
    assert "demo.png" not in text, "no picture was drawn"
    (tmp_path / "sentences.txt").write_text("My own.\n")
    demo._conclude(tmp_path, RESULTS, console)
    assert "run-published: My own." in console.file.getvalue()


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    learning = [{"tokens": 1e6 * step, "masked_lm_accuracy": 0.1 * step} for step in range(1, 4)]
    demo._draw(tmp_path / "demo.png", learning, 0.05, RESULTS)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_corpus_that_exists_is_not_built_again(console, corpus, tmp_path, monkeypatch):
    (tmp_path / "corpus").symlink_to(corpus.directory)
    monkeypatch.setattr(demo, "documentation", lambda size: pytest.fail("text was collected"))
    found = demo._corpus(tmp_path, None, console)
    assert len(found.train) == len(corpus.train)
    assert console.file.getvalue() == ""


def test_the_recipe_fits_small_machines():
    recipe = demo.read_recipe("bert-mini", demo.SETTINGS)
    assert (recipe.tokenizer.vocabulary, recipe.budget.minutes, recipe.batch.tokens) == (8000, 2, 1024)
    assert all("[MASK]" in text for text in demo.BLANKS)
