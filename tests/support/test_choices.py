"""Values that parameters of several functions accept."""

import numpy
import pandas
import pytest

from unmask.support.choices import MAX_NAME, as_files, as_texts
from unmask.support.errors import UserError


@pytest.mark.parametrize("texts", ["ab", ["ab"], ("ab",), iter(["ab"]), numpy.array(["ab"]), pandas.Series(["ab"])])
def test_texts_are_one_or_several(texts):
    assert as_texts(texts) == ["ab"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (None, "None is not a string"),
        (5, "5 is not a string"),
        (b"ab", "b'ab' is not a string"),
        (["ab", None], "None is not a string"),
        ({"text": ["ab"]}, "is not a string"),
        (pandas.DataFrame({"text": ["ab"]}), "a DataFrame is given, where texts are expected; pass one of its columns"),
    ],
)
def test_what_is_no_text_is_refused(texts, message):
    """The columns of a table would otherwise be taken for texts."""
    with pytest.raises(UserError, match=message):
        as_texts(texts)


@pytest.mark.parametrize("files", [None, 5, {"a.txt": 1}, [5]])
def test_what_is_no_path_is_refused(files):
    with pytest.raises(UserError, match="is given, where the path of a file is expected"):
        as_files(files)


def test_a_text_in_place_of_a_file_is_refused():
    longest = "a" * MAX_NAME
    assert as_files(f"{longest}/{longest}") == [f"{longest}/{longest}"]
    with pytest.raises(
        UserError, match=r"'äaa.*…' is a text, where the path of a file is expected; write it to a file"
    ):
        as_files(["a.txt", "ä" + longest])
