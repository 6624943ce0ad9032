"""Runs on several tasks: their gradients, their order, resuming, and the models that they make."""

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import safetensors.torch
import torch
import transformers

import unmask
from unmask.data.batches.batch import collate
from unmask.data.batches.sources import mixing_rates
from unmask.model.directory import models_of_tasks
from unmask.model.model import Model, load_model, save_model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.sparse import WARMUP, SparseHead
from unmask.tasks.task import Framed
from unmask.training.machine import choose_machine
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.summary import read_run
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel
from unmask.workflows.finetuning.prepare import prepare
from unmask.workflows.multitask.mixture import prepare_mixture, read_tables
from unmask.workflows.multitask.multitask import describe_training

from .conftest import HERE, OTHERS, SHAPE

CPU = choose_machine("cpu", "float32")
QUIET = Display(quiet=True)
FEW = {"budget.steps": 6, "schedule.warmup": 0.0}


def gradients(learner, batch):
    """Return the gradients of a batch's mean loss, by the names of parameters; those without one are left out."""
    learner.train()
    torch.manual_seed(1)
    ((name, part),) = learner(batch).items()
    (part.sum / batch.counts[name]).backward()
    return {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("name", ["mood", "names", "size"])
def test_a_mixed_step_has_the_gradients_of_its_task_alone(start, tables, name):
    mixture = prepare_mixture(read_tables(tables), InitialModel(start), {}, CPU, QUIET)
    part, table = mixture.parts[name], read_tables(tables)[name]
    settings = {f"task.{key}": value for key, value in table.settings.items()}
    job = FinetuningJob(table.task, InitialModel(start), table.files(), settings, frozen=False, machine=CPU, quiet=True)
    alone = prepare(job, CPU, QUIET, choosing=False)
    assert [sample.ids.tolist() for sample in part.train.samples] == [
        sample.ids.tolist() for sample in alone.train.samples
    ]
    kind = alone.recipe.task.part
    mixed = gradients(
        mixture.learner, collate([mixture.learner.prepare(sample, {name}) for sample in part.train.samples[:16]])
    )
    single = gradients(alone.learner, collate([alone.learner.prepare(sample) for sample in alone.train.samples[:16]]))
    renamed = {key.replace(f"objectives.{kind}.", f"objectives.{name}."): value for key, value in single.items()}
    assert mixed.keys() == renamed.keys() and len(mixed) > 20
    assert all(torch.equal(value, renamed[key]) for key, value in mixed.items())


def test_each_task_has_a_complete_model_on_the_same_encoder(run, tables):
    scores = json.loads((run / "dev.json").read_bytes())
    encoders = []
    for name, task in (("mood", "classification"), ("names", "token-classification"), ("size", "regression")):
        model = load_model(run / "model" / name)
        assert model.task.part == task.replace("-", "_") == scores[name]["task"].replace("-", "_")
        assert model.task.length == tables[name]["settings"]["length"]
        encoders.append(model.encoder.state_dict())
    for key, value in encoders[0].items():
        assert torch.equal(value, encoders[2][key])
        assert torch.equal(value, encoders[1][key]) or key.startswith("pooler.")  # taggers are saved without one
    assert scores["mood"]["metrics"]["accuracy"] == 100 and scores["names"]["metrics"]["f1"] == 100
    assert scores["size"]["metrics"]["pearson"] > 30
    result = unmask.evaluate(run / "model" / "size", tables["size"]["dev"], **HERE)
    assert result["metrics"] == scores["size"]["metrics"] and result["examples"] == 30


def test_models_predict_and_transformers_reads_them(run):
    assert unmask.load(run / "model" / "mood").predict(["the dog near the river"])[0].label == "good"
    tagged = unmask.load(run / "model" / "names").tag("river house dog market")
    assert [(entity.text, entity.label) for entity in tagged.entities] == [("dog", "X")]
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model" / "mood").eval()
    words = transformers.AutoTokenizer.from_pretrained(run / "model" / "mood")
    with torch.no_grad():
        theirs = loaded(**words(["the cat sees"], return_tensors="pt")).logits.softmax(1)[0]
    (ours,) = unmask.load(run / "model" / "mood").predict(["the cat sees"])
    assert [ours.scores[label] for label in loaded.config.id2label.values()] == pytest.approx(theirs.tolist(), abs=1e-5)


def test_each_is_exported_or_all_at_once(run, tmp_path):
    for model, out in ((run, "all"), (run / "model" / "mood", "one"), (run / "model", "again")):
        unmask.export(model, tmp_path / out, "huggingface", quiet=True)
    texts = ["a dog near the river", "the cat"]
    for name in ("mood", "names", "size"):
        expected = unmask.load(run / "model" / name).predict(texts)
        assert unmask.load(tmp_path / "all" / name).predict(texts) == expected
        assert unmask.load(tmp_path / "again" / name).predict(texts) == expected
    assert unmask.load(tmp_path / "one").predict(texts) == unmask.load(run / "model" / "mood").predict(texts)
    assert list(models_of_tasks(tmp_path / "all")) == ["mood", "names", "size"]
    with pytest.raises(UserError, match=r"belong to one model.*name one of them, such as .*mood"):
        unmask.export(run, tmp_path / "headed", "onnx", head="features", quiet=True)
    assert not (tmp_path / "headed").exists()


def test_the_list_of_tasks_is_checked(run, tmp_path):
    assert models_of_tasks(run) == {name: run / "model" / name for name in ("mood", "names", "size")}
    assert models_of_tasks(run / "model" / "mood") == models_of_tasks(tmp_path) == {}
    for content, message in (
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b"{}", "damaged"),
        (b'{"tasks": ["a"]}', "no model of the task 'a'"),
        (b'{"tasks": [".."]}', "no model of the task '..'"),
        (b'{"tasks": ["/tmp"]}', "no model of the task '/tmp'"),
    ):
        (tmp_path / "tasks.json").write_bytes(content)
        with pytest.raises(UserError, match=message):
            models_of_tasks(tmp_path)


