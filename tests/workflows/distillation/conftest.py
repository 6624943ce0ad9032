"""A small teacher with random weights that are large enough to tell words apart, and recipes of smaller students."""

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.metrics import intervals
from unmask.model.model import Model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.tasks.classification import Classification
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.distillation import comparison
from unmask.workflows.distillation.distill import distill

CPU = choose_machine("cpu", "float32")
SHAPE = BertSettings(layers=4, width=32, heads=2, feed_forward=64, positions=64, init_std=0.2)
SMALL = {"layout.length": 48, "batch.tokens": 512, "optimizer.learning_rate": 1e-3, "budget.steps": 6}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Short measurements, few resamples."""
    monkeypatch.setattr(intervals, "RESAMPLES", 20)
    for name, value in (("SINGLE", 2), ("MANY", 4), ("ROUNDS", 1)):
        monkeypatch.setattr(comparison, name, value)


@pytest.fixture(scope="session")
def teacher_model(tokenizer):
    """A BERT of four layers with a masked-LM head."""
    torch.manual_seed(0)
    encoder = SHAPE.build(tokenizer.size)
    return Model(encoder, tokenizer, {"masked_lm": MaskedLM(BuildContext(encoder)).state_dict()}, tokens=1000)


@pytest.fixture(scope="session")
def teacher(teacher_model, tmp_path_factory):
    """Its directory."""
    path = tmp_path_factory.mktemp("teacher") / "model"
    save_model(path, teacher_model, "card")
    return path


LABELS = {"classification": ("no", "yes"), "token-classification": ("O", "B-X", "I-X")}
TASKS_OF = {
    "classification": Classification(length=32, pairs=False),
    "pairs": Classification(length=32, pairs=True),
    "regression": Regression(length=32, mean=2.0, deviation=1.5),
    "question-answering": QuestionAnswering(length=48, no_answer=False),
    "token-classification": TokenClassification(length=32),
}
"""The task of each kind of teacher."""
FILES = {kind: f"{kind}.tsv" for kind in TASKS_OF}
FILES |= {"token-classification": "token-classification.conll", "question-answering": "question-answering.json"}
"""Its files of examples."""


@pytest.fixture(scope="session")
def tuned(teacher_model, tmp_path_factory):
    """Return the directory of a teacher of a kind of task, whose head has random weights."""

    def save(kind, **more):
        torch.manual_seed(1)
        task, labels = TASKS_OF[kind], LABELS.get("classification" if kind == "pairs" else kind, ())
        head = task.build(teacher_model.encoder.head, labels)
        for weight in head.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        model = replace(teacher_model, heads={task.part: head.published()}, labels=labels, task=task, **more)
        path = tmp_path_factory.mktemp("tuned") / kind
        save_model(path, model, "card")
        return path

    return cache(save)


@pytest.fixture(scope="session")
def examples(documents, tmp_path_factory):
    """A folder of examples: `classification.tsv`, `pairs.tsv`, …, and the same without labels in `plain` files."""
    folder = tmp_path_factory.mktemp("examples")
    texts = [text[:90] for text in documents]
    rows = [f"{text}\t{('no', 'yes')[number % 2]}" for number, text in enumerate(texts)]
    (folder / "classification.tsv").write_text("\n".join(["text\tlabel", *rows]))
    rows = [f"{one}\t{other}\t{('no', 'yes')[len(one) % 2]}" for one, other in pairwise(texts)]
    (folder / "pairs.tsv").write_text("\n".join(["text_a\ttext_b\tlabel", *rows]))
    rows = [f"{text}\t{len(text) / 20}" for text in texts]
    (folder / "regression.tsv").write_text("\n".join(["text\tlabel", *rows]))
    sentences = [[f"{word} {'B-X' if word == 'dog' else 'O'}" for word in text.split()] for text in texts]
    (folder / "token-classification.conll").write_text("\n\n".join(map("\n".join, sentences)))
    paragraphs = [
        {"context": text, "qas": [{"id": f"{number}", "question": "Who sees it?", "answers": [answer_in(text)]}]}
        for number, text in enumerate(texts)
    ]
    squad = {"data": [{"paragraphs": paragraphs}]}
    (folder / "question-answering.json").write_text(json.dumps(squad))
    (folder / "plain.txt").write_text("\n".join(texts))
    return folder


def answer_in(text):
    """Return the second word of a text as an answer."""
    start = text.index(" ") + 1
    return {"text": text[start:].split()[0], "answer_start": start}


def recipe_of(name, **settings):
    """Return a recipe that trains in seconds."""
    return read_recipe(name, {**SMALL, **{key.replace("__", "."): value for key, value in settings.items()}})


def learn(recipe, teacher, out, *, settings=None, layers=2, **more):
    """Distill a student of a task in four steps, and return its run."""
    chosen = {"budget.steps": 4, "batch.sequences": 16, **(settings or {})}
    more |= {} if "init" in more else {"layers": layers}
    distill(read_recipe(recipe), teacher, out, settings=chosen, device="cpu", precision="float32", quiet=True, **more)
    return RunDirectory(out)
