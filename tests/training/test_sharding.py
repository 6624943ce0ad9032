"""Weights divided among processes: the losses of one process, any distribution after any other, and less memory."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from unmask.objectives.objective import Objective
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.training.checkpoint import newest_checkpoint
from unmask.training.processes import Processes
from unmask.training.sharded_replicas import shard
from unmask.workflows.pretraining.start import build_learner

from .. import forking
from .conftest import CPU

PROGRAM = Path(__file__).with_name("sharded_program.py")
STEPS = 4
SETTINGS = [
    *("encoder.layers=2", "encoder.width=32", "encoder.heads=2", "encoder.dropout=0.0"),
    *("layout.length=48", "batch.tokens=512", "batch.micro_tokens=128"),
    *("optimizer.learning_rate=1e-3", f"budget.steps={STEPS}"),
]
INNER = ["encoder.feed_forward=33", "encoder.positions=64"]  # rows that no number of processes divides
MUON, LAMB = 'optimizer.kind="muon"', 'optimizer.kind="lamb"'
KINDS = ("roformer", "deberta", "nomicbert", "neobert", "eurobert", "mpnet")
FAMILIES = {
    "span": ("spanbert-mini", *INNER),
    "gpt": ("gpt-mini", "encoder.positions=64"),
    "albert": ("albert-mini", *INNER, "encoder.embedding=16"),
    "shared": ("albert-mini", *INNER, "encoder.embedding=16", 'encoder.shared="attention"'),
    "electra": ("electra-mini", *INNER, "encoder.embedding=16"),
    "modernbert": ("modernbert-mini", INNER[0]),
    **{kind: ("bert-mini", "encoder.feed_forward=40", f'encoder.kind="{kind}"') for kind in KINDS},
}
"""Recipe and settings by name."""
SIZES = ("layout.reuse=16", "layout.streams=4", "batch.sequences=4")
STREAMS = ("xlnet-mini", INNER[0], "encoder.memory=32", *SIZES)


@pytest.fixture(scope="module")
def launch(corpus, tmp_path_factory):
    """Runs cases one after the other in several processes; returns the folder with what they wrote."""

    def run(size, cases, out=None, statuses=None):
        out = out or tmp_path_factory.mktemp("runs")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        environment = os.environ | where | {"WORLD_SIZE": str(size), "UNMASK_TIMEOUT": "120"}
        lines = "\n".join(json.dumps({"corpus": str(corpus.directory), **case}) for case in cases)
        processes = [
            forking.start([PROGRAM, out], env=environment | {"RANK": str(rank)}, stdin=lines) for rank in range(size)
        ]
        errors = [process.communicate(timeout=600)[1].decode() for process in processes]
        assert [process.returncode for process in processes] == (statuses or [0] * size), errors
        return errors if statuses else out

    return run


def case(name, how="replicate", *settings, recipe=("bert-tiny", *INNER), **more):
    """Return a case of the program."""
    base, *others = recipe
    changes = parse_overrides([*SETTINGS, *others, f'batch.distribute="{how}"', *settings])
    return {"name": name, "recipe": write(read_recipe(base, changes)), **more}


def lines(out, name):
    """Return the metrics of a case without times."""
    found = map(json.loads, (out / name / "metrics.jsonl").read_text().splitlines())
    timing = ("seconds", "tokens_per_second", "flops_per_second")
    return [{key: value for key, value in line.items() if key not in timing} for line in found]


def assert_same(out, other, names, relative=1e-6):
    """Assert the same steps, with losses and norms of gradients that differ by rounding only, and weights."""
    name, its = names if isinstance(names, tuple) else (names, names)
    for mine, theirs in zip(lines(out, name), lines(other, its), strict=True):
        assert (mine.pop("kind"), mine.pop("step")) == (theirs.pop("kind"), theirs.pop("step"))
        assert mine == pytest.approx(theirs, rel=relative)
    ours, theirs = (safetensors.torch.load_file(f / f"{n}.safetensors") for f, n in ((out, name), (other, its)))
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert (ours[key] - value).abs().max() < 100 * relative, key


@pytest.fixture(scope="module")
def alone(launch):
    """What one process computes."""
    cases = [case("adamw"), case("muon", "shard", MUON), case("lamb", "shard", LAMB)]
    return launch(1, [*cases, case("averaged", "replicate", "optimizer.average=0.5")])


@pytest.fixture(scope="module")
def two(launch):
    """What two processes compute, and a run that is stopped and resumed."""
    return launch(
        2,
        [
            *(case("adamw", "shard"), case("muon", "shard", MUON)),
            *(case("lamb", "shard", LAMB, "batch.recompute=true"), case("fault", "shard", divisor=2.0)),
            *(case("stopped", "shard", stop=2), case("stopped", "shard", resume=True)),
            *(case("bf16", precision="bf16"), case("bf16-sharded", "shard", precision="bf16")),
            *(case("streams", "shard", recipe=STREAMS), case("uneven", "hybrid", local=1)),
            case("averaged", "shard", "optimizer.average=0.5"),
        ],
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["adamw", "muon", "lamb", "averaged"])
def test_two_processes_that_share_the_weights_have_the_losses_of_one(alone, two, name):
    assert_same(two, alone, name)


@pytest.mark.timeout(600)
def test_four_processes_have_them_too_in_two_copies_or_one(launch, alone):
    kinds = [case("shard", "shard"), case("hybrid", "hybrid", local=2), case("muon", "hybrid", MUON, local=2)]
    out = launch(4, kinds)
    for name in ("shard", "hybrid"):
        assert_same(out, alone, (name, "adamw"))
    assert_same(out, alone, "muon")


@pytest.mark.timeout(600)
def test_the_comparison_sees_gradients_that_are_averaged(alone, two):
    with pytest.raises(AssertionError):
        assert_same(two, alone, ("fault", "adamw"))


@pytest.mark.timeout(600)
def test_in_bf16_gradients_are_summed_in_float32(two):
    """With bf16 in both, the order of the sums of micro-batches differs."""
    assert_same(two, two, ("bf16-sharded", "bf16"), 1e-4)


@pytest.mark.timeout(600)
def test_T2_a_run_that_is_stopped_and_resumed_has_the_very_numbers_of_an_unbroken_one(two):
    assert lines(two, "stopped") == lines(two, "adamw")
    ours, theirs = (safetensors.torch.load_file(two / f"{name}.safetensors") for name in ("stopped", "adamw"))
    assert all(value.equal(theirs[key]) for key, value in ours.items())


@pytest.mark.timeout(600)
def test_what_cannot_be_sharded_is_refused_by_all_processes_before_the_first_step(two):
    for rank in range(2):
        texts = [(two / f"{name}-{rank}.txt").read_text() for name in ("streams", "uneven")]
        assert "carries state from step to step cannot be sharded" in texts[0]
        assert "replicate" in texts[0]
        assert "the hosts have 1 processes (LOCAL_WORLD_SIZE)" in texts[1]
    assert not any((two / "streams").glob("checkpoints/*"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda learner: setattr(learner, "gain", nn.Parameter(torch.ones(()))),
            "gain cannot be sharded: it is a scalar",
        ),
        (lambda learner: setattr(learner, "other", learner.encoder.words), "other.weight cannot be .* two names"),
        (lambda learner: setattr(learner, "objectives", nn.ModuleDict({"x": Joint()})), "compares all texts of a step"),
    ],
)
def test_learners_that_cannot_be_sharded_are_refused(recipe, change, message):
    learner, _ = build_learner(recipe, 50, None)
    change(learner)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    with pytest.raises(UserError, match=f"{message}.*batch.distribute.*replicate"):
        shard(learner, CPU, Processes(0, 2), "shard", 0)
    assert all(value.equal(before[name]) for name, value in learner.state_dict().items())


class Joint(Objective):
    """Stands for an objective whose loss compares all texts of a step."""

    joint = True


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_T10_a_sharded_run_that_loses_a_process_continues_from_its_last_checkpoint(launch, two, tmp_path):
    said = launch(2, [case("stopped", "shard", killed=3)], tmp_path, [1, -signal.SIGKILL])
    assert "process 0 of 2 stops because another process has exited or does not respond (missing: 1)" in said[0]
    assert "is saved" not in said[0]
    assert newest_checkpoint(tmp_path / "stopped" / "checkpoints")[0].name == "step-00000000"
    launch(2, [case("stopped", "shard", resume=True)], tmp_path)
    assert lines(tmp_path, "stopped") == lines(two, "adamw")


CHAIN = [(2, "shard"), (1, "replicate"), (4, "hybrid"), (3, "shard")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "chain",
    [
        CHAIN,
        pytest.param([(2, "replicate"), (2, "shard"), (4, "shard"), (2, "replicate")], marks=pytest.mark.exhaustive),
        pytest.param([(4, "shard"), (3, "replicate"), (1, "shard"), (2, "hybrid")], marks=pytest.mark.exhaustive),
    ],
)
def test_T4_a_run_continues_with_any_number_of_processes_and_any_distribution(launch, alone, tmp_path, chain):
    files = ("model.safetensors", "optimizer.safetensors", "progress.json")
    for number, (size, how) in enumerate(chain, 1):
        last = number == len(chain)
        stop = {} if last else {"stop": number * STEPS // len(chain)}
        before = newest_checkpoint(tmp_path / "adamw" / "checkpoints")[0] if number > 1 else None
        content = before and [(before / file).read_bytes() for file in files]
        launch(size, [case("adamw", how, local=min(2, size), resume=number > 1, **stop)], tmp_path)
        if before and before.exists():  # it was written again when the distribution had changed
            assert [(before / file).read_bytes() for file in files] == content
    assert_same(tmp_path, alone, "adamw")


def held(out, name, rank):
    """Return the bytes of the weights and moments that a process has at the end of a case."""
    return json.loads((out / f"{name}-{rank}.json").read_text())[0]


@pytest.mark.timeout(600)
def test_each_process_holds_its_share(alone, two):
    whole = held(alone, "adamw", 0)
    for rank in range(2):
        assert held(two, "adamw", rank) == pytest.approx(whole / 2, rel=0.01)
        assert held(two, "bf16", rank) == whole


@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the threads are listed on Linux only")
def test_no_thread_of_gloo_outlives_the_connection(two):
    for rank in range(2):
        names = json.loads((two / f"threads-{rank}.json").read_text())
        assert not any("gloo" in name or "store" in name for name in names)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_every_family_can_be_sharded(launch):
    one = launch(1, [case(name, recipe=recipe) for name, recipe in FAMILIES.items()])
    two = launch(2, [case(name, "shard", recipe=recipe) for name, recipe in FAMILIES.items()])
    for name in FAMILIES:
        assert_same(two, one, name)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux only")
def test_a_model_of_twice_the_size_trains_in_the_memory_of_one_process(launch):
    large = ("encoder.width=768", "encoder.heads=12", "encoder.feed_forward=3072", "batch.tokens=128", "budget.steps=2")
    one = launch(1, [case("large", "replicate", "encoder.layers=4", *large)])
    two = launch(2, [case("large", "shard", "encoder.layers=8", *large)])
    few = launch(1, [case("few")])
    before = json.loads((few / "few-0.json").read_text())[1]
    peak = json.loads((one / "large-0.json").read_text())[1] - before
    assert held(one, "large", 0) < 1.1 * held(two, "large", 0)
    for rank in range(2):
        assert json.loads((two / f"large-{rank}.json").read_text())[1] - before < 1.1 * peak
