"""Suggestions of what to label: which texts, and files that annotators' programs, and unmask, read."""

import csv
import json
import random

import msgspec
import numpy as np
import pytest
import torch

import unmask
from unmask.data.labelled.annotations import read_annotations
from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.inference.selection import PREFILTER
from unmask.model.model import Model, save_model
from unmask.tasks.classification import Classification
from unmask.tasks.embedding import Embedding
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.workflows import suggest as module

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=48, init_std=0.3)
TASKS = {
    "encoder": (None, ()),
    "classification": (Classification(length=32), ("no", "yes", "maybe")),
    "multi-label": (MultiLabel(length=32, threshold=0.4), ("joy", "fear", "anger")),
    "token-classification": (TokenClassification(length=32), ("O", "B-X", "I-X", "B-Y", "I-Y")),
    "embedding": (Embedding(length=32), ()),
    "regression": (Regression(length=32), ()),
}


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """A folder with a small random model for each task."""
    folder = tmp_path_factory.mktemp("models")
    for kind, (task, labels) in TASKS.items():
        torch.manual_seed(1)
        encoder = SHAPE.build(tokenizer.size)
        heads = {} if task is None else {task.part: task.build(encoder.head, labels).published()}
        save_model(folder / kind, Model(encoder, tokenizer, heads, labels, task), "card")
    return folder


@pytest.fixture(scope="module")
def texts(documents):
    """120 sentences that differ."""
    rng = random.Random(0)
    words = " ".join(documents).split()
    return [" ".join(rng.choices(words, k=rng.randint(4, 20))) for _ in range(120)]


@pytest.fixture
def data(texts, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts), encoding="utf8")
    return path


def expected_uncertainty(kind, prediction):
    """Return the uncertainty and the class of a prediction, computed a second time."""
    if kind == "classification":
        values = np.sort([*prediction.scores.values()])
        return 1 - values[-1] + values[-2], prediction.label
    if kind == "multi-label":
        logits = {label: np.log(score / (1 - score)) - np.log(0.4 / 0.6) for label, score in prediction.scores.items()}
        label = min(logits, key=lambda name: abs(logits[name]))
        return 1 - np.tanh(abs(logits[label]) / 2), label
    logits = torch.from_numpy(prediction.scores.logits).double()
    mean = -torch.nn.functional.cross_entropy(logits, logits.argmax(1)).item()
    kinds = sorted(prediction.entities, key=lambda entity: entity.probability)
    return 1 - np.exp(mean), kinds[0].label if kinds else ""


@pytest.mark.parametrize("kind", ["classification", "multi-label", "token-classification"])
def test_uncertain_texts_of_all_classes_are_suggested(models, data, texts, kind, monkeypatch):
    suggestions = unmask.suggest(models / kind, data, out=None, count=3, quiet=True)
    assert len({suggestion.text for suggestion in suggestions}) == 3
    known = {}
    for prediction in unmask.predict(models / kind, data, quiet=True):
        score, of = expected_uncertainty(kind, prediction)
        value = prediction.label if kind == "classification" else getattr(prediction, "labels", None)
        known[prediction.text] = score, of, prediction.entities if value is None else value
    turns = {}
    for text, (score, of, _) in known.items():
        turns[text] = sum(other > score for other, kind_of, _ in known.values() if kind_of == of), -score
    candidates = sorted(known, key=turns.get)[: PREFILTER * 3]
    for suggestion in suggestions:
        score, _, predicted = known[suggestion.text]
        assert suggestion.text in candidates
        assert suggestion.uncertainty == pytest.approx(score, abs=1e-5)
        assert suggestion.predicted == predicted or suggestion.predicted[0].text == predicted[0].text
    assert [-one.uncertainty for one in suggestions] == sorted(-one.uncertainty for one in suggestions)
    monkeypatch.setattr(Predictor, "window", 7)
    again = unmask.suggest(models / kind, data, out=None, count=3, quiet=True)
    assert [one.text for one in again] == [one.text for one in suggestions], "in windows"


def test_a_low_threshold_makes_no_text_uncertain():
    task = MultiLabel(threshold=(0.5, 0.02))
    clear, doubtful = (Labels("a", (), {"joy": score, "rare": 1e-4}) for score in (0.02, 0.4))
    assert module.uncertainty(clear, task) == (pytest.approx(0.04), "joy"), "not 0.98, of the rare label"
    assert module.uncertainty(doubtful, task) == (pytest.approx(0.8), "joy")
    assert module.uncertainty(Labels("a", ("rare",), {"joy": 1.0, "rare": 0.02}), task) == (pytest.approx(1), "rare")


