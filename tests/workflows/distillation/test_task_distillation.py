"""Task distillation: every kind of task, two parts, texts without labels, other vocabularies, exact resume."""

import json
import tomllib
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
import transformers

from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.tasks.ranking import Ranking
from unmask.workflows.distillation import task_distillation
from unmask.workflows.distillation.distill import distill

from .conftest import CPU, FILES, SHAPE, TASKS_OF, learn

BOTH = ("soft_targets", "layer_matching")


@pytest.mark.parametrize("kind", TASKS_OF)
@pytest.mark.parametrize("recipe", [pytest.param("distilbert-mini", marks=pytest.mark.exhaustive), "tinybert-mini"])
def test_a_student_of_every_kind_of_task(kind, recipe, tuned, examples, tmp_path):
    run = learn(recipe, tuned(kind), tmp_path / "run", train=examples / FILES[kind])
    student, teacher = load_model(run.path), load_model(tuned(kind))
    assert student.task.part == teacher.task.part and student.labels == teacher.labels
    assert student.encoder.num_layers == 2
    lines = run.read_metrics("train")
    named = [{name for name in (*BOTH, "hidden_cosine") if f"{name}_loss" in line} for line in lines]
    tiny = [{"layer_matching"}] * 2 + [{"soft_targets"}] * 2
    assert named == (tiny if recipe == "tinybert-mini" else [{"soft_targets", "hidden_cosine"}] * 4)
    scores = json.loads((run.path / "dev.json").read_text())
    assert scores["examples"] > 5 and student.task.metric in scores["metrics"]
    card = (run.model / "README.md").read_text()
    assert f"Distilled from {tuned(kind)} (recipe {recipe}; {examples / FILES[kind]}) with unmask" in card
    name = (
        "SequenceClassification" if kind in ("pairs", "classification", "regression") else kind.title().replace("-", "")
    )
    transformers_class = getattr(transformers, f"AutoModelFor{name}")
    _, notes = transformers_class.from_pretrained(run.model, output_loading_info=True)
    assert not notes["missing_keys"] and not notes["unexpected_keys"]


def test_steps_of_a_student_of_a_ranking_have_as_many_passages(teacher_model, examples, tmp_path):
    """It imitates the score of each passage, and does not compare those of a query."""
    lines = [line.split("\t") for line in (examples / "pairs.tsv").read_text().splitlines()[1:]]
    rows = [f"{one}\t{text}\t{grade}" for one, other, _ in lines for text, grade in ((other, 1), (one, 0))]
    (tmp_path / "a.tsv").write_text("\n".join(["query\tpassage\tgrade", *rows]))
    task = Ranking(length=32, loss="softmax", least=0, most=1, activation="identity")
    head = task.build(teacher_model.encoder.head, ())
    model = replace(teacher_model, heads={task.part: head.published()}, task=task)
    save_model(tmp_path / "teacher", model, "card")
    settings = {"budget.steps": 2}
    start = {"train": tmp_path / "a.tsv", "settings": settings, "layers": 2, "device": "cpu", "quiet": True}
    distill("distilbert-mini", tmp_path / "teacher", tmp_path / "run", **start)
    recipe = tomllib.loads((tmp_path / "run/recipe.toml").read_text())
    assert recipe["batch"]["sequences"] == 16
    assert recipe["task"]["loss"] == "binary" and recipe["task"]["activation"] == "identity"


def test_a_student_learns_what_the_teacher_predicts(tuned, examples, tmp_path):
    settings = {"budget.steps": 80, "optimizer.learning_rate": 3e-3, "distillation.intermediate": 0.2}
    run = learn("tinybert-mini", tuned("classification"), tmp_path / "run", settings=settings,
                unlabelled=examples / "plain.txt", layers=3)  # fmt: skip
    heldout = run.read_metrics("heldout")
    assert heldout[-1]["soft_targets_loss"] < 0.5 * heldout[0]["soft_targets_loss"]
    texts = (examples / "plain.txt").read_text().splitlines()
    teacher, student = (Predictor(load_model(path), CPU).predict(texts) for path in (tuned("classification"), run.path))
    agreement = np.mean([one.label == other.label for one, other in zip(teacher, student, strict=True)])
    assert agreement > 0.75
    assert json.loads((run.path / "dev.json").read_text())["examples"] == 12, "a tenth, labeled by the teacher"


