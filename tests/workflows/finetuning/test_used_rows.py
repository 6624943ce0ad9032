"""Tests of fine-tuning with only the used token embeddings: the result is that of training the whole table."""

from contextlib import nullcontext

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from unmask.data.batches.batch import Sample
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.workflows.finetuning import run_job as run_module
from unmask.workflows.finetuning.frozen import only_used_rows

from .conftest import run

WORDS = "embeddings.words.weight"


def sample(*ids):
    return Sample(key=(0,), ids=np.array(ids))


def test_the_table_is_reduced_and_restored():
    table = nn.Embedding(10, 3)
    before = table.weight.detach().clone()
    parts = [[sample(7, 2, 2), sample(9)], [sample(3)]]
    with only_used_rows([table], *parts) as reindex:
        assert [reindex(one).ids.tolist() for part in parts for one in part] == [[2, 0, 0], [3], [1]]
        torch.testing.assert_close(table.weight[:-1], before[[2, 3, 7, 9]], rtol=0, atol=0)
        with torch.no_grad():
            table.weight[2] = 5.0
            table.weight.mul_(0.5)  # as weight decay does
    expected = before * 0.5
    expected[7] = 2.5
    torch.testing.assert_close(table.weight, expected, rtol=0, atol=0)
    assert table.num_embeddings == 10


def test_what_is_evaluated_on_changes_nothing():
    """In 20 draws: bit for bit, also rows of tokens that only the samples to evaluate on have."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        train, held = ([sample(*rng.integers(0, 40, 6)) for _ in range(3)] for _ in range(2))
        start, ends = torch.from_numpy(rng.normal(size=(60, 4)).astype(np.float32)), []
        for evaluated in (held, []):
            table = nn.Embedding(60, 4, _weight=start.clone())
            with only_used_rows([table], train, evaluated) as reindex:
                optimizer = torch.optim.AdamW([table.weight], lr=0.01, weight_decay=0.3)
                for one in train * 5:
                    optimizer.zero_grad()
                    table(torch.from_numpy(reindex(one).ids)).square().sum().backward()
                    optimizer.step()
            ends.append(table.weight.detach())
        assert torch.equal(*ends) and not torch.equal(ends[0], start)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("optimizer.kind=adamw", marks=pytest.mark.exhaustive),
        "optimizer.kind=muon",
        "optimizer.layer_decay=0.8",
    ],
)
def test_the_model_is_that_of_the_whole_table(start, task, tmp_path, monkeypatch, setting):
    settings = (setting, "budget.epochs=3", "optimizer.weight_decay=0.1", "optimizer.learning_rate=1e-2", "dropout=0.1")
    ours = run(start, task, tmp_path / "ours", *settings)
    monkeypatch.setattr(run_module, "only_used_rows", lambda *_: nullcontext(lambda one: one))
    whole = run(start, task, tmp_path / "whole", *settings)
    for name, value in whole.encoder.state_dict().items():
        torch.testing.assert_close(ours.encoder.state_dict()[name], value, rtol=1e-4, atol=2e-5)
    before = load_model(start).encoder.state_dict()[WORDS]
    after = ours.encoder.state_dict()[WORDS]
    unused = (whole.encoder.state_dict()[WORDS] / before).std(1) < 1e-6
    assert 50 < unused.sum() < len(before)
    assert not torch.allclose(after[unused], before[unused], rtol=1e-3), "weight decay scales them"


def rows_of(run_directory):
    """Return the number of rows in the checkpoints of a run."""
    state = safetensors.torch.load_file(max(run_directory.glob("checkpoints/step-*")) / "model.safetensors")
    return len(state[f"encoder.{WORDS}"])


def test_where_it_is_not_exact_the_whole_table_is_trained(start, task, tmp_path):
    whole = len(load_model(start).encoder.words.weight)
    run(start, task, tmp_path / "adamw", "budget.steps=1")
    run(start, task, tmp_path / "lamb", "budget.steps=1", "optimizer.kind=lamb")
    assert rows_of(tmp_path / "lamb") == whole
    assert rows_of(tmp_path / "adamw") < whole / 2


def test_a_run_of_an_earlier_version_is_refused(start, task, tmp_path, monkeypatch, stopped_at):
    with monkeypatch.context() as patch, stopped_at(2):
        patch.setattr(run_module, "only_used_rows", lambda *_: nullcontext(lambda one: one))
        run(start, task, tmp_path / "run")
    with pytest.raises(UserError, match=r"step-00000002: the weights are those of another version .* start the run"):
        run(start, task, tmp_path / "run", resume=True)


def test_an_interrupted_run_ends_as_an_uninterrupted_one(start, task, tmp_path, stopped_at):
    settings = ("budget.epochs=2", "optimizer.learning_rate=1e-2")
    whole = run(start, task, tmp_path / "whole", *settings)
    with stopped_at(5):
        run(start, task, tmp_path / "stopped", *settings)
    resumed = run(start, task, tmp_path / "stopped", *settings, resume=True)
    assert resumed.fingerprint() == whole.fingerprint()
