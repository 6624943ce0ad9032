"""Runs of earlier versions are compared with the current recipe and inputs after conversion."""

import pytest

from unmask.errors import UserError
from unmask.runs.directory import RunDirectory
from unmask.runs.earlier import Earlier

RECIPE = "[layout]\nhidden = 0.15\n"
CURRENT = "[layout]\nmasked = 0.15\n"


@pytest.fixture
def path(tmp_path):
    """A run of an earlier version, with a former setting and a former fingerprint."""
    RunDirectory.create(tmp_path / "run", RECIPE, {"corpus": "former", "init": "none"}, {}).close()
    return tmp_path / "run"


def convert(recipe, name):
    assert name.endswith("recipe.toml")
    return {"layout": {"masked": recipe["layout"]["hidden"]}}


def resume(path, recipe, inputs, earlier):
    with RunDirectory.resume(path, recipe, inputs, frozenset(), earlier=earlier) as run:
        return run.changed


INPUTS = {"corpus": "current", "init": "none"}


def test_a_converted_run_is_resumed_without_changes(path):
    earlier = Earlier(convert, {"corpus": lambda: "former"})
    assert resume(path, CURRENT, INPUTS, earlier) == frozenset()


def test_without_conversion_all_differences_are_listed(path):
    with pytest.raises(
        UserError, match=r"inputs\.corpus was former, now current; layout\.hidden was 0\.15, now not set"
    ):
        resume(path, CURRENT, INPUTS, None)


def test_another_input_is_refused_even_if_the_former_fingerprint_is_known(path):
    earlier = Earlier(convert, {"corpus": lambda: "that of another corpus"})
    with pytest.raises(UserError, match=r"inputs\.corpus was former, now current;"):
        resume(path, CURRENT, INPUTS, earlier)


def test_a_former_fingerprint_is_only_computed_if_the_current_one_differs(path):
    def fail():
        raise AssertionError

    assert (
        resume(path, CURRENT, {"corpus": "former", "init": "none"}, Earlier(convert, {"corpus": fail})) == frozenset()
    )


def test_by_default_no_input_had_another_fingerprint():
    assert Earlier(convert).inputs == {}