def test_a_task_that_is_never_drawn_is_noticed(start, tables, tmp_path, capsys):
    settings = {"budget.steps": 1, "temperature": 0.01}  # nearly all of the steps are of the largest task
    unmask.multitask(tables, start, tmp_path / "out", settings=settings, **{**HERE, "quiet": False})
    lines = capsys.readouterr().err
    assert "mood: no step had a batch of this task: its head is not trained" in lines
    assert "names: no step" not in lines
    assert "**size: no step had a batch" in (tmp_path / "out/report.md").read_text()


def test_the_run_itself_is_no_model(run):
    with pytest.raises(UserError, match=r"a model for each of its tasks: mood, names, size; name one .*model.mood"):
        unmask.load(run)
    with pytest.raises(UserError, match="a model for each of its tasks"):
        unmask.load(run / "model")


def test_the_log_and_the_report_have_each_task(run):
    summary = read_run(run)
    assert (summary.name, summary.kind, summary.state) == ("mood, names, size", "fine-tuning", "finished")
    steps = [[name for name in ("mood", "names", "size") if f"{name}_loss" in line] for line in summary.train]
    assert all(len(names) == 1 for names in steps) and {name for (name,) in steps} == {"mood", "names", "size"}
    assert {"mood_accuracy", "names_accuracy", "size_loss"} <= summary.heldout[-1].keys()
    report = (run / "report.md").read_text()
    assert "# Several tasks: mood, names, size" in report and "| size | A regression on texts | 30 |" in report


def test_an_interrupted_run_ends_as_an_uninterrupted_one(start, tables, tmp_path, stopped_at):
    for out in ("whole", "parts"):
        if out == "parts":
            with stopped_at(4):
                unmask.multitask(tables, start, tmp_path / out, settings=FEW, **HERE)
        unmask.multitask(tables, start, tmp_path / out, settings=FEW, resume=out == "parts", **HERE)
    for name in tables:
        whole, parts = (
            safetensors.torch.load_file(tmp_path / out / "model" / name / "model.safetensors")
            for out in ("whole", "parts")
        )
        assert whole.keys() == parts.keys() and all(torch.equal(value, parts[key]) for key, value in whole.items())
    lines = [[(line["step"], line["loss"]) for line in read_run(tmp_path / out).train] for out in ("whole", "parts")]
    assert lines[0] == lines[1] and len(lines[0]) == 6


def test_a_finished_run_is_not_repeated_and_other_examples_are_refused(start, tables, tmp_path, capsys):
    unmask.multitask(tables, start, tmp_path / "out", settings=FEW, **HERE)
    before = (tmp_path / "out/dev.json").stat().st_mtime_ns
    unmask.multitask(tables, start, tmp_path / "out", settings=FEW, resume=True, **{**HERE, "quiet": False})
    assert "already finished" in capsys.readouterr().err
    assert (tmp_path / "out/dev.json").stat().st_mtime_ns == before
    fewer = {name: tables[name] for name in ("mood", "names")}
    with pytest.raises(UserError, match="size"):
        unmask.multitask(fewer, start, tmp_path / "out", settings=FEW, resume=True, **HERE)
    with pytest.raises(UserError, match="not empty"):
        unmask.multitask(tables, start, tmp_path / "out", settings=FEW, **HERE)


