"""Values that parameters of several functions accept."""

import pytest

from unmask.support.choices import MAX_NAME, as_files
from unmask.support.errors import UserError


def test_a_text_in_place_of_a_file_is_refused():
    longest = "a" * MAX_NAME
    assert as_files(f"{longest}/{longest}") == [f"{longest}/{longest}"]
    with pytest.raises(
        UserError, match=r"'äaa.*…' is a text, where the path of a file is expected; write it to a file"
    ):
        as_files(["a.txt", "ä" + longest])
