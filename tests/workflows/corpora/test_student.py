"""A static student learns what a classifier says of documents, and filters as it does."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from unmask.data.tokenizers.word_level import train_words, without_words
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.regression import Regression, Score
from unmask.tasks.task import Task
from unmask.workflows.corpora import student
from unmask.workflows.corpora.build import build_corpus
from unmask.workflows.corpora.student import teach_weights

LIKED = ("river", "garden", "poem")


class Teacher:
    """A model that likes documents with few words: its probability is that of a logistic function of their share."""

    def __init__(self, tokenizer, task):
        table = torch.randn(tokenizer.size, 8, generator=torch.Generator().manual_seed(0))
        encoder = SimpleNamespace(words=torch.nn.Embedding.from_pretrained(table))
        self.model = SimpleNamespace(task=task, labels=("bad", "good"), tokenizer=tokenizer, encoder=encoder)
        self.texts, self.slope = 0, 60

    def fingerprint(self):
        return "teacher"

    def predict(self, texts):
        self.texts += len(texts)
        shares = [sum(word in LIKED for word in text.lower().split()) / len(text.split()) for text in texts]
        if isinstance(self.model.task, Regression):
            return [Score(text, share) for text, share in zip(texts, shares, strict=True)]
        chances = [float(1 / (1 + np.exp(-self.slope * (share - 0.08)))) for share in shares]
        return [
            Prediction(text, "good", {"bad": 1 - chance, "good": chance})
            for text, chance in zip(texts, chances, strict=True)
        ]


@pytest.fixture
def text(tmp_path, documents):
    """Documents as JSON Lines."""
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


@pytest.fixture
def teacher(tokenizer, monkeypatch):
    """A classifier, which is loaded whatever is asked for."""
    teacher = Teacher(tokenizer, Classification())
    monkeypatch.setattr(student, "load", lambda model: teacher)
    return teacher


@pytest.mark.parametrize("seed", range(2))
def test_weights_are_those_of_kernel_ridge_regression(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, 25)
    ids, embeddings, goals = rng.integers(0, 50, lengths.sum()), rng.normal(size=(60, 5)), rng.normal(size=25)
    taught = teach_weights(goals, ids, lengths, embeddings)
    shares = np.zeros((25, 60))
    np.add.at(shares, (np.repeat(np.arange(25), lengths), ids), 1 / lengths.repeat(lengths))
    similar = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    prior = (np.eye(60) + similar @ similar.T) / 2
    kernel, bias = shares @ prior @ shares.T, goals.mean()
    scores, errors = {}, {}
    for strength in student.STRENGTHS:
        noise, left_out = strength * np.trace(kernel) / 25, np.zeros(25)
        for number in range(25):
            others = np.arange(25) != number
            ridge = KernelRidge(alpha=noise, kernel="precomputed").fit(
                kernel[np.ix_(others, others)], goals[others] - bias
            )
            left_out[number] = ridge.predict(kernel[[number]][:, others])[0] + bias
        scores[strength], errors[strength] = left_out, ((left_out - goals) ** 2).mean()
    best = min(errors, key=errors.get)
    assert np.allclose(taught.left_out, scores[best], atol=1e-6)
    ridge = KernelRidge(alpha=best * np.trace(kernel) / 25, kernel="precomputed").fit(kernel, goals - bias)
    assert np.allclose(taught.weights, prior @ shares.T @ ridge.dual_coef_, atol=1e-6)
    assert taught.bias == pytest.approx(bias)


def test_documents_are_dropped_as_the_classifier_would(text, tokenizer, teacher, tmp_path, documents, capsys):
    options = {"quality": "model", "quality_label": "good", "workers": 1}
    corpus = build_corpus(text, tokenizer, tmp_path / "out", **options)
    stays = [prediction.scores["good"] >= 0.5 for prediction in teacher.predict(documents)]
    said = "".join(capsys.readouterr())
    assert f"{100 * sum(stays) / len(stays):.1f} % are good" in said and "a static student agrees" in said
    tally = json.loads((corpus.directory / "cleaning.json").read_bytes())["rules"]["quality"]
    assert tally["reasons"] == {"not good": tally["documents"]} and tally["samples"]["not good"]
    kept = len(corpus.train) + len(corpus.heldout)
    assert kept + tally["documents"] == len(documents) and abs(kept - sum(stays)) < 0.1 * len(documents)
    right = [sum(word in text.lower() for word in LIKED) for text in tally["samples"]["not good"]]
    assert np.mean(right) < 3


@pytest.mark.parametrize("least", [0.001, 0.999])
def test_the_least_probability_may_be_extreme(text, tokenizer, teacher, tmp_path, documents, capsys, least):
    """Documents that the classifier is surer of than that stay, and only these."""
    teacher.slope = 300  # it is sure of most documents
    options = {"quality": "model", "quality_label": "good", "min_quality": least, "workers": 1}
    corpus = build_corpus(text, tokenizer, tmp_path / "out", **options)
    stays = [prediction.scores["good"] >= least for prediction in teacher.predict(documents)]
    assert f"{100 * sum(stays) / len(stays):.1f} % are good" in "".join(capsys.readouterr())
    assert 0 < sum(stays) < len(documents)
    assert abs(len(corpus.train) + len(corpus.heldout) - sum(stays)) < 0.2 * len(documents)


def test_the_same_student_is_taught_once_and_another_anew(text, tokenizer, teacher, tmp_path, monkeypatch):
    options = {"quality": "model", "quality_label": "good", "workers": 1, "quiet": True}
    with monkeypatch.context() as patched:
        patched.setattr("unmask.data.corpus.build.report_yield", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_corpus(text, tokenizer, tmp_path / "out", **options)
    asked = teacher.texts
    assert asked and (tmp_path / "out").exists()
    (tmp_path / "out").rename(tmp_path / "before")
    build_corpus(text, tokenizer, tmp_path / "out", **options)
    assert teacher.texts == asked
    build_corpus(text, tokenizer, tmp_path / "strict", **options, min_quality=0.9)
    assert teacher.texts == 2 * asked
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (tmp_path / "before" / "manifest.json").read_bytes()


def test_the_classifier_reads_the_documents_that_are_filtered(tokenizer, teacher, documents, tmp_path, monkeypatch):
    """Of several files of text, each is a document, also where they are read one by one."""
    monkeypatch.setattr(student, "FEWEST", 5)
    paths = [tmp_path / f"{number}.txt" for number in range(12)]
    for path, text in zip(paths, documents, strict=False):
        path.write_text(f"{text}\n\nAnother paragraph of it.\n\nAnd one more.")
    build_corpus(paths, tokenizer, tmp_path / "out", quality="model", quality_label="good", min_quality=0.01, workers=1)
    assert teacher.texts == len(paths)


def test_numbers_are_taught_and_compared_with_the_least(text, tokenizer, monkeypatch, tmp_path):
    teacher = Teacher(tokenizer, Regression())
    monkeypatch.setattr(student, "load", lambda model: teacher)
    corpus = build_corpus(
        text, tokenizer, tmp_path / "out", quality="model", min_quality=0.08, workers=1, engine="hosts", quiet=True
    )
    assert 0 < len(corpus.train) < 300
    with pytest.raises(UserError, match="pass min_quality=N"):
        build_corpus(text, tokenizer, tmp_path / "new", quality="model", quiet=True)
    with pytest.raises(UserError, match="quality_label has no effect"):
        build_corpus(text, tokenizer, tmp_path / "new", quality="model", quality_label="good", quiet=True)


def test_a_model_that_reads_words_beyond_its_vocabulary_is_distilled(text, documents, tmp_path, monkeypatch, capsys):
    """An ELMo has no token embeddings, and an id for every word: those beyond the vocabulary are one token here."""
    options = {"quality": "model", "quality_label": "good", "workers": 1}
    words = train_words(documents, size=30)
    teacher = Teacher(words, Classification())
    teacher.model.encoder = SimpleNamespace(characters=None)
    monkeypatch.setattr(student, "load", lambda model: teacher)
    assert max(ids.max() for ids in words.encode_many(documents)) >= words.size
    corpus = build_corpus(text, train_words(documents, size=400), tmp_path / "out", **options)
    assert "a static student agrees" in "".join(capsys.readouterr())
    assert 0 < len(corpus.train) + len(corpus.heldout) < len(documents)
    teacher.model.tokenizer = without_words()
    with pytest.raises(UserError, match="vocabulary of quality has no word of these documents"):
        build_corpus(text, words, tmp_path / "other", **options)


def test_what_has_no_effect_or_is_not_known_is_refused(text, tokenizer, teacher, tmp_path, monkeypatch):
    def refused(message, **options):
        with pytest.raises(UserError, match=message):
            build_corpus(options.pop("files", text), tokenizer, tmp_path / "out", quiet=True, **options)

    refused("quality_label has no effect without quality", quality_label="good")
    refused("min_quality has no effect without quality", min_quality=0.5)
    refused("which label .* one of bad, good", quality="model")
    refused("no label 'fine'", quality="model", quality_label="fine")
    refused("not between 0 and 1", quality="model", quality_label="good", min_quality=1.0)
    refused("standard input only once", files="-", quality="model", quality_label="good")
    few = tmp_path / "few.jsonl"
    few.write_text(text.read_text().split("\n")[0])
    refused("needs 50 documents", files=few, quality="model", quality_label="good")
    teacher.model.task = Task
    refused("not a model for classification or regression", quality="model", quality_label="good")
