"""On an emulated ARM processor, text, vocabularies, corpora and metrics are those of this one (`make arm` first)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import unmask

from .emulated_process import AARCH64, python_on

pytestmark = pytest.mark.exhaustive
ROWS = Path(unmask.__file__).parent / "demo/reviews/dev.tsv"


@pytest.fixture
def results(text_file, tmp_path):
    """What emulated_text.py prints there, and here."""

    def run(command, out):
        program = Path(__file__).with_name("emulated_text.py")
        given = [*command, str(program), str(text_file), str(ROWS), str(out)]
        done = subprocess.run(given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run(python_on(AARCH64, tmp_path), tmp_path / "there"), run([sys.executable], tmp_path / "here")


def test_text_and_metrics_are_those_of_this_processor(results):
    there, here = results
    assert there.keys() == here.keys()
    for name in here.keys() - {"metrics"}:
        assert there[name] == here[name], name
    numbers = [json.dumps(one["metrics"]) for one in results]
    assert flat(there["metrics"]) == pytest.approx(flat(here["metrics"]), rel=1e-12), numbers
    assert len(here["files"]) > 10


def flat(value):
    """Return the numbers of nested lists and dictionaries, in order."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    return [number for one in value for number in flat(one)] if isinstance(value, list) else [value]
