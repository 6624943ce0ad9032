"""`python -m unmask` runs the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import unmask


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["no-such-command"], 2)])
def test_the_module_runs_the_command_line(arguments, status):
    environment = {**os.environ, "PYTHONPATH": str(Path(unmask.__file__).parents[1])}
    command = [sys.executable, "-m", "unmask", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if not status:
        assert done.stdout == f"unmask {unmask.__version__}\n"


@pytest.mark.parametrize(("given", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_threads_do_not_spin_for_long_unless_told_to(given, spins):
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"} | given
    environment["PYTHONPATH"] = str(Path(unmask.__file__).parents[1])
    program = "import os, sys, unmask; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [spins, "False"]
