"""Options of a comparison that would have no effect are refused."""

import pytest

import unmask
from unmask.support.errors import UserError

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("seeds", 5), ("search", True), ("race", True), ("outlook", True), ("documents", "line")),
        *(
            ("task", "regression"),
            ("columns", {"text": "a"}),
            ("format", "csv"),
            ("metric", "f1"),
            ("test", "test.tsv"),
        ),
    ],
)
def test_options_that_a_file_or_the_lack_of_a_task_makes_idle_are_refused(inputs, tmp_path, option, value):
    with pytest.raises(UserError, match=f"{option}: the file says what is compared; write it there"):
        unmask.compare(inputs / "pets.toml", out=tmp_path / "out", **{option: value}, **HERE)
    if option in ("task", "columns", "format", "metric", "test"):
        words = {"text": inputs / "text.txt", "budget": "2ktok", "arms": "bert-tiny,random"}
        with pytest.raises(UserError, match=f"without train, {option} would be ignored"):
            unmask.compare(out=tmp_path / "out", **words, **{option: value}, **HERE)
