"""Files of runs that were never trained."""

import json
import sys

import pytest

from unmask.training.runs.directory import RunDirectory

from ...events import written_by

PRETRAINING = 'name = "bert-mini"\n[encoder]\nlayers = 4\n[objective.masked_lm]\nweight = 1.0\n'
MACHINE = {"device": "cpu", "threads": 2, "matmul_flops_per_second": 800_000_000_000}
INPUTS = {"corpus": "0123456789abcdef" * 4, "init": "none"}


def loss(step):
    return 10.0 - step / 2 + (step == 6)  # with a bump


@pytest.fixture
def make_run(tmp_path):
    """Makes a run with a log up to one step and the newest checkpoint at another."""

    def make(name="run", *, logged=8, saved=8, total=8, report=True, recipe=PRETRAINING):
        path = tmp_path / name
        RunDirectory.create(path, recipe, INPUTS, MACHINE).close()
        lines = [
            {
                **{"kind": "train", "step": step, "tokens": 1000 * step, "seconds": 60.0 * step, "epochs": step / 4},
                **{"loss": loss(step) + 1, "tokens_per_second": 500.0, "flops_per_second": 4e11},
            }
            for step in range(1, logged + 1)
        ]
        for step in range(0, logged + 1, 2):
            scores = {"loss": loss(step), "masked_lm_loss": loss(step), "masked_lm_accuracy": step / 10}
            lines.append({"kind": "heldout", "step": step, "tokens": 1000 * step, **scores})
        lines.sort(key=lambda line: line["step"])
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for step in () if saved is None else (max(0, saved - 2), saved):
            folder = path / "checkpoints" / f"step-{step:08d}"
            folder.mkdir(parents=True, exist_ok=True)
            progress = {"step": step, "total": total, "tokens": 1000 * step, "seconds": 60.0 * step, "skipped": 1}
            (folder / "progress.json").write_text(json.dumps({**progress, "cursor": [0, 0, step]}))
        if report:
            (path / "report.md").touch()
        return path

    return make


@pytest.fixture
def hide(monkeypatch):
    """Makes modules look as if they were not installed."""

    def hide(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


@pytest.fixture(scope="module", autouse=True)
def _events():
    """Events are written here: their files are looked at."""
    with written_by():
        yield
