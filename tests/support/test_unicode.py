"""Tests of the validation of text that comes from a program or a command line."""

import pytest

from unmask.support.errors import UserError, check_unicode


def test_text_in_any_script_is_accepted():
    check_unicode(["", "naïve", "你好", "😀", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")])
    check_unicode(iter([]))


@pytest.mark.parametrize(
    ("text", "shown", "position"),
    [
        ("\udcff", "?", 1),
        ("bad \udcff", "bad ?", 5),
        ("x" * 50 + "\ud83d" + "y" * 50, "x" * 20 + "?" + "y" * 19, 51),
    ],
)
def test_a_lone_surrogate_is_refused_with_its_position_and_context(text, shown, position):
    with pytest.raises(UserError) as caught:
        check_unicode(["good", text])
    assert str(caught.value) == (
        f"'{shown}': character {position} of the text is a lone surrogate, not a valid character; pass UTF-8"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "None"), (5, "5"), (b"bytes", "b'bytes'"), (("a", "b"), "('a', 'b')")]
)
def test_what_is_not_a_string_is_refused(value, shown):
    with pytest.raises(UserError) as caught:
        check_unicode(["good", value])
    pairs = ", and the second texts of pairs as texts_b" if isinstance(value, tuple) else ""
    assert str(caught.value) == f"{shown} is not a string; pass strings{pairs}"


def test_the_representation_of_a_wrong_value_is_shortened():
    with pytest.raises(UserError, match=r"^\[0, 0, .* is not a string") as caught:
        check_unicode([[0] * 1000])
    assert len(str(caught.value).split(" is not")[0]) == 60
