"""Everything that unmask can do is done with every task; docs/serving.md has the reasons where something cannot be."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask.inference import fastest
from unmask.inference.backend import TorchBackend
from unmask.inference.engines import OnnxEngine, OpenVinoEngine
from unmask.inference.load import load
from unmask.model.model import save_model
from unmask.tasks import CLASSES, TASKS
from unmask.tasks.classification import Classification
from unmask.testing import OPERATIONS, check_task
from unmask.testing.task import check_members, toy_model

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text(encoding="utf8")
NOUNS = ("dog", "cat", "river", "house", "teacher", "engine", "market", "letter", "garden", "window")
TEXTS = [f"the {noun} sees the {other} . the {other} finds the garden ." for noun in NOUNS for other in NOUNS[:2]]
QUESTION = "who sees it ?"


def table(*rows):
    """Return rows as a file of tab-separated values."""
    return "\n".join("\t".join(map(str, row)) for row in rows)


def labelled(label):
    return table(("text", "label"), *((text, label(number)) for number, text in enumerate(TEXTS)))


def span(text, words):
    return {"text": words, "answer_start": text.index(words)}


def squad():
    paragraphs = [
        {"context": text, "qas": [{"id": f"{number}", "question": QUESTION, "answers": [span(text, "the garden")]}]}
        for number, text in enumerate(TEXTS)
    ]
    return {"data": [{"paragraphs": paragraphs}]}


def quac():
    paragraphs = []
    for number, text in enumerate(TEXTS):
        context, turns = f"{text} CANNOTANSWER", []
        for turn, words in enumerate(("the garden", "CANNOTANSWER")):
            answer = span(context, words)
            more = {"yesno": "x", "followup": "m", "answers": [answer], "orig_answer": answer}
            turns.append({"id": f"{number}_q#{turn}", "question": QUESTION, **more})
        paragraphs.append({"id": f"{number}", "context": context, "qas": turns})
    return {"data": [{"title": "t", "paragraphs": paragraphs}]}


def coqa():
    stories = []
    for number, text in enumerate(TEXTS):
        answer = {"input_text": text[:7], "turn_id": 1, "span_start": 0, "span_end": 7, "span_text": text[:7]}
        questions = [{"input_text": QUESTION, "turn_id": 1}]
        stories.append({"id": f"{number}", "source": "cnn", "story": text, "questions": questions, "answers": [answer]})
    return {"data": stories}


def hotpotqa():
    asked = {"question": QUESTION, "answer": "the garden", "type": "bridge", "level": "easy"}
    return [
        {"_id": f"{number}", **asked, "context": [["a", [text]], ["b", ["a poem ."]]], "supporting_facts": [["a", 0]]}
        for number, text in enumerate(TEXTS)
    ]


def swag():
    columns = ["video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
    lines = [["", *columns, *(f"ending{number}" for number in range(4)), "label"]]
    for number, text in enumerate(TEXTS):
        lines.append([number, "v", number, f"{text} It", text, "It", "gold", *NOUNS[:4], number % 4])
    return "\n".join(",".join(map(str, line)) for line in lines)


def conll():
    tagged = [[f"{word} {'B-X' if word == 'dog' else 'O'}" for word in text.split()] for text in TEXTS]
    return "\n\n".join(map("\n".join, tagged))


def nested():
    rows = []
    for text in TEXTS:
        places = [(text.index(words), words, label) for words, label in (("the garden", "A"), ("garden", "B"))]
        spans = [{"start": start, "end": start + len(words), "label": label} for start, words, label in places]
        rows.append({"text": text, "spans": spans})
    return "\n".join(map(json.dumps, rows))


def related():
    rows = [json.loads(line) for line in nested().splitlines()]
    for number, row in enumerate(rows):
        row["relations"] = [{"head": number % 2, "tail": 1 - number % 2, "label": "in"}] if number % 3 else []
    return "\n".join(map(json.dumps, rows))


def lists():
    labels = [["a"], ["a", "b"], []]
    rows = [{"text": text, "labels": labels[number % 3]} for number, text in enumerate(TEXTS)]
    return "\n".join(map(json.dumps, rows))


FILES = {
    "classification": ("tsv", labelled(lambda number: ("good", "bad")[number % 2])),
    "multi-label": ("jsonl", lists()),
    "regression": ("tsv", labelled(lambda number: number / 7)),
    "ranking": (
        "tsv",
        table(("query", "passage", "grade"), *((it[:11], f"{it} {n}", n % 2) for n, it in enumerate(TEXTS))),
    ),
    "embedding": ("tsv", table(("text", "text_b", "label"), *((it, it[:20], n / 5) for n, it in enumerate(TEXTS)))),
    "sparse": ("tsv", table(("text", "text_b"), *((it, f"{it[:20]} {n}") for n, it in enumerate(TEXTS)))),
    "late-interaction": ("tsv", table(("text", "text_b"), *((it, f"{it[:20]} {n}") for n, it in enumerate(TEXTS)))),
    "question-answering": ("json", json.dumps(squad())),
    "answer-beams": ("json", json.dumps(squad())),
    "quac": ("json", json.dumps(quac())),
    "coqa": ("json", json.dumps(coqa())),
    "hotpotqa": ("json", json.dumps(hotpotqa())),
    "multiple-choice": ("csv", swag()),
    "token-classification": ("conll", conll()),
    "spans": ("jsonl", nested()),
    "relations": ("jsonl", related()),
}
"""Suffix and content of a file of examples for each task."""


def reasons_of(kind):
    """Return the reasons of the page why operations cannot be done with a task."""
    header, *rows = re.findall(r"^\| (.*) \|$", PAGE.partition("## Tasks\n")[2].partition("\n## ")[0], re.MULTILINE)
    names = header.split(" | ")[1:]
    assert names == list(OPERATIONS)
    cells = {row.split(" | ")[0]: row.split(" | ")[1:] for row in rows}
    notes = dict(re.findall(r"^(\d+)\. (.*)$", PAGE, re.MULTILINE))
    found = dict(zip(names, cells[f"`{kind}`"], strict=True))
    return {name: notes[cell] for name, cell in found.items() if cell != "yes"}


REPEATING = ("multi-label", "regression", "coqa")
"""Tasks whose heads, routes and readings of texts are like those of others: classification, embedding, and QuAC."""
SAME_PROGRAM = ("ranking", "multiple-choice", "quac", "hotpotqa")
"""Tasks whose programs are those of classification and question answering; they are exported with --exhaustive."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.exhaustive) if kind in REPEATING else kind for kind in CLASSES]
)
def test_everything_is_done_with_every_task(kind, tmp_path, monkeypatch, request):
    suffix, content = FILES[kind]
    if kind in SAME_PROGRAM and not request.config.getoption("--exhaustive"):
        monkeypatch.setitem(OPERATIONS, "export", lambda *given: None)
    path = tmp_path / f"data.{suffix}"
    path.write_text(content, encoding="utf8")
    reasons = check_task(kind, path, tmp_path, {"task.length": 64} if kind in ("quac", "coqa", "hotpotqa") else {})
    stated = {name: why for name, why in reasons_of(kind).items() if name in reasons}
    assert {name: why.partition(";")[0].partition(", whose")[0] for name, why in reasons.items() if why} == stated


