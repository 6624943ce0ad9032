"""torchrun's variables: consistent, or refused before anything is computed."""

import pytest

from unmask.support.environment import rank_and_size, whole
from unmask.support.errors import UserError


def put(monkeypatch, **variables):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, (0, 1)), ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)), ({"RANK": "0"}, (0, 1)), ({"WORLD_SIZE": "1"}, (0, 1))],
)
def test_consistent_variables(monkeypatch, variables, expected):
    put(monkeypatch, **variables)
    assert rank_and_size() == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1"}, "but not WORLD_SIZE; start it with torchrun, or unset RANK"),
        ({"WORLD_SIZE": "2"}, "but not RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE=two is not a whole number from 0"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1 is not a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE=9999"),
        ({"RANK": "²", "WORLD_SIZE": "2"}, "RANK=² is not"),
    ],
)
def test_E2_inconsistent_variables_are_refused(monkeypatch, variables, message):
    put(monkeypatch, **variables)
    with pytest.raises(UserError) as error:
        rank_and_size()
    assert message in str(error.value)
    assert len(str(error.value)) < 200


def test_another_variable(monkeypatch):
    monkeypatch.setenv("UNMASK_TEST", "3")
    assert (whole("UNMASK_TEST", 1), whole("UNMASK_NONE", 1)) == (3, 1)