def test_workers_do_not_change_the_steps(start, tables, tmp_path):
    two = {name: tables[name] for name in ("mood", "names")}
    for workers in (0, 2):
        unmask.multitask(two, start, tmp_path / f"{workers}", settings=FEW, workers=workers, **HERE)
    losses = [[line["loss"] for line in read_run(tmp_path / f"{workers}").train] for workers in (0, 2)]
    assert losses[0] == losses[1]


def test_pairs_are_compared_with_all_of_a_step_that_is_split(start, tables, tmp_path):
    """Beside another task, their negatives were those of their micro-batch alone."""
    pairs = {"text": [f"the {noun}" for noun in OTHERS], "text_b": [f"a {noun} sees" for noun in OTHERS]}
    mixed, found = {"mood": tables["mood"], "search": {"task": "embedding", "train": pairs, "dev": pairs}}, []
    for tokens in (4096, 16):
        out, settings = tmp_path / str(tokens), {"batch.micro_tokens": tokens, "dropout": 0.0, **FEW}
        unmask.multitask(mixed, start, out, settings=settings, **HERE)
        lines = RunDirectory(out).read_metrics("train")
        found.append([line["search_loss"] for line in lines if "search_loss" in line])
    assert found[0] and found[1] == pytest.approx(found[0], rel=1e-3)


def test_sparse_vectors_are_learned_beside_another_task(tables, tokenizer, tmp_path, monkeypatch):
    """Their head reads all rows of the token embeddings, and the weights of FLOPS grow, as in a run alone."""
    encoder = SHAPE.build(tokenizer.size)
    heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()}
    save_model(tmp_path / "start", Model(encoder, tokenizer, heads), "")
    pairs = {"text": [f"the {noun}" for noun in OTHERS], "text_b": [f"a {noun} sees" for noun in OTHERS]}
    mixed = {"mood": tables["mood"], "search": {"task": "sparse", "train": pairs, "dev": pairs}}
    loss, seen = SparseHead.loss, list[float]()

    def recorded(head, sides):
        seen.extend(sides.targets[WARMUP][:1].tolist() if head.training else ())
        return loss(head, sides)

    monkeypatch.setattr(SparseHead, "loss", recorded)
    unmask.multitask(mixed, tmp_path / "start", tmp_path / "run", settings={"budget.steps": 12}, **HERE)
    assert len(seen) > 2 and seen == sorted(seen) and seen[-1] == 1 > seen[0]
    assert unmask.load(tmp_path / "run" / "model" / "search").predict(["the house"])[0].weights


def test_overfitting_of_one_task_is_noticed(start, tables):
    mixture = prepare_mixture(read_tables(tables), InitialModel(start), {}, CPU, QUIET)
    examples = mixture.parts["size"].held.samples * 2
    mixture = replace(mixture, parts={"size": replace(mixture.parts["size"], held=Framed(examples, list))})
    pairs = [(0.9, 0.7), (0.5, 0.6), (0.3, 0.9)]  # the loss of one task falls, and that of the other rises
    lines = [
        {"step": 10 * number, "loss": sum(both), "mood_loss": both[0], "size_loss": both[1]}
        for number, both in enumerate(pairs)
    ]
    run = SimpleNamespace(read_metrics=lambda kind: lines)
    warning = describe_training(run, "size", mixture, 12.0)
    assert "rose from 0.60 at step 10 to 0.90" in warning and "temperature" in warning and "frozen" not in warning
    assert describe_training(SimpleNamespace(read_metrics=lambda kind: lines[:2]), "size", mixture, 12.0) == ""


def test_the_rule_adds_the_steps_of_the_tasks(start, tables):
    mixture = prepare_mixture(read_tables(tables), InitialModel(start), {}, CPU, QUIET)
    recipe, sizes = mixture.recipe, [len(part.data.train) for part in mixture.parts.values()]
    assert sizes == [54, 81, 30]
    # 20 epochs in batches of 16, of entities as many as for 200 steps: see docs/fine-tuning.md
    assert recipe.budget.steps == sum(-(-epochs * size // 16) for epochs, size in zip((20, 34, 20), sizes, strict=True))
    assert recipe.optimizer.learning_rate == pytest.approx(5e-5 * (768 / 32) ** 0.5, rel=0.05)
    assert recipe.batch.sequences == 16 and recipe.temperature == 2.0
    shares = mixing_rates(sizes, 2.0)
    assert [part.recipe.budget.steps for part in mixture.parts.values()] == [
        round(share * recipe.budget.steps) for share in shares
    ]
    assert msgspec.to_builtins(recipe.tasks["names"])["length"] == 32
