"""A run directory documents its run, and its log has each step once."""

import errno
import json
import os
import tomllib
from pathlib import Path

import pytest
import torch

from unmask.recipes.recipe import read_recipe
from unmask.support import __version__
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.training.machine import Machine
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.pretraining.pretrain import fingerprint, pretrain_corpus

CPU = Machine(torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus):
    small = ["encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64", "encoder.positions=64"]
    recipe = read_recipe(
        "bert-tiny", parse_overrides([*small, "layout.length=48", "batch.tokens=512", "budget.steps=3"])
    )
    out = tmp_path_factory.mktemp("finished") / "deep" / "run"
    assert pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True) == out / "model"
    return out, recipe


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_files_of_a_run_are_there(finished):
    out, _ = finished
    names = {path.name for path in out.iterdir()}
    assert names == {
        *("recipe.toml", "provenance.json", "metrics.jsonl", "usage.json", "report.md", ".lock"),
        *("events", "plots", "checkpoints", "model"),
    }
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md"} <= {
        path.name for path in (out / "model").iterdir()
    }
    (events,) = (out / "events").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_the_recipe_is_written_resolved(finished):
    out, recipe = finished
    assert read_recipe(out / "recipe.toml") == recipe
    assert tomllib.loads((out / "recipe.toml").read_text())["encoder"]["activation"] == "gelu"


def test_provenance(finished, corpus):
    provenance = json.loads((finished[0] / "provenance.json").read_text())
    assert provenance["unmask"] == __version__
    assert torch.__version__.startswith(provenance["libraries"]["torch"].split("+")[0])
    assert provenance["inputs"] == {"corpus": fingerprint(corpus), "init": "none", "precision": "float32"}
    assert provenance["machine"] == CPU.describe()
    assert isinstance(provenance["command"], list)


def test_the_report_has_settings_results_and_usage(finished):
    out, _ = finished
    report = (out / "report.md").read_text()
    first, *_, last = (line for line in metrics(out) if line["kind"] == "heldout")
    assert report.startswith("# bert-tiny, pretrained\n\n3 steps, ")
    assert f"| masked_lm_loss | {first['masked_lm_loss']:.4f} | {last['masked_lm_loss']:.4f} |" in report
    assert "Always predicting the most frequent token would be right for " in report
    assert f"unmask fill --model {out}" in report
    for name in ("plots/training.svg", "recipe.toml", "metrics.jsonl"):
        assert name in report
        assert (out / name).is_file()
    card = (out / "model" / "README.md").read_text()
    assert card.startswith("---\n") and '\nlibrary_name: "transformers"\n' in card and "\n# bert-tiny" in card
    assert f"| masked_lm_loss | {last['masked_lm_loss']:.4f} |" in card


def test_metrics_hold_each_step_once(finished):
    lines = metrics(finished[0])
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == [1, 2, 3]
    assert [line["step"] for line in lines if line["kind"] == "heldout"] == [0, 1, 2, 3]
    for key in ("loss", "masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss", "learning_rate", "gradient_norm"):
        assert all(isinstance(line[key], float) for line in train)
    assert [line["tokens"] for line in train] == sorted({line["tokens"] for line in train})