def test_the_teacher_is_not_changed(tuned, examples, tmp_path, monkeypatch):
    seen, real = [], task_distillation.teacher_of_task

    def remember(model):
        teacher = real(model)
        seen.append((teacher, {name: value.clone() for name, value in teacher.learner.state_dict().items()}))
        return teacher

    monkeypatch.setattr(task_distillation, "teacher_of_task", remember)
    learn("tinybert-mini", tuned("classification"), tmp_path / "run", train=examples / FILES["classification"])
    ((teacher, before),) = seen
    rows = "encoder.embeddings.words.weight"  # only those of the examples' tokens are kept in training
    for name, value in teacher.learner.state_dict().items():
        assert torch.equal(value, before[name]) or name == rows, "bit for bit"
    assert all(value.grad is None for value in teacher.learner.parameters())
    kept = {tuple(row) for row in before[rows].tolist()}
    assert kept >= {tuple(row) for row in teacher.learner.state_dict()[rows].tolist()}


def test_the_settings_are_those_of_teacher_recipe_and_rule(tuned, examples, tmp_path):
    run = learn("tinybert-mini", tuned("regression"), tmp_path / "run", train=examples / FILES["regression"])
    recipe = tomllib.loads((run.path / "recipe.toml").read_text())
    assert recipe["task"] | {"pairs": False} == {
        "kind": "regression", "length": 32, "windows": 1, "stride": 0, "mean": 2.0, "deviation": 1.5, "pairs": False
    }  # fmt: skip
    assert recipe["distillation"] == {"gold": 0.0, "intermediate": 0.5}
    assert recipe["objective"]["soft_targets"]["temperature"] == 1.0
    assert recipe["objective"].keys() == set(BOTH)
    run = learn(
        "distilbert-mini", tuned("classification"), tmp_path / "other", train=examples / FILES["classification"]
    )
    recipe = tomllib.loads((run.path / "recipe.toml").read_text())
    assert recipe["objective"]["soft_targets"] == {"weight": 5.0, "temperature": 2.0, "all_tokens": False}
    assert recipe["distillation"] == {"gold": 0.0} and "masked_lm" not in recipe["objective"]