@pytest.mark.parametrize("kind", ["encoder", "embedding"])
def test_an_encoder_suggests_by_diversity_alone(models, data, texts, kind, monkeypatch):
    first, again, other = (
        unmask.suggest(models / kind, data, out=None, count=10, seed=seed, quiet=True) for seed in (0, 0, 1)
    )
    assert first == again != other
    assert all(one.uncertainty is None and one.predicted is None for one in first)
    vectors = unmask.load(models / kind, device="cpu").embed(texts)
    chosen = vectors[[texts.index(one.text) for one in first]]
    rng, nearest = np.random.default_rng(0), []
    for rows in (chosen, *(vectors[rng.permutation(len(texts))[:10]] for _ in range(50))):
        nearest.append((vectors @ rows.T).max(1).mean())
    assert nearest[0] > np.quantile(nearest[1:], 0.9), "every text is near one of them"
    monkeypatch.setattr(module, "MIN_TYPICAL", 100)
    few = unmask.suggest(models / kind, data, out=None, count=10, quiet=True)
    assert len({one.text for one in few}) == 10


def test_no_text_twice_and_none_that_has_a_label(models, texts, tmp_path, capsys):
    path, labeled = tmp_path / "texts.tsv", tmp_path / "labeled.tsv"
    nearly = [f"{text} tree" for text in texts[20:40] if len(text) > 60]
    lines = [*texts, *(text.upper() + "!" for text in texts[:20]), *nearly]
    path.write_text("\n".join(["text\tn", *(f"{text}\t{number}" for number, text in enumerate(lines))]))
    labeled.write_text("\n".join(["text\tlabel", *(f"{text}\tno" for text in [*texts[90:], "that tree"])]))
    suggestions = unmask.suggest(models / "classification", path, out=None, labelled=labeled, count=1000)
    suggested = [one.text for one in suggestions]
    folded = {text.lower().rstrip("!") for text in suggested}
    assert len(folded) == len(suggested) == 90
    assert folded == {text.lower() for text in texts[:90]} or len(folded & {text.lower() for text in texts[:90]}) >= 80
    printed = capsys.readouterr().err
    assert f"{20 + 30:,} of {len(lines):,} texts are the same as a previous or a labeled one" in printed
    assert f"{len(nearly)} of" in printed and "nearly the same as another" in printed
    assert "there are no more than 90 texts to suggest" in printed


def test_uncertain_texts_that_nearly_equal_each_other_hide_no_others(models, texts, tmp_path, monkeypatch, capsys):
    """They filled all places of candidates: one was suggested, and there were said to be no more texts."""
    template = "ticket {:02} was opened by the customer, who waits for an answer of our team in the old town by the sea"
    path = tmp_path / "tickets.txt"
    path.write_text("\n".join([*texts, *map(template.format, range(PREFILTER * 6))]))
    monkeypatch.setattr(Predictor, "window", 50)
    monkeypatch.setattr(
        module, "uncertainty", lambda prediction, task: (0.1 + 0.8 * ("ticket" in prediction.text), "a")
    )
    suggestions = unmask.suggest(models / "classification", path, out=None, count=6)
    assert len(suggestions) == 6
    assert [one.text.startswith("ticket") for one in suggestions] == [True] + [False] * 5
    printed = capsys.readouterr().err
    assert (
        "of 180 texts would be suggested, but are nearly the same as another" in printed
        and "no more than" not in printed
    )


def written(models, kind, data, out, count=12):
    suggestions = unmask.suggest(models / kind, data, out=out, count=count, quiet=True)
    return suggestions, out.read_text(encoding="utf8")


def test_tables_have_the_other_columns(models, texts, tmp_path):
    data = tmp_path / "texts.csv"
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *((f"n{index}", text) for index, text in enumerate(texts))])
    suggestions, content = written(models, "classification", data, tmp_path / "out.csv")
    rows = list(csv.DictReader(content.splitlines()))
    assert [row["text"] for row in rows] == [one.text for one in suggestions]
    for row, one in zip(rows, suggestions, strict=True):
        assert (row["id"], row["predicted"]) == (f"n{texts.index(row['text'])}", one.predicted)
        assert float(row["uncertainty"]) == one.uncertainty
    _, content = written(models, "classification", data, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in content.splitlines()]
    assert [{key: str(line[key]) for key in row} for line, row in zip(lines, rows, strict=True)] == rows
    _, content = written(models, "multi-label", data, tmp_path / "labels.tsv")
    assert content.splitlines()[0].split("\t") == ["id", "text", "uncertainty", "predicted"]


