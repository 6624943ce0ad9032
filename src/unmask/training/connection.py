"""The connection of a process to the others that train with it: gloo's and NCCL's groups, and notes in a shared store.

Input: the variables of torchrun. Output: a group for small messages, and what is known of processes that have stopped:
those that failed leave the reason in the store, and those that wait for others note there that they are alive. The
store is hosted by torchrun or else by the main process, which therefore is the last to leave.

Nothing here waits forever: the store is asked in a thread, because a host that has vanished does not answer.

gloo takes the address to which the name of the host maps. On many systems that is a loopback address, by which no other
host can be reached. So each process looks up by which of its own addresses it reaches the host of the store that
torchrun names (MASTER_ADDR) and, on that host itself, another one; the routing table knows, and nothing is sent. The
interface with this address is given to gloo in `GLOO_SOCKET_IFNAME`, unless that is set.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from unmask.support.environment import check_address
from unmask.support.errors import UnmaskError

TIMEOUT = "UNMASK_TIMEOUT"
"""Environment variable: seconds to wait for a process that does not respond (default 600)."""
SEARCH_SECONDS = 5
"""Time to search for the missing processes after a failure."""
ANSWER_SECONDS = 3
"""Time in which a store that can be reached answers."""
BEAT_SECONDS = 1
"""Time between two signs of life of a process that works while the others wait."""
POLL_SECONDS = 0.02
REASON = 400
"""Number of characters of the reason for a failure that the other processes print."""

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable: the name of the interface that gloo uses."""
SIOCGIFADDR = 0x8915
"""The request of man 7 netdevice that returns an interface's IPv4 address, on Linux."""
ANY_PORT = 9
"""A port for the look-up of a route; no packet is sent to it."""

_T = TypeVar("_T")


class LostProcessError(UnmaskError):
    """Another process has failed, exited, or did not respond in time.

    Attributes:
        missing: ranks of the processes that have stopped, or do not respond.
    """

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing = list(missing)


