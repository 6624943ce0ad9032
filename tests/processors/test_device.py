"""Training steps on a device that is neither a CPU nor CUDA, such as the GPU of Apple's processors."""

from pathlib import Path

import pytest

from .. import forking

PROGRAM = Path(__file__).with_name("device_program.py")
RECIPES = ["electra-mini", "xlnet-mini"]
OTHERS = ["bert-mini", "modernbert-mini", "roberta-mini", "spanbert-mini", "albert-mini", "gpt-mini"]
OTHERS += [f"bert-mini:{kind}" for kind in ("roformer", "mpnet", "distilbert")]


def steps(corpus, *words):
    """Return what the program prints of each recipe and precision."""
    done = forking.run([PROGRAM, corpus.directory, *words])
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "recipes", [RECIPES, pytest.param(OTHERS, marks=pytest.mark.exhaustive)], ids=["some", "others"]
)
def test_a_step_needs_nothing_of_the_host_and_no_float64(corpus, recipes):
    expected = {f"{name} {precision}": "ok, 0 copies" for name in recipes for precision in ("float32", "bf16")}
    assert steps(corpus, *recipes) == expected


def test_the_check_sees_a_planted_float64(corpus):
    found = steps(corpus, "bert-mini", "--fault")
    assert found and all("computes in float64" in result for result in found.values())
