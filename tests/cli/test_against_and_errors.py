"""Comparison of two models, and the page of errors, for tasks that predict spans: answers and entities."""

import json
import re
from html import unescape

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.spans import Spans
from unmask.tasks.token_classification import TokenClassification

from .conftest import run

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64, dropout=0.0, init_std=0.9)
TASKS = {
    "question-answering": (QuestionAnswering(length=48), ()),
    "token-classification": (TokenClassification(length=48), ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")),
    "spans": (Spans(length=48, width=3, nested=False), ("O", "LOC", "PER")),
}
ENTITIES = re.compile(r"\b(?:(?P<PER>dog|cat|teacher|doctor)|(?P<LOC>old town))\b")


def entities(text):
    return [(it.lastgroup, *it.span()) for it in ENTITIES.finditer(text)]


def tagged(text):
    """Return a sentence in columns."""
    lines = []
    for word in re.finditer(r"\S+", text):
        tag = "O"
        for kind, start, end in entities(text):
            if start <= word.start() < end:
                tag = f"{'B' if word.start() == start else 'I'}-{kind}"
        lines.append(f"{word[0]} {tag}")
    return lines


@pytest.fixture
def example(request, documents, tokenizer, tmp_path):
    """The task, a folder with two random models, their data, and the gold spans of each example by its caption."""
    kind = request.param
    task, labels = TASKS[kind]
    for name, seed in (("first", 0), ("second", 1)):
        torch.manual_seed(seed)
        head = task.build(SETTINGS.head, labels)
        torch.nn.init.normal_(head.out.weight)
        model = Model(SETTINGS.build(tokenizer.size), tokenizer, {task.part: head.state_dict()}, labels, task)
        save_model(tmp_path / name, model, "card")
    texts = [text.replace(".", " .") for text in documents[:20]]
    gold = {}
    if kind == "question-answering":
        data, paragraphs = tmp_path / "data.json", []
        for number, text in enumerate(texts):
            *_, answer = re.finditer(r"\w+ \w+", text)
            gold[f"{data}: q{number}"] = (text, [("", *answer.span())])
            answers = [{"text": answer[0], "answer_start": answer.start()}]
            qas = [{"id": f"q{number}", "question": "What is <there>?", "answers": answers}]
            paragraphs.append({"context": text, "qas": qas})
        data.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    else:
        data, lines = tmp_path / "data.conll", []
        for text in texts:
            gold[f"{data}:{len(lines) + 1}"] = (text, entities(text))
            lines += [*tagged(text), ""]
        data.write_text("\n".join(lines))
    return kind, tmp_path, data, gold


def predicted(kind, folder, data):
    """Return the spans that the first model predicts, by the caption of the example, from the output of `predict`."""
    out = folder / "predictions.json"
    run("predict", "--model", folder / "first", "--data", data, "--out", out)
    if kind == "question-answering":
        spans = json.loads((folder / "predictions.json.nbest.json").read_text())
        return {f"{data}: {id}": [("", best[0]["start"], best[0]["end"])] for id, best in spans.items()}
    found, line = {}, 1
    for one in map(json.loads, out.read_text().splitlines()):
        found[f"{data}:{line}"] = [(it["label"], it["start"], it["end"]) for it in one["entities"]]
        line += len(one["text"].split()) + 1
    return found


def read_page(page):
    """Return, by the caption of each article, its last text, the marked characters, the labels, and the answers."""
    found = {}
    for article in re.findall(r"<article>(.*?)</article>", page, re.DOTALL):
        caption = unescape(re.search(r"<bdi>(.*?)</bdi>", article)[1])
        body = re.findall(r'<div class="text" dir="auto">(.*?)</div>', article, re.DOTALL)[-1]
        labels = {kind: re.findall(rf'<sup class="{kind}">(.*?)</sup>', body) for kind in ("gold", "predicted")}
        below = dict(re.findall(r'<bdi class="word (\w+)">(.*?)</bdi>', article))
        text, marks = "", {"gold": set(), "predicted": set()}
        bare = re.sub(r"<sup.*?</sup>", "", body)
        for classes, piece in re.findall(r'(?:^|</mark>|<mark class="([a-z ]+)">)([^<]*)', bare):
            for name in classes.split():
                marks[name] |= set(range(len(text), len(text) + len(unescape(piece))))
            text += unescape(piece)
        found[caption] = (text, marks, labels, below)
    return found


def characters(spans):
    return {index for _, start, end in spans for index in range(start, end)}


def same(kind, text, *both):
    """Return whether spans are the same entities, or the same answer except for articles."""
    if kind != "question-answering":
        return both[0] == both[1]
    one, other = (re.findall(r"\w+", text[start:end].lower()) for ((_, start, end),) in both)
    return [word for word in one if word not in ("a", "the")] == [word for word in other if word not in ("a", "the")]


@pytest.mark.parametrize("example", TASKS, indirect=True)
def test_both_models_are_scored_and_errors_are_marked(example):
    kind, folder, data, gold = example
    command = ("evaluate", "--data", data, "--json", "--model")
    page = folder / "errors.html"
    result = json.loads(run(*command, folder / "first", "--against", folder / "second", "--errors", page).out)
    other = json.loads(run(*command, folder / "second").out)["metrics"]
    assert (result["task"], result["examples"]) == (kind, 20)
    assert result["against"]["metrics"] == other != result["metrics"]
    assert result["against"]["differences"].keys() == other.keys()
    for name, found in result["against"]["differences"].items():
        assert found["difference"] == pytest.approx(result["metrics"][name] - other[name])
        assert found["interval"][0] <= found["difference"] <= found["interval"][1]
        assert 0 < found["p"] <= 1

    predictions, html = predicted(kind, folder, data), page.read_text(encoding="utf8")
    articles = read_page(html)
    assert predictions.keys() == gold.keys()
    wrong = {caption for caption, (text, spans) in gold.items() if not same(kind, text, spans, predictions[caption])}
    assert articles.keys() == wrong
    assert len(wrong) > 10
    assert html.count("What is &lt;there&gt;?") == (len(wrong) if kind == "question-answering" else 0)
    for caption, (text, marks, labels, below) in articles.items():
        assert text == gold[caption][0]
        spans = {"gold": gold[caption][1], "predicted": predictions[caption]}
        assert marks == {name: characters(one) for name, one in spans.items()}
        assert labels == {name: [label for label, *_ in one if label] for name, one in spans.items()}
        if kind == "question-answering":
            assert below == {name: text[start:end] for name, ((_, start, end),) in spans.items()}
    assert any(marks["predicted"] for _, marks, *_ in articles.values())