class Connection:
    """The connection of one process to the others.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
        seconds: time to wait for a process that does not respond.

    Attributes:
        control: process group for small messages, on the CPU.

    Raises:
        UserError: torchrun's variables are incomplete.
        LostProcessError: the others did not connect in time.
    """

    def __init__(self, rank: int, size: int, seconds: int) -> None:
        self.rank = rank
        self.size = size
        self.seconds = seconds
        self.control: Any = None
        self._store: Any = None
        self._silent, interface = False, ""
        check_address()
        failed = f"process {rank} of {size} could not connect to all others within {seconds} s"
        try:
            self._open_store()
            interface = self._meet(failed)
            self._join()
        except RuntimeError as error:
            self.close()
            hosts = f"if they are on several hosts, set {INTERFACE} to the name of an interface that leads to all"
            raise LostProcessError(
                f"{failed}: check that all were started and none has exited; {hosts}{_used(interface)} "
                f"({str(error).splitlines()[0]})"
            ) from error
        except LostProcessError:
            self.close()
            raise

    def _open_store(self) -> None:
        limit = timedelta(seconds=self.seconds)
        tries = 1 if self.rank == 0 else 2  # torch tries twice to reach the store of another process, so long each
        store, _, _ = next(iter(rendezvous("env://", timeout=limit / tries)))
        store.set_timeout(limit)
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun keeps what earlier attempts stored
        self._store = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]

    def _meet(self, failed: str) -> str:
        """Wait until all processes are there, and return the interface that gloo uses; "": its own choice.

        Raises:
            LostProcessError: some have not come in time.
        """
        mine = local_address(os.environ.get("MASTER_ADDR", ""))
        self._store.set(f"here/{self.rank}", mine)
        limit, absent = time.monotonic() + self.seconds, list(range(self.size))
        while absent := [rank for rank in absent if not self._store.check([f"here/{rank}"])]:
            if time.monotonic() > limit:
                raise LostProcessError(
                    f"{failed} (missing: {_listed(absent)}): check that all were started and none has exited", absent
                )
            time.sleep(POLL_SECONDS)
        every = [self._store.get(f"here/{rank}").decode() for rank in range(self.size)]
        return choose_interface(mine, every)

    def _join(self) -> None:
        # its functions keep the process group that exists when DDP imports it, and thereby the group's threads
        import_module("torch.distributed.nn.functional")
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        limit = timedelta(seconds=self.seconds)
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
        self.control = dist.new_group(backend="gloo", timeout=limit)

    def close(self) -> None:
        """Disconnect, and wait for gloo's threads.

        After a collective operation they still release its tensors, for which they need the GIL, and a thread that asks
        for the GIL while the interpreter shuts down aborts the process. They end with the last reference to the group.
        """
        self._leave()
        self._store = None

    def _leave(self) -> None:
        self.control = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def fail(self, reason: str) -> None:
        """Leave the reason why this process stops; the main process waits a moment until the others have read it.

        The groups are closed, so that those that wait for this process find out while the store still answers.
        """
        self._within(ANSWER_SECONDS, lambda: self._store.set(f"failed/{self.rank}", " ".join(reason.split())[:REASON]))
        self._leave()
        if self.rank == 0:
            self._search(ANSWER_SECONDS)
            time.sleep(BEAT_SECONDS)

    def lost(self) -> LostProcessError:
        """Return the error that names the processes that have stopped or do not respond, and why, if they said so.

        The connection is closed, so that those that still wait for this process find out at once.
        """
        self._leave()
        self._within(ANSWER_SECONDS, lambda: self._store.set(f"lives/{self.rank}", ""))
        silent, reasons = self._search(SEARCH_SECONDS)
        if self.rank == 0:
            time.sleep(BEAT_SECONDS)  # so that the others can still read the store
        me = f"process {self.rank} of {self.size} stops because"
        if reasons:
            told = "; ".join(f"process {rank} has stopped: {reason}" for rank, reason in reasons.items())
            return LostProcessError(f"{me} {told}", sorted({*silent, *reasons}))
        missing = _listed(silent) or "none, but the connection failed"
        return LostProcessError(f"{me} another process has exited or does not respond (missing: {missing})", silent)

    @contextmanager
    def leading(self, name: str) -> Iterator[None]:
        """Show the others that this process is alive, until its work of this name is done; see `follow`."""
        done = Event()

        def beat() -> None:
            with suppress(RuntimeError):  # the others find out themselves
                while not done.wait(BEAT_SECONDS):
                    self._store.add("beats", 1)

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(ANSWER_SECONDS)
        self._store.set(name, "")

    def follow(self, name: str) -> None:
        """Wait until the main process has done its work of this name, as long as it shows that it is alive.

        Raises:
            LostProcessError: it has failed, or does not respond.
        """
        beats, since, pause = -1, time.monotonic(), POLL_SECONDS
        while time.monotonic() - since < self.seconds:
            state = self._within(
                max(ANSWER_SECONDS, since + self.seconds - time.monotonic()),
                lambda: (self._store.check([name]), self._store.check(["failed/0"]), self._store.add("beats", 0)),
            )
            if state is None or state[1]:
                break
            if state[0]:
                return
            if state[2] != beats:
                beats, since = state[2], time.monotonic()
            time.sleep(pause)
            pause = min(1.1 * pause, BEAT_SECONDS / 2)
        raise self.lost()

    def _search(self, seconds: float) -> tuple[list[int], dict[int, str]]:
        """Return the ranks of which there is no sign for some seconds, and the reasons of those that have failed."""
        silent, reasons = [0], dict[int, str]()  # the process that may host the store is at fault if it cannot be read

        def search() -> None:
            waiting, limit = [rank for rank in range(self.size) if rank != self.rank], time.monotonic() + seconds
            while waiting and time.monotonic() < limit:
                for rank in list(waiting):
                    if self._store.check([f"failed/{rank}"]):
                        reasons[rank] = self._store.get(f"failed/{rank}").decode()
                        waiting.remove(rank)
                    elif self._store.check([f"lives/{rank}"]):
                        waiting.remove(rank)
                time.sleep(POLL_SECONDS)
            silent[:] = waiting

        self._within(seconds + 1, search)
        return silent, dict(reasons)

    def _within(self, seconds: float, work: Callable[[], _T]) -> _T | None:
        """Return what the store answers; None if it cannot be reached, or has not answered in time, now or before."""
        answers: list[_T] = []

        def ask() -> None:
            with suppress(RuntimeError):
                answers.append(work())

        if not self._silent:
            thread = Thread(target=ask, daemon=True)  # may block forever if the host of the store has vanished
            thread.start()
            thread.join(seconds)
            self._silent = thread.is_alive()
        return answers[0] if answers else None


def _used(interface: str) -> str:
    return f" (now {interface})" if interface else ""


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def local_address(host: str) -> str:
    """Return the address from which this host reaches another one, by name or address; "" if that is unknown."""
    with suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return ""


def choose_interface(mine: str, every: Sequence[str]) -> str:
    """Let gloo use an interface that leads to the other hosts, if there are any; return its name, or "".

    Args:
        mine: the address of this process, as `local_address` returned it for the host of the store.
        every: those of all processes.
    """
    if len(set(every)) == 1 or INTERFACE in os.environ:
        return os.environ.get(INTERFACE, "")
    outside = [address for address in every if not is_loopback(address)]
    if is_loopback(mine) and outside:  # on the host of the store, whose name may map to the loopback address
        mine = local_address(outside[0])
    name = interface_of(mine)
    if name and not is_loopback(mine):
        os.environ[INTERFACE] = name
    return os.environ.get(INTERFACE, "")


def is_loopback(address: str) -> bool:
    """Return whether an address leads to this host only; an unknown one may."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True


def interface_of(address: str) -> str:
    """Return the name of the interface that has an address; "" if that is unknown, as on other systems than Linux."""
    return next((name for name, other in _addresses() if other == address.partition("%")[0]), "")


def _addresses() -> Iterator[tuple[str, str]]:
    """Yield the names and addresses of all interfaces of this host, as far as Linux lists them."""
    if find_spec("fcntl") is None or not Path("/proc/net").is_dir():
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield name, socket.inet_ntoa(found[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            yield name, str(ipaddress.IPv6Address(int(digits, 16)))
