"""An audit finds planted wrong labels, lists contradictions first, and says what it cannot judge."""

import csv
import json
import re

import numpy as np
import pytest

import unmask
from unmask.cli.main import main
from unmask.metrics.label_quality import probably_wrong
from unmask.model.model import Model, load_model, save_model
from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.tasks.regression import Regression
from unmask.workflows.auditing.suspects import Audited, _ranked

from .conftest import NAMES, texts_of


def write(path, header, rows):
    with path.open("w", newline="", encoding="utf8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_wrong_labels_of_texts_are_found(encoder, planted, tmp_path):
    texts, labels, wrong = planted()
    path = write(tmp_path / "data.csv", ["id", "text", "label"], zip(range(len(texts)), texts, labels, strict=True))
    audit = unmask.audit(encoder, path, task="classification", out=tmp_path / "fix.csv", quiet=True)
    lines = {suspect.line - 2 for suspect in audit.suspects}
    planted_lines = set(np.flatnonzero(wrong).tolist())
    assert len(lines & planted_lines) >= 0.8 * len(planted_lines)
    assert len(lines & planted_lines) >= 0.7 * len(lines)
    assert audit.noise == pytest.approx(wrong.mean(), abs=0.05)
    assert audit.wrong == len(audit.suspects) == sum(counts["wrong"] for counts in audit.by_label.values())
    assert sum(counts["examples"] for counts in audit.by_label.values()) == len(texts) == audit.examples
    with (tmp_path / "fix.csv").open(newline="", encoding="utf8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["rank"]) for row in rows] == list(range(1, len(texts) + 1))
    corrected = {row["text"]: row["suggested"] or row["label"] for row in rows}
    true = [NAMES[number % 3] for number in range(len(texts))]
    right = sum(corrected[text] == label for text, label in zip(texts, true, strict=True))
    assert right / len(texts) > 1 - wrong.mean() / 2


def test_wrong_labels_of_sets_are_found(encoder, tmp_path):
    rng = np.random.default_rng(0)
    true = rng.random((300, 3)) < 0.4
    flips = rng.random(true.shape) < 0.06
    records = [
        {"text": text, "label": [name for name, has in zip(NAMES, row, strict=False) if has]}
        for text, row in zip(texts_of(true, rng), true ^ flips, strict=True)
    ]
    audit = unmask.audit(encoder, records, task="multi-label", out=tmp_path / "fix.jsonl", quiet=True)
    lines = {suspect.line - 1 for suspect in audit.suspects}
    planted_lines = set(np.flatnonzero(flips.any(1)).tolist())
    assert len(lines & planted_lines) >= 0.8 * len(planted_lines)
    assert len(lines & planted_lines) >= 0.6 * len(lines)
    fixed = {row.values["text"]: row for row in TASKS["multi-label"]().read([tmp_path / "fix.jsonl"], columns={})}
    suggested = [json.loads(line) for line in (tmp_path / "fix.jsonl").read_text(encoding="utf8").splitlines()]
    right = 0
    for record in suggested:
        number = int(record["text"].split()[-1])
        assert list(fixed[record["text"]].labels) == record["given"] == record["label"]
        labels = record["given"] if record["suggested"] is None else record["suggested"]
        right += labels == [name for name, has in zip(NAMES, true[number], strict=False) if has]
    assert right / len(true) > 1 - flips.any(1).mean()


def test_wrong_tags_of_words_are_found(encoder, tmp_path):
    rng = np.random.default_rng(0)
    names = dict(zip(NAMES, ("B-ANIMAL", "B-ANIMAL", "B-PLACE", "B-PLACE"), strict=True))
    texts = texts_of(rng.random((200, 4)) < 0.3, rng)
    path, wrong, lines = tmp_path / "data.conll", set(), []
    for number, text in enumerate(texts):
        for at, word in enumerate(text.split()[:-1]):
            tag = names.get(word, "O")
            if rng.random() < 0.05:
                tag = str(rng.choice([other for other in ("O", "B-ANIMAL", "B-PLACE") if other != tag]))
                wrong.add((number, at))
            lines.append(f"{word} {tag}")
        lines.append("")
    path.write_text("\n".join(lines))
    out = tmp_path / "fix.conll"
    audit = unmask.audit(encoder, path, task="token-classification", out=out, quiet=True)
    flagged = set()
    for number, sentence in enumerate(out.read_text(encoding="utf8").strip().split("\n\n")):
        cells = [line.split("\t") for line in sentence.split("\n")]
        flagged |= {(number, at) for at, row in enumerate(cells) if row[1] != "_"}
    assert len(flagged & wrong) >= 0.7 * max(len(flagged), len(wrong))
    assert {suspect.rank for suspect in audit.suspects} == set(range(1, len(audit.suspects) + 1))
    assert re.fullmatch(r"\w+ \S+(, \w+ \S+)*", audit.suspects[0].given)


def test_equal_texts_with_other_labels_come_first(encoder, planted, tmp_path):
    texts, labels, _ = planted(rate=0)
    texts += [texts[30].upper(), texts[10] + "!", texts[30]]
    labels += ["house", "house", labels[30]]
    labels[10] = "cat"
    audit = unmask.audit(encoder, (texts, labels), task="classification", quiet=True)
    number = len(texts)
    assert audit.contradictory == 5
    pairs = [({11, number - 1}, 11), ({31, number - 2, number}, 31)]
    order = [suspect.line for suspect in audit.suspects]
    assert set(order[:2]) == pairs[0][0]
    assert set(order[2:5]) == pairs[1][0]
    assert all(suspect.equal_to for suspect in audit.suspects[:5])
    assert not any(suspect.equal_to for suspect in audit.suspects[5:])
    assert {suspect.equal_to for suspect in audit.suspects[:2]} == {"<texts>:11", f"<texts>:{number - 1}"}


def test_pairs_in_the_other_order_do_not_contradict_each_other(encoder):
    pairs = [("a dog", "an animal"), ("an animal", "a dog"), ("A dog!", "an animal"), ("an animal", "A DOG")]
    pairs += [(f"the {name} {number}", "a word") for number in range(6) for name in ("dog", "house")]
    labels = ["entailment", "neutral", "neutral", "neutral", *("entailment", "neutral") * 6]
    audit = unmask.audit(encoder, (*zip(*pairs, strict=True), labels), task="classification", quiet=True)
    assert {suspect.line: suspect.equal_to[-1] for suspect in audit.suspects if suspect.equal_to} == {1: "3", 3: "1"}
    assert audit.contradictory == 2


def test_equal_sentences_are_compared_by_their_entities(encoder, tmp_path):
    lines = ["The DOG sees . O B-X O O", "the dog sees O B-X O", "a cat O O", "A cat ! B-X O O", "the house O B-Y"]
    lines += [
        f"the {name} {number} O {tag} O" for number in range(9) for name, tag in (("dog", "B-X"), ("house", "B-Y"))
    ]
    records = [{"words": parts[: len(parts) // 2], "tags": parts[len(parts) // 2 :]} for parts in map(str.split, lines)]
    audit = unmask.audit(encoder, records, task="token-classification", quiet=True)
    assert audit.contradictory == 2
    assert {suspect.line for suspect in audit.suspects[:2]} == {3, 4}
    assert {suspect.given for suspect in audit.suspects[:2]} == {"(none)", "A B-X"}


@pytest.mark.seeds(50)
def test_the_order_of_ranks(seed):
    rng = np.random.default_rng(seed)
    probability = np.where(rng.random(30) < 0.1, np.nan, rng.random(30))
    equal = [None] * 30
    for first in range(0, 9, 3):
        equal[first], equal[first + 1], equal[first + 2] = first + 1, first, first + 1
    wrong = (rng.random(30) < 0.3) & ~np.isnan(probability)
    audited = [
        Audited(("a",), ("b" if bad else "a",), None if np.isnan(value) else value, (0,) if bad else (), other)
        for value, bad, other in zip(probability.tolist(), wrong, equal, strict=True)
    ]
    order = np.argsort([example.rank for example in _ranked(audited)])
    assert [sorted(order[at : at + 3].tolist()) for at in (0, 3, 6)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    others = [*order[9:].tolist()]
    expected = sorted(range(9, 30), key=lambda at: (not wrong[at], np.nan_to_num(probability[at], nan=2.0)))
    assert [at for at in others if not np.isnan(probability[at])] == expected[: np.isfinite(probability[9:]).sum()]
    assert all(np.isnan(probability[at]) for at in others[np.isfinite(probability[9:]).sum() :])


def test_labels_of_one_text_are_noted(encoder, planted):
    texts, labels, _ = planted(rate=0)
    labels[4] = "river"
    audit = unmask.audit(encoder, (texts, labels), task="classification", quiet=True)
    notes = [note for note in audit.notes if "unknown to the vocabulary" not in note]
    assert notes == [
        "1 label cannot be judged, as fewer than two different texts, or documents, have or lack it: 'river'"
    ]
    assert {*map(type, audit.notes)} == {str}, "it can be written as JSON"
    assert not any(suspect.line == 5 for suspect in audit.suspects)


def test_labels_that_look_the_same_are_noted(encoder, planted):
    texts, labels, _ = planted(rate=0)
    labels[:4] = [label.upper() for label in labels[:4]]
    audit = unmask.audit(encoder, (texts, labels), task="classification", quiet=True)
    assert any("'DOG'" in note for note in audit.notes)


def test_the_task_is_that_of_the_model_and_its_encoder_is_used(encoder, planted, tmp_path, tokenizer):
    texts, labels, _ = planted(number=60)
    base = load_model(encoder)
    with pytest.raises(UserError, match="was not fine-tuned; say what the labels are: task of classification"):
        unmask.audit(encoder, (texts, labels))
    for name, task, names in (
        ("classifier", TASKS["classification"](length=32), ("bad", "good")),
        ("regressor", Regression(length=32), ()),
    ):
        head = task.build(base.encoder.head, names)
        model = Model(base.encoder, tokenizer, {task.part: head.published()}, names, task)
        save_model(tmp_path / name, model, "")
    audit = unmask.audit(tmp_path / "classifier", (texts, labels), quiet=True)
    assert audit.task == "classification"
    assert audit.notes[0].startswith("the model was fine-tuned for classification; its encoder is used")
    expected = unmask.audit(encoder, (texts, labels), task="classification", quiet=True)
    assert audit.suspects == expected.suspects
    with pytest.raises(UserError, match="labels of regression cannot be audited"):
        unmask.audit(tmp_path / "regressor", (texts, labels))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "regression"}, "unknown; choose one of classification"),
        ({"folds": 1}, "folds=1: not a whole number of 2 or more"),
        ({"out": "fix.ods"}, "use .tsv or .csv or .jsonl or .parquet or .xlsx"),
        ({"page": "page.txt"}, "use .html"),
        ({"page": "nowhere/page.html"}, "there is no such directory"),
        ({"out": "data.csv"}, "is the same file as data"),
        ({"data": "-"}, "standard input"),
        ({"labels": ["one"] * 6}, "have the label 'one'"),
        ({"labels": list("abcdef")}, "no label can be judged"),
        ({"labels": ["a", *"bcdef"], "texts": ["same"] * 6}, "no label can be judged"),
        ({"labels": ["['a', 'a', 'b']"] * 6}, "the label has probabilities, or votes"),
        ({"labels": ["a", "b", "", "a", "b", "a"]}, "data.csv:4: the label is empty"),
        ({"texts": ["a\tb"] * 6, "out": "fix.tsv"}, "TSV cannot hold the tab"),
        ({"columns": {"weight": "label"}}, "has no effect: labels are judged whatever the weights of their examples"),
    ],
)
def test_bad_input_is_refused(change, message, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels, texts = change.pop("labels", ["a", "b"] * 3), change.pop("texts", [f"the dog {n}" for n in range(6)])
    write(tmp_path / "data.csv", ["text", "label"], zip(texts, labels, strict=True))
    arguments = {"data": "data.csv", "task": "classification", "quiet": True} | change
    with pytest.raises(UserError, match=re.escape(message)):
        unmask.audit(encoder, **arguments)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"data.csv"}


def test_soft_labels_of_sets_are_refused(encoder):
    records = [{"text": f"the dog {number}", "label": {"a": 0.7, "b": 0.2}} for number in range(6)]
    with pytest.raises(UserError, match="<list>:1: the label has probabilities, or votes"):
        unmask.audit(encoder, records, task="multi-label")


def test_words_that_cannot_be_in_columns_are_refused(encoder, tmp_path):
    records = [{"words": ["a b\tc", "d"], "tags": ["B-X", "O"]}, {"words": ["e"], "tags": ["B-X"]}]
    with pytest.raises(UserError, match="cannot be written in a column"):
        unmask.audit(encoder, records, task="token-classification", out=tmp_path / "fix.conll")


def test_the_command_line(encoder, planted, tmp_path, capsys):
    texts, labels, _ = planted(number=120, rate=0.15)
    path = write(tmp_path / "data.csv", ["text", "label"], zip(texts, labels, strict=True))
    command = ["audit", "--model", str(encoder), "--data", str(path), "--task", "classification", "--quiet"]
    assert main([*command, "--page", str(tmp_path / "page.html")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"classification: 120 examples, \d+ with labels that are probably wrong, 0 with .*", shown[0])
    assert any(re.fullmatch(rf"1\. {path}:\d+: (dog|cat|house) -> (dog|cat|house) \(0\.\d+\)", line) for line in shown)
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["suspects"][0]["rank"] == 1
    assert result["by_label"].keys() == {"dog", "cat", "house"}


def test_wrong_labels_are_planted_so_that_chance_would_not_find_them(planted):
    """The oracle of the tests above: without probabilities that know something, few of the selected are wrong."""
    _, labels, wrong = planted()
    numbers = np.array([NAMES.index(label) for label in labels])
    chance = np.random.default_rng(0).dirichlet(np.ones(3), len(labels))
    assert wrong[probably_wrong(numbers, chance)].mean() < 0.3
