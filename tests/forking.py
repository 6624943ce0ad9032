"""Processes that start without importing torch again, which takes seconds: forks of one that has imported it.

`start` and `run` stand for `subprocess.Popen` and `subprocess.run` of a Python program where a test needs a process of
its own, such as one to be killed. Their processes are as real as others: each has its own number, memory, environment
and streams, and ends as the system says. What happens before and while modules are imported is tested with
`python -m unmask` itself.

This file is also the program of the process that is forked: it imports what runs need, starts no thread, and forks once
for each request. It is itself a fork of one that has imported torch alone, which is forked for tests of how unmask is
imported. Where Linux's process descriptors are missing, each process is started by `subprocess`.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path

START_SECONDS = 120
"""Time within which a process has to start, also on a busy machine."""
MODULES = (
    *(
        "torch.distributed",
        "torch.distributed.fsdp",
        "torch.utils.tensorboard",
        "unmask.inference.calls",
        "unmask.cli.main",
    ),
    *(
        "unmask.workflows.pretraining.launch",
        "unmask.workflows.finetuning.finetune",
        "unmask.inference.predictor",
        "unmask.workflows.pretraining.text_corpus",
    ),
    *("unmask.workflows.pretraining.default", "unmask.workflows.pretraining.pretrain"),
)
"""What the process that is forked imports."""


class Started:
    """A process, with the methods of `subprocess.Popen`."""

    def __init__(self, words, *, env=None, cwd=None, stdin=None, imported="unmask"):
        """Start `python WORDS`: -m with a module, -c with a program, or a file, and their arguments.

        Args:
            words: what follows `python` in a command line.
            env: the environment, by default that of this process.
            cwd: the folder to start in, by default that of this process.
            stdin: the text on standard input, by default none.
            imported: "unmask", or "torch" alone.
        """
        self.stdout, self.stderr, given = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115
        given.write((stdin or "").encode())
        given.seek(0)
        request = {"words": list(map(str, words)), "env": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}
        with given:
            streams = [file.fileno() for file in (given, self.stdout, self.stderr)]
            self._reports = _request(_origin(imported), request, streams)
        self._reports.settimeout(START_SECONDS)
        self.pid, self.returncode = self._report(), None

    def _report(self):
        report = self._reports.recv(8, socket.MSG_WAITALL)
        assert len(report) == 8, "the process that is forked has ended"
        return int(report)

    def poll(self):
        """Return the status if the process has ended, or None."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        """Wait for the end, and return the status: that of the program, or -NUMBER after a signal."""
        if self.returncode is None:
            self._reports.settimeout(timeout)
            try:
                self.returncode = self._report()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("the process", timeout) from None
            self._reports.close()
        return self.returncode

    def communicate(self, timeout=None):
        """Wait for the end, and return the bytes that the process wrote on its standard output and error."""
        self.wait(timeout)
        texts = []
        for file in (self.stdout, self.stderr):
            file.seek(0)
            texts.append(file.read())
            file.close()
        return tuple(texts)

    def send_signal(self, number):
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(words, **options):
    """Start `python WORDS`; for the options see `Started`."""
    if hasattr(os, "pidfd_open"):
        return Started(words, **options)
    with tempfile.TemporaryFile() as given:
        given.write((options.pop("stdin", None) or "").encode())
        given.seek(0)
        options.pop("imported", None)
        piped = {"stdin": given, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, *map(str, words)], **piped, **options)


def run(words, *, timeout=240, **options):
    """Start a process, wait for its end, and return its status, output and errors, as `subprocess.run` does."""
    process = start(words, **options)
    try:
        output, errors = process.communicate(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(words, process.returncode, output.decode(), errors.decode())


def _request(origin, request, streams):
    """Ask a process to be forked, with these streams, and return the socket of its reports."""
    reports, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(origin, [b"!"], [*streams, theirs.fileno()])
        reports.sendall(json.dumps(request).encode() + b"\n")
    return reports


@cache
def _origin(imported):
    """Start the process that is forked, once, and return the socket for requests; it ends with this process."""
    ours, theirs = socket.socketpair()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with theirs:
        if imported == "unmask":
            words = ["-c", Path(__file__).read_text(), imported]
            request = {"words": words, "env": environment, "cwd": str(Path.cwd())}
            with _request(_origin("torch"), request, [theirs.fileno(), 1, 2]) as reports:
                reports.recv(8)  # it was forked
            atexit.register(ours.close)
            return ours
        process = subprocess.Popen([sys.executable, "-P", __file__, imported], stdin=theirs, env=environment)

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _prepare(imported):
    """Import torch, or all that runs import and what torch imports when it is first used, without starting a thread."""
    import torch

    torch.set_num_threads(1)
    if imported == "unmask":
        _prepare_runs()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has only one of the threads"


def _prepare_runs():
    import torch

    for name in MODULES:
        import_module(name)
    # TensorBoard takes longer than the steps of a run
    import_module("unmask.training.runs.extras").Events.write = lambda events, metrics: None
    import_module("unmask.metrics.intervals").RESAMPLES = 100  # as in `conftest.py`, like the next lines
    import_module("unmask.training.machine").PEAK_SECONDS = 0.02
    import_module("unmask.training.settings").COUNTED_STEPS = 8
    os.fsync = lambda handle: None
    for backend in (torch.cuda, torch.xpu, torch.mtia):
        if not backend.is_available():
            backend.manual_seed_all = lambda seed: None
    for dtype in (torch.float32, torch.bfloat16):  # found out in forks, and kept, as `products` is
        import_module("unmask.support.capabilities").panels_multiply(dtype)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True).step()


def _serve(requests):
    """Fork for each request, report the fork's number and later its status, and return the request in the fork."""
    with selectors.DefaultSelector() as events:
        events.register(requests, selectors.EVENT_READ)
        while True:
            for event, _ in events.select():
                if event.data is not None:
                    _report_end(*event.data)
                    events.unregister(event.fd)
                    os.close(event.fd)
                    continue
                message, files, *_ = socket.recv_fds(requests, 1, 4)
                if not message:
                    os._exit(0)
                *streams, reports = files
                channel = socket.socket(fileno=reports)
                request = json.loads(channel.makefile("r", encoding="utf8").readline())
                child = os.fork()
                if child == 0:
                    for number, file in enumerate(streams):
                        os.dup2(file, number)
                        os.close(file)
                    return request
                for file in streams:
                    os.close(file)
                channel.sendall(b"%8d" % child)
                events.register(os.pidfd_open(child), selectors.EVENT_READ, (child, channel))


def _report_end(child, channel):
    """Report the status of a process that has ended."""
    with channel, contextlib.suppress(BrokenPipeError):  # the test may be over
        channel.sendall(b"%8d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run(words, env, cwd):
    """Run a program as `python WORDS` does."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    first, *rest = words
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


def _end(error):
    """End the process as Python does, except that it does not take its modules down, which is slow."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int | None) else 1
        if status != error.code:
            print(error.code, file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def _main(imported):
    _prepare(imported)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all of the memory
    request, error = _serve(socket.socket(fileno=os.dup(0))), None
    try:
        _run(**request)
    except BaseException as raised:
        error = raised
    _end(error)


if __name__ == "__main__":
    _main(sys.argv[1])