def test_what_a_task_declares_is_checked(monkeypatch):
    check_members("classification")
    monkeypatch.setattr(Classification, "part", "")
    with pytest.raises(AssertionError, match=r"Classification\.part is not a text"):
        check_members("classification")


@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("embedding", "spans") else pytest.param(kind, marks=pytest.mark.exhaustive) for kind in CLASSES],
)
def test_the_fastest_engine_computes_what_torch_does_for_every_task(kind, tmp_path, monkeypatch):
    """Programs of ONNX Runtime and OpenVINO count as faster than torch; tasks that have none are torch's."""
    for package in ("onnxruntime", "openvino", "onnxscript"):
        pytest.importorskip(package, reason="the extra onnx or openvino is not installed")
    suffix, content = FILES[kind]
    (path := tmp_path / f"data.{suffix}").write_text(content, encoding="utf8")
    toy, task, used = toy_model(content), TASKS[kind](length=64), []
    labels = ("O", "B-X", "I-X") if kind == "token-classification" else task.label_names(task.read([path], columns={}))
    heads = toy.heads if task.head.adopts else {task.part: task.build_on(toy.encoder, labels).published()}
    save_model(tmp_path / "model", replace(toy, heads=heads, labels=tuple(labels), task=task), "A toy.")
    speeds = {TorchBackend: (1.0, 3.0), OnnxEngine: (2.0, 1.0), OpenVinoEngine: (3.0, 2.0)}
    for engine in (OnnxEngine, OpenVinoEngine):
        monkeypatch.setattr(engine, "run", noted(engine, used))

    def time_backend(backend, model, signature, samples, number):
        speed, alone = speeds[type(getattr(backend, "engine", backend))]
        return speed, [alone] * number

    monkeypatch.setattr(fastest, "time_backend", time_backend)
    chosen, exact = (load(tmp_path / "model", device="cpu", engine=engine) for engine in ("auto", "torch"))
    examples = exact.read(path)
    samples = task.frame(exact.model.tokenizer, examples, exact.labels, gold=False).samples
    for some, engine in ((samples[:1], OnnxEngine), (samples, OpenVinoEngine)):
        expected = exact.backend.logits(task.part, some)
        chosen.backend.logits(task.part, some)  # chooses
        used.clear()
        for rows, others in zip(chosen.backend.logits(task.part, some), expected, strict=True):
            np.testing.assert_allclose(rows, others, atol=1e-4, rtol=1e-4)
        assert set(used) == (set() if "export" in task.refusals else {engine})


def noted(engine, used):
    """Return the method that computes by an engine, which also adds the engine to a list."""
    run = engine.run

    def noting(self, inputs):
        used.append(engine)
        return run(self, inputs)

    return noting
