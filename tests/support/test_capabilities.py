"""What a processor computes is found by trying it: what is wrong, missing or crashes is not used."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from unmask.support import capabilities, panels
from unmask.support.capabilities import FEW_ROWS, ROWS, WAYS

GIGA = 1e9
PROCESSORS = {
    "AMX": ((200, 180, 180, 1200, 1200, 95, 180), (False, True, True, False, False, False)),
    "AVX-512 with bf16, not by Intel": ((215, 450, 450, 850, 850, 110, 210), (True, True, True, False, False, False)),
    "the same, of an earlier generation": ((95, 110, 110, 210, 220, 110, 210), (False, True, True, False, True, True)),
    "bf16 slower than float32": ((130, 125, 110, 75, 70, 90, 0), (False, True, False, False, False, False)),
    "AVX2": ((60, 60, 55, 4, 0, 65, 0), (False, False, False, True, True, False)),
    "nothing known": ((0, 0, 0, 0, 0, 0, 0), (False, False, False, True, False, False)),
}
"""Speeds of `WAYS`; whether oneDNN computes float32 and bf16, bf16 is faster than float32, and is emulated, and panels
are used in float32 and bf16."""


@pytest.mark.parametrize("name", PROCESSORS)
def test_choices_follow_from_speeds(name, monkeypatch):
    speeds, expected = PROCESSORS[name]
    known = dict(zip(WAYS, (GIGA * speed for speed in speeds), strict=True))
    monkeypatch.setattr(capabilities, "products", lambda rows=ROWS: known)
    found = (
        capabilities.onednn_multiplies(torch.float32),
        capabilities.onednn_multiplies(torch.bfloat16),
        capabilities.multiplies_bf16(),
        capabilities.emulates_bf16(),
        *(capabilities.panels_multiply.__wrapped__(dtype) for dtype in (torch.float32, torch.bfloat16)),
    )
    assert found == expected
    assert not capabilities.onednn_multiplies(torch.float64)


@pytest.mark.parametrize(("few", "many", "chosen"), [(70, 90, True), (52, 73, True), (70, 66, False), (38, 90, False)])
def test_panels_are_used_unless_other_products_are_faster_by_more_than_trials_differ(few, many, chosen, monkeypatch):
    speeds = {FEW_ROWS: (50, 40, 20, 9, 0, few, 0), ROWS: (88, 82, 65, 9, 0, many, 0)}
    monkeypatch.setattr(capabilities, "products", lambda rows=ROWS: dict(zip(WAYS, speeds[rows], strict=True)))
    assert capabilities.panels_multiply.__wrapped__(torch.float32) == chosen


def test_each_way_is_tried_here():
    speeds = capabilities.products()
    assert speeds.keys() == WAYS.keys()
    assert speeds["float32"] > 0


def test_a_way_that_takes_many_times_as_long_is_not_timed_again(monkeypatch):
    calls = 0

    def slow(x, weight):
        nonlocal calls
        calls += 1
        for _ in range(20):
            y = torch.nn.functional.linear(x, weight)
        return y

    monkeypatch.setattr(capabilities, "WAYS", {"float32": WAYS["float32"], "other": (torch.float32, slow)})
    found = capabilities._try_all()
    assert 0 < capabilities.SLOW * found["other"] < found["float32"]
    assert calls < capabilities.REPEATS, "one is the check"


def test_without_the_extension_panels_have_no_speed(monkeypatch):
    monkeypatch.setattr(panels, "multiplies", lambda dtype: False)
    found = capabilities._try_all(FEW_ROWS)
    assert found["float32"] > 0 and not any(found[way] for way in capabilities.PANELS.values())


def wrong(x, weight):
    return torch.nn.functional.linear(x, weight) * 1.001


def missing(x, weight):
    return torch.ops.mkldnn.no_such_operator(x, weight)


def impossible(x, weight):
    raise RuntimeError("could not create a primitive descriptor")


@pytest.mark.parametrize("way", [wrong, missing, impossible])
def test_a_way_that_is_wrong_or_missing_has_no_speed(way, monkeypatch):
    monkeypatch.setattr(capabilities, "WAYS", {"float32": WAYS["float32"], "other": (torch.float32, way)})
    found = capabilities._try_all()
    assert found["float32"] > 0 and found["other"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGSEGV])
def test_an_illegal_instruction_ends_the_trial_alone(number):
    assert capabilities._Trial(lambda: os.kill(os.getpid(), number)).result() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_trial_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(capabilities, "SECONDS", 0.2)
    assert capabilities._Trial(lambda: signal.pause()).result() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_trial_whose_process_the_system_removes_is_read():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert capabilities._Trial(lambda: {"1": {"float32": 1.0}}).result() == {"1": {"float32": 1.0}}
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def untried(monkeypatch):
    """Forget what was tried in this process."""
    monkeypatch.setattr(capabilities, "_trial", cache(capabilities._trial.__wrapped__))
    monkeypatch.setattr(capabilities, "products", cache(capabilities.products.__wrapped__))


@pytest.mark.skipif(not capabilities._forks(), reason="this system cannot fork")
def test_a_trial_that_was_begun_ahead_is_the_only_one(untried, monkeypatch):
    begun = []
    monkeypatch.setattr(capabilities, "_Trial", lambda compute: begun.append(compute) or ended)
    ended = SimpleNamespace(result=lambda: {str(ROWS): {"float32": 1.0}, str(FEW_ROWS): {"float32": 2.0}})
    capabilities.try_ahead()
    assert len(begun) == 1
    assert [capabilities.products(rows)["float32"] for rows in (ROWS, FEW_ROWS, ROWS)] == [1.0, 2.0, 1.0]
    assert len(begun) == 1


@pytest.mark.skipif(not capabilities._forks(), reason="this system cannot fork")
def test_threads_wait_for_one_trial_and_a_forked_process_makes_its_own(untried):
    capabilities.try_ahead()
    process = os.fork()
    if process == 0:
        os._exit(0 if capabilities.products()["float32"] > 0 else 1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(capabilities.products, [ROWS, FEW_ROWS] * 4))
    assert os.waitpid(process, 0)[1] == 0
    assert all(speeds["float32"] > 0 for speeds in found)
    assert found[::2] == found[:1] * 4 and found[1::2] == found[1:2] * 4


def test_the_trial_leaves_torchs_generator_alone():
    state = torch.get_rng_state()
    capabilities._try_all()
    assert torch.get_rng_state().equal(state)


def test_devices():
    assert [capabilities.cpu_or_gpu(torch.device(name)) for name in ("cpu", "cuda:1", "mps")] == ["cpu", "gpu", "gpu"]
    assert capabilities.widest_float(torch.device("mps")) == torch.float32
    assert capabilities.widest_float(torch.device("cpu")) == torch.float64
