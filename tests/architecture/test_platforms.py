"""All modules can be imported, and runs trained and resumed, without features that only Unix has."""

import re
from pathlib import Path

import unmask

from .. import forking

PACKAGE = Path(unmask.__file__).parent
POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix")
WITHOUT = """
import multiprocessing, os, pkgutil, signal, sys, warnings
from importlib import import_module
from pathlib import Path

for name in ("fcntl", "resource"):
    sys.modules[name] = None
for owner, name in (
    (os, "sysconf"), (os, "sched_getaffinity"), (os, "pread"), (os, "O_DIRECTORY"), (signal, "pthread_sigmask"),
):
    delattr(owner, name)
real = os.open

def opening(path, *args, **options):
    if not isinstance(path, int) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real(path, *args, **options)

os.open = opening
multiprocessing.get_all_start_methods = lambda: ["spawn"]

import unmask

for module in pkgutil.walk_packages(unmask.__path__, "unmask."):
    if module.name not in ("unmask.__main__", "unmask.nn.layers.rotary_kernel"):  # for GPUs with Triton
        import_module(module.name)
print("imported")

from unmask.cli.main import main

text, out = sys.argv[1:]
settings = SETTINGS
given = ["pretrain", "bert-tiny", "--text", text, "--out", out, "--device", "cpu", "--set", "tokenizer.vocabulary=200"]
for name in settings:
    given += ["--set", name]
assert main([*given, "--set", "budget.steps=2"]) == 0
assert main([*given, "--set", "budget.steps=3", "--resume"]) == 0
assert main([*given, "--set", "budget.steps=3", "--resume", "--workers", "2"]) == 2
assert main(["runs", "show", out]) == 0
from unmask.training.machine import Machine, choose_machine
import torch
machine = choose_machine("cpu", "float32")
machine.reset_peak_memory(), machine.memory(), machine.available_memory()
Path_exists = Path.exists
Path.exists = lambda path: False if str(path).startswith("/proc") else Path_exists(path)
assert (machine.memory(), machine.available_memory()) == (0, 0)
print("trained")
"""
SETTINGS = [
    "encoder.layers=1",
    "encoder.width=16",
    "encoder.heads=2",
    "encoder.feed_forward=32",
    "encoder.positions=64",
    "layout.length=48",
    "batch.tokens=256",
]


def test_training_without_features_that_only_unix_has(text_file, tmp_path):
    program = WITHOUT.replace("SETTINGS", repr(SETTINGS), 1)
    done = forking.run(["-c", program, text_file, tmp_path / "run"], imported="torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("imported\n") and done.stdout.endswith("trained\n")
    assert "3 of 3" in done.stdout or "finished" in done.stdout
    assert "--workers 2: this system cannot fork processes" in done.stderr


def test_modules_that_only_unix_has_are_not_imported_at_the_top():
    for path in sorted(PACKAGE.rglob("*.py")):
        names = re.findall(r"^(?:import|from) (\w+)", path.read_text(encoding="utf8"), re.MULTILINE)
        assert not set(names) & set(POSIX), path
