"""What runs use of a machine adds up over their starts, and costs what a price says."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.support.errors import UserError
from unmask.training.runs import usage as module
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.report import describe_run
from unmask.training.runs.usage import Usage, UsageLog, check_price, describe_usage, machine_seconds, read_usage

RECIPE = 'name = "tiny"\n'


def test_the_usage_of_each_start_adds_up(tmp_path, monkeypatch, replace_time):
    clock = {"wall": 100.0, "cpu": 7.0}
    replace_time(module, monotonic=lambda: clock["wall"])
    monkeypatch.setattr(module, "_cpu_seconds", lambda: clock["cpu"])
    path = tmp_path / "usage.json"
    first = UsageLog(path)
    first.processes, first.gpus = 2, 2
    clock.update(wall=130.0, cpu=12.0)
    first.save()
    clock.update(wall=160.0, cpu=27.0)
    (only,) = first.save()
    assert (only.seconds, only.cpu_seconds, only.gpu_seconds) == (60.0, 40.0, 120.0)
    second = UsageLog(path)  # of a resumed run
    clock.update(wall=190.0, cpu=57.0)
    assert [of.cpu_seconds for of in second.save()] == [40.0, 30.0]
    assert read_usage(path)[0] == only
    assert read_usage(tmp_path / "none.json") == []
    path.write_bytes(b"[{")
    with pytest.raises(UserError, match=r"usage\.json: the file is damaged"):
        read_usage(path)


def test_the_search_for_a_rate_is_part_of_a_run(tmp_path):
    used = [Usage("a", 10.0 * number, 5.0, number) for number in range(4)]
    folders = (tmp_path, *(tmp_path / f"search/x{factor}" for factor in (0.5, 1, 2)))
    for folder, usage in zip(folders, used, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "usage.json").write_bytes(msgspec.json.encode([usage]))
    assert sorted(RunDirectory(tmp_path).read_usage(), key=lambda usage: usage.start) == used


def test_this_process_takes_time(tmp_path):
    log, until = UsageLog(tmp_path / "usage.json"), time.process_time() + 0.1
    while time.process_time() < until:
        pass
    (used,) = log.save()
    assert used.cpu_seconds > 0.05 and used.seconds > 0.05 and used.gpu_seconds == 0  # ticks of a hundredth


def test_the_words_and_the_cost():
    used = [Usage("a", 0.0, 1200.0, 2400.0), Usage("a", 5000.0, 60.0, 30.0)]
    assert describe_usage(used) == "40 CPU minutes in 21 min 00 s"
    assert describe_usage(used, 0.2) == "40 CPU minutes in 21 min 00 s; at 0.20 an hour: 0.07"
    gpu = [Usage("a", 0.0, 90.0, 99.0, 180.0)]
    assert describe_usage(gpu, 0.0) == "1.6 CPU minutes and 3.0 GPU minutes in 1 min 30 s; at 0.00 an hour: 0.00"
    assert describe_usage([], 1.0) == ""
    short = [Usage("a", 0.0, 29.0, 3.6)]
    assert describe_usage(short, 0.005) == "0.06 CPU minutes in 29 s; at 0.005 an hour: 4e-05"


spans = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 20)), max_size=8)


@given(spans)
def test_hours_beside_each_other_count_once(spans):
    """Compared with the seconds that some span covers, one by one."""
    covered = {(host, second) for host, start, length in spans for second in range(start, start + length)}
    used = [Usage(host, float(start), float(length), 0.0) for host, start, length in spans]
    assert machine_seconds(used) == len(covered)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf")])
def test_what_is_no_price_is_refused(price, tmp_path):
    with pytest.raises(UserError, match="not a price"):
        check_price(price)
    with pytest.raises(UserError, match="not a price"):
        describe_run(tmp_path, price=price)


def test_a_run_knows_what_it_used_and_costs(tmp_path):
    with RunDirectory.create(tmp_path / "run", RECIPE, {}, {}) as run:
        run.log({"kind": "train", "step": 1, "tokens": 8, "seconds": 1.0})
        run.save_usage(processes=1, gpus=0)
    with RunDirectory.resume(tmp_path / "run", RECIPE, {}, frozenset()) as run:
        run.save_usage()
        assert len(run.read_usage()) == 2
    half = [
        msgspec.structs.replace(of, seconds=900.0, start=1e4 * number) for number, of in enumerate(run.read_usage())
    ]
    (tmp_path / "run" / "usage.json").write_bytes(msgspec.json.encode(half))
    assert "in 30 min 00 s; at 2.50 an hour: 1.25" in describe_run(tmp_path / "run", price=2.5)
    assert "hour:" not in describe_run(tmp_path / "run")
