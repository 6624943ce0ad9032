"""The demonstration: its stages run in order, are skipped if their results exist, and its results are printed."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from unmask.demo import demonstration as demo
from unmask.demo.demonstration import Labelled

RESULTS = {
    name: {"accuracies": [mean - 1, mean, mean + 1], "interval": [mean - 3.5, mean + 3.5], "run": f"topics-{name}"}
    for name, mean in (("random weights", 50.0), ("the encoder just pretrained", 70.0))
}
REVIEWS = {"metrics": {"accuracy": 90.0}, "intervals": {"accuracy": [85.0, 95.0]}, "run": "run-published"}


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200, highlight=False)


class Labels:
    """Predicts the same label for every text."""

    def __init__(self, model):
        self.model = model

    def predict(self, texts):
        return [SimpleNamespace(text=f"{self.model}: {text}", label="good", scores={"good": 0.75}) for text in texts]


def test_the_published_checkpoint_labels_the_sentences_of_the_folder(console, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "load_model", str)
    monkeypatch.setattr(demo, "Predictor", Labels)
    demo._conclude(tmp_path, RESULTS, REVIEWS, console)
    text = console.file.getvalue()
    assert "the encoder just pretrained" in text and "69.0, 70.0, 71.0" in text and "66.5 to 73.5" in text
    assert "90.0 % of 150 test reviews (85.0 to 95.0)" in text.replace("\n", " ")
    assert "good      75.0 %  run-published: I would buy it again tomorrow." in text
    assert (tmp_path / "sentences.txt").read_text().splitlines() == list(demo.SENTENCES)
    assert "demo.png" not in text, "no picture was drawn"
    (tmp_path / "sentences.txt").write_text("My own.\n")
    demo._conclude(tmp_path, RESULTS, REVIEWS, console)
    assert "run-published: My own." in console.file.getvalue()


def test_without_a_published_checkpoint_there_is_no_sentiment(console, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "load_model", str)
    monkeypatch.setattr(demo, "Predictor", Labels)
    monkeypatch.setattr(demo, "CHECKPOINT", "no_such_package")
    assert demo._reviews(tmp_path, console) is None
    assert "no-such-package, a published checkpoint, is not installed" in console.file.getvalue()
    demo._conclude(tmp_path, RESULTS, None, console)
    assert "sentiment" not in console.file.getvalue()


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


def test_the_corpus_lacks_the_test_paragraphs(console, tmp_path, monkeypatch):
    learned, asked = (
        Labelled(f"{name} paragraphs may be read without their label.", "code") for name in ("These", "No")
    )
    documents = [f"{learned.text}\n\n{asked.text}\n\nThe number {n} of many more sentences." for n in range(120)]
    monkeypatch.setattr(demo, "documentation", lambda size: documents)
    monkeypatch.setattr(demo, "topics", lambda: ([learned], [asked]))
    demo._corpus(tmp_path, demo.read_recipe(demo.RECIPE, {"tokenizer.vocabulary": 150}), console)
    text = (tmp_path / "documentation.jsonl").read_text()
    assert learned.text in text and asked.text not in text
    assert asked.text in (tmp_path / "topics-test.tsv").read_text()


def test_the_recipe_fits_small_machines():
    recipe = demo.read_recipe(demo.RECIPE, demo.SETTINGS)
    assert (recipe.tokenizer.vocabulary, recipe.budget.minutes, recipe.batch.tokens) == (8000, 3, 2048)
    assert all("[MASK]" in text for text in demo.BLANKS)