def test_annotators_programs_get_labels(models, data, tmp_path):
    for kind in ("classification", "multi-label"):
        suggestions, content = written(models, kind, data, tmp_path / "out.labelstudio.json")
        for task, one in zip(json.loads(content), suggestions, strict=True):
            assert task["data"] == {"text": one.text}
            (prediction,) = task["predictions"]
            labels = [one.predicted] if isinstance(one.predicted, str) else list(one.predicted)
            chosen = [(result["type"], result["value"]["choices"]) for result in prediction["result"]]
            assert chosen == ([("choices", labels)] if labels else [])
            assert 0 <= prediction["score"] <= 1
        _, content = written(models, kind, data, tmp_path / "out.doccano.jsonl")
        for line, one in zip(map(json.loads, content.splitlines()), suggestions, strict=True):
            labels = [one.predicted] if isinstance(one.predicted, str) else list(one.predicted)
            assert line == {"text": one.text, "label": labels}
    _, content = written(models, "encoder", data, tmp_path / "cold.labelstudio.json")
    assert all(task.keys() == {"data"} for task in json.loads(content))


def test_entities_are_read_back(models, data, tmp_path):
    suggestions, _ = written(models, "token-classification", data, tmp_path / "out.doccano.jsonl", count=50)
    sentences = read_annotations([tmp_path / "out.doccano.jsonl"], columns={})
    expected = [[(one.label, one.start, one.end) for one in each.predicted] for each in suggestions]
    assert [sentence.text for sentence in sentences] == [each.text for each in suggestions]
    assert [[tuple(entity) for entity in sentence.entities] for sentence in sentences] == expected
    assert sum(map(len, expected)) > 50
    written(models, "token-classification", data, tmp_path / "out.labelstudio.json", count=50)
    tasks = read_annotations([tmp_path / "out.labelstudio.json"], columns={}, gold=False)
    assert [sentence.text for sentence in tasks] == [each.text for each in suggestions]
    path = tmp_path / "accepted.json"  # as Label Studio exports them, once an annotator has submitted them
    accepted = [
        {"data": task["data"], "annotations": [{"result": task["predictions"][0]["result"]}]}
        for task in json.loads((tmp_path / "out.labelstudio.json").read_text())
    ]
    path.write_text(json.dumps(accepted))
    exported = read_annotations([path], columns={})
    assert [[tuple(entity) for entity in sentence.entities] for sentence in exported] == expected
    lines, content = written(models, "token-classification", data, tmp_path / "out.jsonl")
    assert [json.loads(line) for line in content.splitlines()] == msgspec.to_builtins(lines)


def test_empty_texts_are_left_out(models, tmp_path, capsys):
    data = tmp_path / "texts.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the dog", " ", "the cat", "  ")))
    suggestions = unmask.suggest(models / "token-classification", data, out=None)
    assert {one.text for one in suggestions} == {"the dog", "the cat"}
    assert capsys.readouterr().err.count("2 of 4 texts are empty") == 1


def test_pairs_are_suggested(models, tokenizer, tmp_path):
    task = Classification(length=32, pairs=True)
    encoder = SHAPE.build(tokenizer.size)
    heads = {task.part: task.build(encoder.head, ("no", "yes")).published()}
    save_model(tmp_path / "pairs", Model(encoder, tokenizer, heads, ("no", "yes"), task), "card")
    path = tmp_path / "pairs.tsv"
    rows = [f"the dog {number} sees\tthe {word}" for number in range(20) for word in ("cat", "poem")]
    path.write_text("\n".join(["text\ttext_b", *rows]))
    suggestions = unmask.suggest(tmp_path / "pairs", path, out=tmp_path / "out.labelstudio.json", count=2, quiet=True)
    assert {f"{one.text}\t{one.text_b}" for one in suggestions} <= set(rows)
    written_tasks = json.loads((tmp_path / "out.labelstudio.json").read_text())
    assert [task["data"] for task in written_tasks] == [{"text": one.text, "text_b": one.text_b} for one in suggestions]


@pytest.mark.parametrize(
    ("kind", "content", "options", "message"),
    [
        ("classification", "", {}, "there are no texts"),
        ("encoder", "\n \n", {}, "there are no texts"),
        (
            "regression",
            "a dog",
            {},
            "a model for regression does not suggest what to label; use one for classification",
        ),
        ("classification", "a dog", {"count": 0}, "count=0: not a whole number from 1 to 5,000"),
        ("classification", "a dog", {"out": "out.ods"}, r"not written as \.ods; use \.jsonl, \.csv, \.tsv"),
        ("token-classification", "a dog", {"out": "out.csv"}, r"not written as \.csv; use \.jsonl, \.doccano"),
        ("classification", "a dog", {"out": "texts.txt"}, "out is the same file as data"),
        ("classification", "a dog", {"out": "no/out.jsonl"}, "there is no such directory"),
        ("classification", "a dog", {"labelled": "texts.txt"}, "no text is left to suggest: 1 of 1 text is the same"),
    ],
)
def test_mistakes_are_errors(models, tmp_path, monkeypatch, kind, content, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text(content)
    with pytest.raises(unmask.UserError, match=message):
        unmask.suggest(models / kind, "texts.txt", **{"out": None, "quiet": True, **options})
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
