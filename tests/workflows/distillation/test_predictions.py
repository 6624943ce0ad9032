"""Predictions as labels of samples, of a teacher that reads texts otherwise; test_targets.py has stored ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.distilbert import DistilBertSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, load_model, save_model
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.training.runs.display import Display
from unmask.workflows.distillation import task_distillation
from unmask.workflows.distillation.distill import distill
from unmask.workflows.distillation.lesson import Lesson, attach
from unmask.workflows.distillation.task_distillation import prepare_lesson
from unmask.workflows.finetuning.job import LabelledFiles

from .conftest import CPU, FILES, LABELS, SHAPE, TASKS_OF, learn


@pytest.mark.parametrize(
    "kind", ["classification", pytest.param("regression", marks=pytest.mark.exhaustive), "token-classification"]
)
def test_predictions_are_learned_across_vocabularies(kind, tuned, examples, documents, tmp_path):
    other = train_wordpiece(documents, size=120)
    save_model(tmp_path / "init", Model(SHAPE.build(other.size), other), "")
    settings = {"objective.layer_matching": False, "optimizer.learning_rate": 1e-3, "budget.steps": 12}
    given = {"init": tmp_path / "init", "unlabelled": examples / FILES[kind], "dev": examples / FILES[kind]}
    run = learn("tinybert-mini", tuned(kind), tmp_path / "run", settings=settings, **given)
    student, heldout = load_model(run.path), run.read_metrics("heldout")
    assert student.tokenizer.size == 120
    assert heldout[-1]["soft_targets_loss"] < 0.9 * heldout[0]["soft_targets_loss"]


def test_the_predictions_across_vocabularies_are_those_of_the_same_words(tuned, examples, documents, tmp_path):
    other = train_wordpiece(documents, size=120)
    save_model(tmp_path / "init", Model(SHAPE.build(other.size), other), "")
    seen = {}
    for init in (None, tmp_path / "init"):
        files = LabelledFiles([examples / FILES["token-classification"]])
        lesson = Lesson(read_recipe("tinybert-mini"), tuned("token-classification"), files, init=init)
        lesson = replace(lesson, settings={"objective.layer_matching": False, "budget.epochs": 1})
        seen[init] = prepare_lesson(lesson, CPU, Display(quiet=True))
    backend = TorchBackend(load_model(tuned("token-classification")), CPU)
    ours = np.concatenate(backend.logits("token_classification", seen[None].train.samples))
    theirs = np.concatenate([one.labels["soft_targets"] for one in seen[tmp_path / "init"].train.samples])
    np.testing.assert_allclose(theirs.reshape(ours.shape), ours, atol=1e-4)
    assert seen[None].teacher is not None and seen[tmp_path / "init"].teacher is None


def test_a_student_without_segments_reads_pairs_as_its_teacher(tuned, tokenizer, examples, tmp_path):
    """The tokenizer of a DistilBERT does not mark the second text; the teacher read pairs that were not marked."""
    shape = DistilBertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64)
    save_model(tmp_path / "init", Model(shape.build(tokenizer.size), tokenizer), "")
    assert not load_model(tmp_path / "init").tokenizer.segments
    files, off = LabelledFiles([examples / FILES["pairs"]]), {"objective.layer_matching": False}
    lesson = Lesson(read_recipe("tinybert-mini"), tuned("pairs"), files, init=tmp_path / "init", settings=off)
    ready = prepare_lesson(lesson, CPU, Display(quiet=True))
    shares = np.exp([one.labels["soft_targets"] for one in ready.train.samples])  # (pairs, labels)
    wanted = Predictor(load_model(lesson.teacher), CPU).run(ready.split.train)
    expected = [[*one.scores.values()] for one in wanted]
    np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), expected, atol=1e-5)
    learn("tinybert-mini", lesson.teacher, tmp_path / "run", init=lesson.init, settings=off, train=files.train[0])
    assert not load_model(tmp_path / "run").tokenizer.segments


@pytest.mark.parametrize("matching", [False, {}], ids=["predictions", "layers first"])
def test_predictions_that_would_be_read_in_every_epoch_are_computed_once(
    matching, tuned, examples, tmp_path, monkeypatch
):
    asked, real = [], Teacher.predict
    monkeypatch.setattr(Teacher, "predict", lambda *given: asked.append(1) or real(*given))
    given = {"train": examples / FILES["classification"], "layers": 2}
    settings = {"budget.epochs": 4, "batch.sequences": 16, "objective.layer_matching": matching}

    def learned(name):
        recipe = read_recipe("tinybert-mini")
        distill(
            recipe,
            tuned("classification"),
            tmp_path / name,
            settings=settings,
            device="cpu",
            precision="float32",
            quiet=True,
            **given,
        )
        return load_model(tmp_path / name).encoder.state_dict()

    once = learned("once")
    assert not asked
    monkeypatch.setattr(task_distillation, "_predicts_again", lambda *given: False)
    for name, weight in learned("again").items():
        torch.testing.assert_close(once[name], weight, atol=1e-4, rtol=1e-3)
    assert asked


@pytest.fixture
def xlnet(tokenizer, tmp_path):
    """Return the directory of an XLNet, whose special tokens follow the text, tuned for a kind of task."""

    def save(kind):
        torch.manual_seed(0)
        shape, task = XlnetSettings(layers=3, width=32, heads=2, feed_forward=64, init_std=0.2), TASKS_OF[kind]
        labels = LABELS.get(kind, ())
        heads = {task.part: task.build(shape.head, labels).published()}
        save_model(tmp_path / kind, Model(shape.build(tokenizer.size), tokenizer, heads, labels, task), "")
        return tmp_path / kind

    return save


def test_the_predictions_for_a_student_with_special_tokens_elsewhere_are_those_for_the_texts(
    xlnet, teacher, examples, tmp_path
):
    off = {"objective.layer_matching": False}
    given = {"recipe": read_recipe("tinybert-mini"), "files": LabelledFiles([examples / FILES["classification"]])}
    lesson = Lesson(teacher=xlnet("classification"), init=teacher, settings=off, **given)
    ready = prepare_lesson(lesson, CPU, Display(quiet=True))
    logits = np.stack([one.labels["soft_targets"] for one in ready.train.samples])  # (texts, labels)
    texts = [row.values["text"] for row in ready.split.train]
    wanted = [[*one.scores.values()] for one in Predictor(load_model(lesson.teacher), CPU).predict(texts)]
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), wanted, atol=1e-5)
    assert {int(sample.positions["summary"][0]) for sample in ready.train.samples} == {0}
    learn("tinybert-mini", lesson.teacher, tmp_path / "run", init=teacher, settings=off, train=given["files"].train[0])


def test_what_cannot_be_learned_by_predictions_alone_is_refused_with_the_reason(xlnet, teacher, examples, tmp_path):
    reads = "but the student reads the vector of a text at its first token, and .* at the last one"
    for kind, settings, message in (
        (
            "classification",
            {},
            f"objective.layer_matching compares tokens, {reads}; pass settings=.{{1,2}}objective.la",
        ),
        (
            "question-answering",
            {"objective.layer_matching": False},
            f"answers are predicted as tokens, {reads}; ch",
        ),
    ):
        with pytest.raises(UserError, match=message):
            learn("tinybert-mini", xlnet(kind), tmp_path / "run", init=teacher, settings=settings,
                  train=examples / FILES[kind])  # fmt: skip


def test_logits_are_attached_to_the_samples_of_their_targets(tokenizer):
    frame = Frame.of(tokenizer)
    samples = [frame.wrap(np.arange(5, 9)).add(positions={"first": np.arange(number)}) for number in (2, 0, 3)]
    logits = np.arange(10.0).reshape(5, 2)
    found = attach(samples, [logits[:1], logits[1:]], "first")
    assert [one.labels["soft_targets"].tolist() for one in found] == [[0, 1, 2, 3], [], [4, 5, 6, 7, 8, 9]]
    assert attach([], [], "first") == []
    with pytest.raises(AssertionError, match="the same targets"):
        attach(samples, [logits[1:]], "first")