def test_labels_are_learned_from_if_asked_for(tuned, examples, tmp_path):
    data = {"train": examples / FILES["classification"]}
    settings = {"distillation.gold": 0.5, "distillation.intermediate": 0}
    run = learn("tinybert-mini", tuned("classification"), tmp_path / "run", settings=settings, **data)
    for line in run.read_metrics("train"):
        assert line["classification_loss"] and line["layer_matching_loss"], "everything at once"
        parts = line["soft_targets_loss"] + line["layer_matching_loss"] + 0.5 * line["classification_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
    plain = learn("tinybert-mini", tuned("classification"), tmp_path / "plain", **data)
    assert not any("classification_loss" in line for line in plain.read_metrics("train"))
    assert all("classification_accuracy" in line for line in plain.read_metrics("heldout"))


@pytest.mark.parametrize("stop", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_T1_a_resumed_distillation_equals_an_unbroken_one(stop, tuned, examples, tmp_path, stopped_at):
    given = {"train": examples / FILES["token-classification"], "settings": {"dropout": 0.1}}
    teacher = tuned("token-classification")
    whole = learn("tinybert-mini", teacher, tmp_path / "whole", **given)
    with stopped_at(stop):
        learn("tinybert-mini", teacher, tmp_path / "cut", **given)
    cut = learn("tinybert-mini", teacher, tmp_path / "cut", resume=True, **given)
    assert load_model(whole.path).fingerprint() == load_model(cut.path).fingerprint()
    losses = [[line["loss"] for line in run.read_metrics("train")] for run in (whole, cut)]
    assert losses[0] == losses[1]
    other = tuned("token-classification", tokens=7)
    save_model(other, load_model(other), "")
    torch.manual_seed(5)
    changed = load_model(other)
    changed.encoder.words.weight.data[0] += 1
    save_model(other, changed, "")
    with pytest.raises(UserError, match=r"inputs.teacher was \w{12}, now \w{12}"):
        learn("tinybert-mini", other, tmp_path / "cut", resume=True, **given)


def test_only_the_used_rows_of_student_and_teacher_give_the_same_student(tuned, examples, tmp_path, monkeypatch):
    given = {"train": examples / FILES["classification"]}
    reduced = learn("distilbert-mini", tuned("classification"), tmp_path / "reduced", **given)
    from unmask.workflows.finetuning import run_job as run_module

    monkeypatch.setattr(run_module, "TOKEN_EMBEDDINGS", "nothing has this")
    whole = learn("distilbert-mini", tuned("classification"), tmp_path / "whole", **given)
    sizes = [(run.checkpoints / "step-00000004/model.safetensors").stat().st_size for run in (reduced, whole)]
    assert sizes[0] < sizes[1]
    first, second = (load_model(run.path).encoder.state_dict() for run in (reduced, whole))
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-4, atol=1e-6)


def test_a_student_continues_from_a_general_one(tuned, teacher, examples, tmp_path):
    run = learn("tinybert-mini", tuned("classification"), tmp_path / "run", init=teacher,
                train=examples / FILES["classification"])  # fmt: skip
    assert load_model(run.path).encoder.num_layers == 4


def test_what_cannot_work_is_refused_with_the_reason(tuned, teacher, examples, documents, tmp_path):
    other = train_wordpiece(documents, size=120)
    save_model(tmp_path / "foreign", Model(SHAPE.build(other.size), other), "")
    words = load_model(teacher).tokenizer
    save_model(tmp_path / "long", Model(msgspec.structs.replace(SHAPE, positions=96).build(words.size), words), "")
    unknown = tmp_path / "unknown.tsv"
    unknown.write_text("text\tlabel\n" + "a dog\tmaybe\na cat\tno\n" * 20)
    row, pairs = examples / FILES["classification"], examples / FILES["pairs"]
    foreign, questions = {"init": tmp_path / "foreign"}, {"train": examples / FILES["question-answering"]}
    off = {"objective.layer_matching": False}
    for kind, given, settings, message in (
        (teacher, {"train": row}, {}, "was not fine-tuned for a task; fine-tune it first: unmask.finetune.., or dis"),
        ("classification", {}, {}, "there is nothing to learn from; pass train, unlabelled, corpus or text"),
        ("classification", {"train": unknown}, {}, "unknown.tsv:2: unknown label 'maybe'; the model knows no, yes"),
        ("classification", {"train": pairs}, {}, "a pair of texts, but the model was trained on single texts"),
        ("pairs", {"train": row}, {}, "one text, but the model was trained on pairs of texts"),
        ("regression", {"train": row}, {}, "the label 'no' is not a number"),
        ("token-classification", {"train": row}, {}, "classification.tsv"),
        ("question-answering", {"unlabelled": examples / "plain.txt"}, {}, "this model is for question answering"),
        ("classification", {"train": row, **foreign}, {}, "objective.layer_matching compares tokens, but the voc"),
        ("question-answering", questions | foreign, off, "answers are predicted as tokens, but the vocabulary"),
        ("classification", {"train": row}, {"frozen": True}, '"frozen": True} is not allowed: students are trained'),
        ("classification", {"train": row}, {"task.length": 65}, "length 65 exceeds the 64 positions of the student"),
        ("classification", {"train": row, "init": tmp_path / "long"}, {"task.length": 65},
         "length 65 exceeds the 64 positions of the teacher; pass .*task.length"),
        ("regression", {"train": examples / FILES["regression"]}, {"objective.soft_targets.temperature": 2},
         "temperature.: …. has no effect on regression"),
        ("classification", {"train": row}, {"objective.soft_targets.all_tokens": True}, "all_tokens.: …. has no eff"),
        ("classification", {"train": row}, {"seed": -3}, "seed must be a whole number >= 0, not -3"),
        ("classification", {"train": row}, {"objective.layer_matching.layers": [1, 5]},
         "layers must name one of the teacher's layers 1 to 4 for each of the student's 2 layers, not"),
        ("classification", {"train": row}, {"budget.patience": 2}, "goes with a single part: set distillation.inter"),
        ("classification", {"train": row}, {"objective.soft_targets": False}, "the student learns no predictions"),
        ("classification", {"train": row, "masked_lm": teacher}, {}, "masked_lm has no effect without augment"),
        ("classification", {"train": row, "augment": 1, "masked_lm": tmp_path / "foreign"}, {}, "no masked-LM"),
        ("classification", {"train": row, "augment": -1}, {}, "augment=-1: not a whole number of 0 or more"),
        ("classification", {"train": row, "init": teacher, "layers": 2}, {}, "layers has no effect with init"),
        ("classification", {"text": row, "init": teacher, "layers": 2}, {}, "layers has no effect with init"),
    ):  # fmt: skip
        path = kind if kind is teacher else tuned(kind)
        given = {"layers": 2, **given} if "init" not in given else given
        with pytest.raises(UserError, match=message):
            distill(read_recipe("tinybert-mini"), path, tmp_path / "run", settings=settings, device="cpu",
                    **given)  # fmt: skip
        assert not (tmp_path / "run").exists()
