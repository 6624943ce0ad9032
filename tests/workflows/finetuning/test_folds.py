"""Few examples: settings of the task are tuned on predictions of models that were not trained on them."""

import json

import msgspec
import numpy as np
import pytest

from unmask.data.labelled.labelled_file import Row
from unmask.inference.load import load
from unmask.metrics.classification import calibration_error
from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.tasks.holding_out import ENOUGH
from unmask.tasks.multi_label import MultiLabel
from unmask.training.loop import Trainer
from unmask.workflows.finetuning import run_job
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.folds import NUMBER, changes, folds_of

from .test_probe import texts_of, write

TUNED = {"task.temperature": "tuned", "budget.epochs": 8, "optimizer.learning_rate": 5e-3, "batch.sequences": 8}
OPTIONS = {"settings": TUNED, "quiet": True, "device": "cpu"}


@pytest.mark.seeds(10)
def test_folds_keep_equal_texts_together_and_are_no_more_than_enough(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.choice([8, 30, 300, 900]))
    rows = [
        Row({"text": f"text {rng.integers(number)}", "label": "ab"[index % 2]}, "x", index) for index in range(number)
    ]
    folds = folds_of(TASKS["classification"](temperature="tuned"), rows)
    assert (np.sum(folds, 0) <= 1).all()
    predicted = int(np.sum(folds))
    assert (
        predicted == number and len(folds) <= NUMBER if number < ENOUGH else ENOUGH <= predicted < ENOUGH + number / 3
    )
    for held in folds:
        inside, outside = (
            {row.values["text"] for row, is_in in zip(rows, part, strict=True) if is_in} for part in (held, ~held)
        )
        assert not inside & outside


def test_what_is_learned_by_heart_is_not_said_to_be_certain(published, tmp_path):
    rng = np.random.default_rng(0)
    labels = ("good", "bad")
    noise = [(text, str(rng.choice(labels))) for text, _ in texts_of(rng, labels, 16)]
    train = write(tmp_path / "noise.tsv", noise)
    finetune("classification", published, train, tmp_path / "run", all_examples=True, **OPTIONS)
    model = load(tmp_path / "run")
    assert model.task.temperature > 5
    fresh = [text for text, _ in texts_of(rng, labels, 20)]
    assert np.mean([max(one.scores.values()) for one in model.predict(fresh)]) < 0.75
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 8 * len(noise) / 8, "it is trained on all examples"
    assert not (tmp_path / "run" / "folds").exists()


def test_a_label_of_a_single_text_is_not_judged_by(published, tmp_path, capsys):
    texts = [*texts_of(np.random.default_rng(0), ("good", "bad"), 8), ("the only one", "other")]
    settings = TUNED | {"budget.epochs": 1}
    train = write(tmp_path / "train.tsv", texts)
    finetune("classification", published, train, tmp_path / "run", all_examples=True, device="cpu", settings=settings)
    assert "tuned on 16 training examples" in capsys.readouterr().err


def test_thresholds_of_many_labels_are_summed_up():
    task = MultiLabel()
    few, many = ({"threshold": values} for values in ((0.25, 0.5), (0.25, *[0.5] * 8)))
    assert changes(task, msgspec.structs.replace(task, **few)) == "threshold 0.25, 0.5"
    assert changes(task, msgspec.structs.replace(task, **many)) == "threshold from 0.25 to 0.5 for 9 labels"
    assert changes(task, msgspec.structs.replace(task, threshold=(0.1,) * 6)) == "threshold 0.1 for 6 labels"


def test_probabilities_match_how_often_they_are_right(published, tmp_path):
    # of this draw, with rates at which float32 and bf16 learn the same; of others the gain differs
    rng, slower = np.random.default_rng(2), TUNED | {"budget.epochs": 16, "optimizer.learning_rate": 2e-3}
    labels = ("good", "bad")
    flip = {"good": "bad", "bad": "good"}

    def noisy(each):
        return [(text, label if rng.random() < 0.8 else flip[label]) for text, label in texts_of(rng, labels, each)]

    train, fresh = write(tmp_path / "train.tsv", noisy(40)), noisy(100)
    errors = {}
    for name, temperature in (("tuned", "tuned"), ("plain", 1.0)):
        settings = slower | {"task.temperature": temperature}
        finetune(
            "classification", published, train, tmp_path / name, all_examples=True, **OPTIONS | {"settings": settings}
        )
        found = load(tmp_path / name).predict([text for text, _ in fresh])
        right = np.array([one.label == label for one, (_, label) in zip(found, fresh, strict=True)])
        errors[name] = calibration_error(np.array([max(one.scores.values()) for one in found]), right)
    assert errors["tuned"] < 10 < errors["plain"]


def test_an_interrupted_run_goes_on_with_its_folds(published, tmp_path, monkeypatch):
    labels = ("good", "bad")
    train = write(tmp_path / "train.tsv", texts_of(np.random.default_rng(2), labels, 8))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    options = {**OPTIONS, "settings": TUNED | {"budget.epochs": 2}, "all_examples": True}
    finetune("classification", published, train, whole, **options)
    complete, trained = Trainer.complete, []

    def counted(self, **options):
        trained.append(len(self.source.samples))
        if len(trained) == 3:
            raise KeyboardInterrupt
        complete(self, **options)

    monkeypatch.setattr(Trainer, "complete", counted)
    with pytest.raises(KeyboardInterrupt):
        finetune("classification", published, train, cut, **options)
    assert (cut / "folds").exists()
    finetune("classification", published, train, cut, **options)
    texts = ["a good day", "a bad night"]
    assert load(cut).predict(texts) == load(whole).predict(texts)
    with pytest.raises(UserError, match="not empty"):
        finetune("classification", published, train, cut, **options)
    monkeypatch.setattr(run_job, "tuned_on_folds", None)
    finetune("classification", published, train, cut, resume=True, **options)