def test_the_log_is_cut_after_the_step_that_is_resumed(tmp_path):
    run = RunDirectory.create(tmp_path / "run", write(read_recipe("bert-tiny")), {}, {})
    run.cut_metrics(3)  # there is no log yet
    for step in range(1, 6):
        run.log({"kind": "train", "step": step, "loss": 1.0})
        run.log({"kind": "heldout", "step": step, "loss": 2.0})
    with run.metrics.open("ab") as file:
        file.write(b'{"kind":"train","st')
    run.cut_metrics(3)
    for kind in ("heldout", "general"):  # what the end of a run logs
        run.log({"kind": kind, "step": 3, "loss": 3.0})
    run.cut_metrics(3)
    run.log({"kind": "train", "step": 4, "loss": 5.0})
    assert not run.read_metrics("general")
    assert [line["step"] for line in run.read_metrics("train")] == [1, 2, 3, 4]
    assert [line["step"] for line in run.read_metrics("heldout")] == [1, 2, 3]
    run.close()


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "checkpoints"])
def test_a_directory_with_anything_in_it_is_refused(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="not empty; choose another out, or continue with resume=True"):
        RunDirectory.create(tmp_path, "", {}, {})
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_run_is_written_to_a_directory_of_this_machine(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is a file, not a directory; choose another out"):
        RunDirectory.create(tmp_path / "notes.txt", "", {}, {})
    with pytest.raises(UserError, match="files are written on this machine only"):
        RunDirectory.create(Path("s3://bucket/run"), "", {}, {})


def test_a_directory_with_a_prepared_corpus_is_accepted(tmp_path):
    with RunDirectory.reserved(tmp_path) as folder:
        (folder / "corpus").mkdir()
        with pytest.raises(UserError, match="another program"), RunDirectory.reserved(tmp_path):
            pass
    with RunDirectory.reserved(tmp_path) as folder:
        assert not (folder / "corpus").exists(), "of a run that never started"
    RunDirectory.create(tmp_path, "", {}, {}).close()


def test_a_folder_of_the_user_is_not_changed(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "mine.txt").touch()
    with pytest.raises(UserError, match="not empty"), RunDirectory.reserved(tmp_path):
        pass
    assert (tmp_path / "text" / "mine.txt").exists()


def test_a_run_that_ended_before_its_first_checkpoint_is_removed(tmp_path):
    path = tmp_path / "run"
    RunDirectory.create(path, "name = 'x'\n", {}, {}).close()
    (path / "checkpoints/.writing-step-00000000").mkdir(parents=True)
    (path / "text").mkdir()
    (path / "text/.made-by-unmask").touch()
    RunDirectory.forget_unstarted(path)
    assert {entry.name for entry in path.iterdir()} == {".lock", "text"}
    RunDirectory.create(path, "name = 'x'\n", {}, {}).close()
    (path / "thesis.txt").touch()
    before = {entry.name for entry in path.iterdir()}
    RunDirectory.forget_unstarted(path)
    assert {entry.name for entry in path.iterdir()} == before, "not made by unmask"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/recipe.toml").touch()
    RunDirectory.forget_unstarted(tmp_path / "mine")
    assert (tmp_path / "mine/recipe.toml").exists(), "not made by unmask"


def test_what_fails_before_its_first_checkpoint_is_removed_only_if_it_is_new(tmp_path):
    def fail(run):
        with pytest.raises(ValueError, match="short"), run:
            raise ValueError("short")

    fail(RunDirectory.create(tmp_path / "new", "seed = 0\n", {}, {}))
    assert [path.name for path in (tmp_path / "new").iterdir()] in ([], [".lock"])
    with RunDirectory.create(tmp_path / "earlier", "seed = 0\n", {}, {}) as run:
        run.log({"kind": "train", "step": 1})
    fail(RunDirectory.resume(tmp_path / "earlier", "seed = 0\n", {}, frozenset()))
    assert metrics(tmp_path / "earlier") == [{"kind": "train", "step": 1}]


def test_T9_a_full_disk_at_a_resume_leaves_the_recipe(tmp_path, monkeypatch):
    path = tmp_path / "run"
    RunDirectory.create(path, "a = 1\n", {}, {}).close()
    run = RunDirectory.resume(path, "a = 2\n", {}, frozenset({"a"}))
    assert run.changed == {"a"}

    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr("unmask.support.durable.sync", full)
        run.settle()
    assert run.read_recipe() == {"a": 1}
    run.settle()
    assert run.read_recipe() == {"a": 2}
    run.close()


def test_E5_a_full_disk_names_the_file_of_metrics(volume, monkeypatch):
    monkeypatch.setattr("unmask.training.runs.extras.event_writer", lambda: None)
    with RunDirectory.create(volume(64) / "run", "", {}, {}) as run:
        with pytest.raises(OSError, match="No space") as error:
            for step in range(2000):
                run.log({"kind": "train", "step": step, "loss": 1.0})
        assert error.value.filename == str(run.metrics)
        assert [line["step"] for line in run.read_metrics("train")] == list(range(step))
