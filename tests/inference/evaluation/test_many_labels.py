"""What the scores of many examples and labels need in memory, and that more than the machine has is refused at once."""

import tracemalloc

import pytest

from unmask.families.bert import BertSettings
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.predictor import SCORE_BYTES, Predictor
from unmask.metrics import intervals
from unmask.model.model import Model
from unmask.support import environment
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.multi_label import MultiLabel
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
SHAPE = BertSettings(layers=1, width=16, heads=2, feed_forward=16, positions=40)
EXAMPLES, LABELS = 200, 1000
TASKS = [Classification(length=16), MultiLabel(length=16, threshold=0.9)]


@pytest.fixture(params=TASKS, ids=lambda task: task.part)
def predictor(request, tokenizer):
    task, labels = request.param, tuple(f"label {number}" for number in range(LABELS))
    heads = {task.part: task.build(SHAPE.head, labels).state_dict()}
    return Predictor(Model(SHAPE.build(tokenizer.size), tokenizer, heads, labels, task), CPU)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.tsv"
    lines = [f"the dog {number}\tlabel {number % LABELS}" for number in range(EXAMPLES)]
    path.write_text("\n".join(["text\tlabel", *lines]))
    return path


def test_scores_need_about_the_stated_memory(predictor, rows, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 2)
    tracemalloc.start()
    evaluate_task(predictor, [rows])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stated = SCORE_BYTES * (1 if predictor.task.exclusive else 2)
    assert 0.5 * stated < peak / (EXAMPLES * LABELS) < 2 * stated


def test_more_scores_than_fit_into_memory_are_refused_before_anything_is_computed(predictor, rows, monkeypatch):
    examples = predictor.task.read([rows], columns={})
    needed = SCORE_BYTES * (1 if predictor.task.exclusive else 2) * EXAMPLES * LABELS
    monkeypatch.setattr(environment, "total_memory", lambda: needed)
    predictor.run(examples)
    monkeypatch.setattr(environment, "total_memory", lambda: needed - 1)
    monkeypatch.setattr(predictor.backend, "logits", None)
    message = r"scoring 1,000 labels for 200 examples needs at least 0.0 GiB .*; compute them in several parts"
    with pytest.raises(UserError, match=message):
        evaluate_task(predictor, [rows])
