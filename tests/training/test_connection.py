"""Processes wait for the main one as long as it is alive, and say why another one has stopped."""

import os
import socket
from pathlib import Path

import pytest

from unmask.training import connection
from unmask.training.connection import (
    INTERFACE,
    Connection,
    LostProcessError,
    choose_interface,
    interface_of,
    is_loopback,
    local_address,
)

from .. import forking

PROGRAM = Path(__file__).with_name("connection_program.py")
linux = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="interfaces are listed on Linux only")


def ended(mode, size=2, timeout=2):
    """Run the program in several processes; return their statuses and what they print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "UNMASK_TIMEOUT": str(timeout)}
    started = [forking.start([PROGRAM, mode], env=os.environ | meeting | {"RANK": str(rank)}) for rank in range(size)]
    texts = [process.communicate(timeout=120) for process in started]
    return [process.returncode for process in started], [out.decode() + error.decode() for out, error in texts]


@pytest.mark.timeout(300)
def test_the_others_wait_for_work_that_takes_longer_than_the_time_limit():
    statuses, texts = ended("lead_long")
    assert statuses == [0, 0], texts
    assert all(text.startswith("long work GLOO_SOCKET_IFNAME=None") for text in texts)


@pytest.mark.timeout(300)
def test_T10_the_error_of_the_main_process_is_that_of_the_others():
    statuses, texts = ended("lead_and_fail", size=3, timeout=60)
    assert statuses == [2, 1, 1], texts
    assert texts[0] == "notes.txt: there is no text; write some"
    for rank in (1, 2):
        assert texts[rank] == f"process {rank} of 3 stops because process 0 has stopped: {texts[0]}"


@pytest.mark.timeout(300)
def test_T10_the_others_do_not_wait_for_a_main_process_that_was_killed():
    statuses, texts = ended("lead_and_die", timeout=60)
    assert statuses == [-9, 1]
    assert "process 1 of 2 stops because another process has exited or does not respond (missing: 0)" in texts[1]


@pytest.mark.timeout(300)
def test_T10_only_the_lost_process_is_named_also_by_those_that_wait_for_others():
    statuses, texts = ended("lose_last", size=4, timeout=60)
    assert statuses == [1, 1, 1, -9]
    assert all(text.endswith("another process has exited or does not respond (missing: 3)") for text in texts[:3]), (
        texts
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mode", "failing"), [("fail", 1), ("fail_as_main", 0)])  # rank 0 hosts the store
def test_T10_a_bug_in_one_process_is_named_by_the_others(mode, failing):
    statuses, texts = ended(mode, size=3, timeout=60)
    assert statuses == [1, 1, 1]
    assert "ZeroDivisionError" in texts[failing]
    for rank in {0, 1, 2} - {failing}:
        reason = f"process {failing} has stopped: ZeroDivisionError('a bug')"
        assert texts[rank] == f"process {rank} of 3 stops because {reason}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_tensors_of_each_process_are_received_by_all(size):
    statuses, texts = ended("exchange", size=size, timeout=60)
    assert statuses == [0] * size, texts
    assert all(text.startswith("equal ") for text in texts)


@pytest.mark.parametrize(("rank", "seconds"), [(0, 8), (1, 4)])
def test_T11_a_store_that_torch_tries_to_reach_twice_is_given_up_in_time(monkeypatch, rank, seconds):
    def unreachable(url, timeout):
        raise RuntimeError(f"no store in {timeout.total_seconds():g} s")

    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(connection, "rendezvous", unreachable)
    with pytest.raises(LostProcessError, match=rf"process {rank} of 2 .* within 8 s.*\(no store in {seconds} s\)"):
        Connection(rank, 2, 8)


@linux
def test_the_loopback_interface_is_found_by_its_addresses():
    assert interface_of("127.0.0.1") == socket.if_indextoname(1)
    assert interface_of("192.0.2.1") == interface_of("") == ""
    assert is_loopback(local_address("127.0.0.1"))
    assert local_address("no.such.host.invalid") == ""


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.1.1", True), ("::1", True), ("", True), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)
def test_addresses_that_lead_to_this_host_only(address, expected):
    assert is_loopback(address) == expected


@pytest.mark.parametrize(
    ("mine", "every", "given", "expected"),
    [
        ("127.0.0.1", ["127.0.0.1", "127.0.0.1"], None, ""),  # one host: gloo's own choice
        ("10.0.0.1", ["10.0.0.1", "10.0.0.1"], None, ""),
        ("10.0.0.1", ["10.0.0.1", "10.0.0.2"], None, "eth1"),
        ("127.0.1.1", ["127.0.1.1", "10.0.0.2"], None, "eth1"),  # the host of the store, whose name maps to loopback
        ("10.0.0.1", ["10.0.0.1", "10.0.0.2"], "ib0", "ib0"),
        ("172.16.0.1", ["172.16.0.1", "10.0.0.2"], None, ""),  # its interface is unknown
    ],
)
def test_gloo_uses_an_interface_that_leads_to_other_hosts(monkeypatch, mine, every, given, expected):
    monkeypatch.setattr(connection, "interface_of", {"10.0.0.1": "eth1", "127.0.0.1": "lo"}.get)
    monkeypatch.setattr(connection, "local_address", {"10.0.0.2": "10.0.0.1"}.get)
    monkeypatch.setenv(INTERFACE, given or "")
    if given is None:
        monkeypatch.delenv(INTERFACE)
    assert (choose_interface(mine, every) or "") == expected
    assert os.environ.get(INTERFACE, "") == expected
