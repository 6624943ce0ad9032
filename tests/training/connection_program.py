"""Program of a process that joins others and fails: `python connection_program.py MODE`.

If UNMASK_NAMESPACE names a network namespace, the process enters it first, as if it were on another host.
"""

import ctypes
import os
import sys
import time

import torch

from unmask.cli.main import main
from unmask.support.errors import UnmaskError, UserError
from unmask.training.processes import Processes

CLONE_NEWNET = 0x40000000


def enter(name):
    """Move this process to a network namespace (man 2 setns)."""
    with open(f"/run/netns/{name}", "rb") as file:  # noqa: PTH123
        assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0


def lead_long(processes):
    """The main process works for longer than the others would wait for one that does not respond."""
    seconds = 2.5 * float(os.environ["UNMASK_TIMEOUT"])
    return processes.lead(lambda: time.sleep(seconds) or "long work")


def lead_and_fail(processes):
    """The main process fails at its work, for which the others wait."""

    def fail():
        time.sleep(0.5)
        raise UserError("there is no text", file="notes.txt", remedy="write some")

    return processes.lead(fail)


def lead_and_die(processes):
    """The main process is killed at its work."""

    def die():
        time.sleep(0.5)
        os.kill(os.getpid(), 9)

    return processes.lead(die)


def fail(processes, rank=1):
    """One process fails, the others are in collective operations."""
    if processes.rank == rank:
        raise ZeroDivisionError("a bug")
    return exchange(processes)


def fail_as_main(processes):
    """The main process fails, the others are in collective operations."""
    return fail(processes, 0)


def lose_last(processes):
    """The last process is killed between collective operations of all."""
    for number in range(1000):
        if number == 20 and processes.rank == processes.size - 1:
            os.kill(os.getpid(), 9)
        processes.all_reduce_tensors([torch.ones(1000), torch.ones(3)])
        processes.all_reduce_sum([1.0])


def exchange(processes):
    """Sum and send tensors of several types until something fails."""
    sent = {"weights": torch.arange(6.0).view(2, 3).T, "half": torch.ones(3).bfloat16(), "none": torch.zeros(0, 2)}
    sent |= {"step": torch.tensor(7), "flag": torch.tensor([True, False])}
    nothing = {name: value.new_zeros(1) for name, value in list(sent.items())[:2]}
    for source in range(processes.size):
        received = processes.broadcast_tensors(sent if processes.rank == source else nothing, source)
        assert received.keys() == sent.keys()
        assert all(received[name].equal(value) and value.dtype == received[name].dtype for name, value in sent.items())
    with processes:  # nested
        assert Processes.launched() is processes
    return processes.broadcast("equal" if processes.is_main else "")


def run(mode):
    """Connect, do what the mode says, and print the result or the error."""
    try:
        with Processes.launched() as processes:
            sys.stdout.write(f"{globals()[mode](processes)} GLOO_SOCKET_IFNAME={os.environ.get('GLOO_SOCKET_IFNAME')}")
    except UnmaskError as error:
        sys.stdout.write(str(error))
        return error.status
    return 0


if __name__ == "__main__":
    if name := os.environ.get("UNMASK_NAMESPACE"):
        enter(name)
    sys.exit(run(sys.argv[1]) if len(sys.argv) == 2 else main(sys.argv[1:]))
