"""Models that are fine-tuned on the other folds: those of `finetune`, also after an interruption, and they count."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import unmask
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.auditing import finetuned
from unmask.workflows.auditing.finetuned import finetuned_probabilities
from unmask.workflows.auditing.out_of_fold import judge_classes, judge_sets, out_of_fold
from unmask.workflows.finetuning import job
from unmask.workflows.finetuning.examples import read_labels
from unmask.workflows.finetuning.job import InitialModel

from .conftest import NAMES, texts_of

FOLDS = 2


def examples_of(task):
    """Return 60 labeled examples in memory; if they have one label each, "river" is that of a single one."""
    rng = np.random.default_rng(0)
    classes = rng.random((60, 4)) < 0.4 if task == "multi-label" else np.eye(4, dtype=bool)[np.arange(60) % 3]
    texts = texts_of(classes, rng)
    if task == "token-classification":
        words = [text.split() for text in texts]
        return [{"words": each, "tags": [f"B-{word}" if word in NAMES else "O" for word in each]} for each in words]
    labels = [[name for name, has in zip(NAMES, row, strict=True) if has] for row in classes]
    if task == "classification":
        labels = ["river" if number == 7 else label for number, (label,) in enumerate(labels)]
    return [{"text": text, "label": each} for text, each in zip(texts, labels, strict=True)]


@pytest.mark.parametrize("kind", ["classification", "multi-label", "token-classification"])
def test_probabilities_are_those_of_models_that_finetune_trains(kind, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "MAX_EPOCHS", 4)
    monkeypatch.setattr(TASKS[kind], "training", replace(TASKS[kind].training, epochs=4, steps=8))
    records, task = examples_of(kind), TASKS[kind]()
    examples = task.read(as_sources(records), columns={})
    labels, folds = read_labels(task, examples), np.arange(len(examples)) % FOLDS
    place, start = tmp_path / "runs", InitialModel(encoder)
    options = {"task": kind, "start": start, "directory": place, "machine": choose_machine("cpu")}
    probabilities = finetuned_probabilities(examples, labels, folds, **options, display=Display(quiet=True))
    expected = {}
    for fold in range(FOLDS):
        others = [record for record, at in zip(records, folds, strict=True) if at != fold]
        run = unmask.finetune(kind, encoder, others, tmp_path / f"{fold}", all_examples=True, device="cpu", quiet=True)
        places = np.flatnonzero(folds == fold)
        predictions = unmask.predict(run, [records[place] for place in places], quiet=True)
        for place, prediction in zip(places, predictions, strict=True):
            if kind == "token-classification":
                scores = torch.from_numpy(prediction.scores.logits).softmax(1).numpy()
                names = prediction.scores.labels
            else:
                scores, names = np.array([list(prediction.scores.values())]), list(prediction.scores)
            expected[place] = np.zeros((len(scores), len(labels)))
            expected[place][:, [labels.index(name) for name in names]] = scores
    np.testing.assert_allclose(probabilities, np.concatenate([expected[at] for at in sorted(expected)]), atol=1e-5)
    if kind == "classification":
        assert probabilities[folds == folds[7], labels.index("river")].max() == 0


def test_an_interrupted_audit_continues(encoder, planted, tmp_path, monkeypatch):
    texts, labels, _ = planted(60)
    options = {"task": "classification", "folds": 3, "finetune_in": tmp_path / "runs", "device": "cpu", "quiet": True}
    train, runs = finetuned.run_job, []

    def fail_at_the_second(job, run, **rest):
        runs.append(run.name)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return train(job, run, **rest)

    monkeypatch.setattr(finetuned, "run_job", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        unmask.audit(encoder, (texts, labels), **options)
    first = tmp_path / "runs" / "fold-1" / "model" / "model.safetensors"
    written = first.stat().st_mtime_ns
    audit = unmask.audit(encoder, (texts, labels), **options)
    assert first.stat().st_mtime_ns == written
    assert runs == ["fold-1", "fold-2", "fold-1", "fold-2", "fold-3"]
    monkeypatch.undo()
    again = unmask.audit(encoder, (texts, labels), **{**options, "finetune_in": tmp_path / "others"})
    assert [(each.line, each.probability) for each in again.suspects] == [
        (each.line, pytest.approx(each.probability)) for each in audit.suspects
    ]
    with pytest.raises(UserError, match="inputs differ"):
        unmask.audit(encoder, (texts[1:], labels[1:]), **options)


def test_what_fine_tuned_models_say_counts():
    rng = np.random.default_rng(0)
    true, folds = rng.integers(0, 3, 120), np.arange(120) % 4
    wrong = rng.random(120) < 0.1
    given = np.where(wrong, (true + 1) % 3, true)
    noise = torch.from_numpy(rng.normal(size=(120, 4)))
    told = np.eye(3)[true] * 0.9 + 0.1 / 3
    alone, both = (judge_classes(noise, given, folds, out_of_fold, finetuned) for finetuned in (None, told))
    assert not (alone.wrong == wrong).all()
    assert (both.wrong == wrong).all()
    assert (both.suggested == true)[wrong].all()
    targets, flips = np.eye(3, dtype=bool)[true], rng.random((120, 3)) < 0.1
    verdicts = judge_sets(noise, targets ^ flips, folds, np.eye(3)[true] * 0.9 + 0.05)
    assert (np.stack([each.wrong for each in verdicts], 1) == flips).mean() > 0.95
