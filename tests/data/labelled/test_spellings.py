"""Labels that look the same are found, whatever makes them differ, and others are left alone."""

import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.label_spellings import (
    alike,
    describe_alike,
    describe_joined,
    describe_missing,
    describe_missing_texts,
    fold_label,
    shown,
)

CHANGES = [
    str.upper,
    str.lower,
    lambda label: f" {label}",
    lambda label: f"{label}\u00a0",
    lambda label: f"\ufeff{label}",
    lambda label: f"{label[0]}\u200b{label[1:]}",
    lambda label: f"{label[0]}\u00ad{label[1:]}",
    lambda label: f'"{label}"',
    lambda label: f"\u201e{label}\u201c",
    lambda label: f"'{label} '",
    lambda label: label.replace("-", "\u2013"),
    lambda label: label.replace("-", "\u2212"),
    lambda label: unicodedata.normalize("NFD", label),
    lambda label: unicodedata.normalize("NFC", label),
    lambda label: "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in label),
]
LABELS = st.sampled_from(
    ["positive", "caf\u00e9", "Not Applicable", "\u4f60\u597d", "stra\u00dfe", "\u0438\u0439", "B+", "a-1"]
)


@given(LABELS, st.lists(st.sampled_from(CHANGES), min_size=1, max_size=4))
def test_what_cannot_be_seen_does_not_make_another_label(label, changes):
    changed = label
    for change in changes:
        changed = change(changed)
    assert fold_label(changed) == fold_label(label)
    assert alike([label, changed]) == ([] if changed == label else [(label, changed)])


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-10_000, max_value=10_000),
    st.sampled_from("fgeE"),
)
def test_numbers_are_compared_by_value(number, form):
    written = {
        "f": f"{number:f}",
        "g": f"{float(number):.12g}",
        "e": f"{number:e}",
        "E": f"+{number:E}".replace("+-", "-"),
    }[form]
    assert fold_label(written) == fold_label(str(number))
    assert (fold_label(str(number + Decimal("0.001"))) == fold_label(written)) is False


@pytest.mark.parametrize("group", [("1", "1.0", "True", "TRUE"), ("0", "0.0", "False", "-0")])
def test_truth_values_are_numbers_as_in_data_frames(group):
    assert alike(group) == [group]


@pytest.mark.parametrize(
    "labels",
    [
        ("B-PER", "I-PER"),
        ("C", "C++", "C#"),
        ("1", "10", "-1", "1.1"),
        ("a b", "ab"),
        ("e", "\u00e9"),
        ("", "O"),
        ("1" * 5000, "1" * 4999),
    ],
)
def test_labels_that_look_different_are_different(labels):
    assert alike(labels) == []


def test_a_note_counts_the_labels_and_shows_what_cannot_be_seen():
    counts = {"caf\u00e9": 3, "cafe\u0301": 4, "a\u200b": 1, "a": 2, "b": 7}
    assert describe_alike(counts) == [
        "labels that look the same, but are learned as different ones: 'caf\u00e9' (3), 'cafe\u0301' [U+0301] (4)",
        "labels that look the same, but are learned as different ones: 'a\u200b' [U+200B] (1), 'a' (2)",
    ]
    many = {f"{word}{end}": 1 for word in "abcdefg" for end in ("", " ")}
    assert len(describe_alike(many)) == 6
    assert describe_alike(many)[-1] == "2 more groups of labels look the same"
    assert shown("x ") == "'x ' [U+0020]"
    assert shown("x y") == "'x y'"


@pytest.mark.parametrize("between", [",", ", ", " ", "/", " / ", "+", " & ", " and ", "; "])
def test_labels_that_are_several_others_are_noted(between):
    counts = {"joy": 3, f"joy{between}fear": 2, "fear": 1, f"fear{between}awe": 1}
    found = (
        f"labels that consist of others, each of which is learned as one of its own: {shown(f'joy{between}fear')} (2)"
    )
    assert describe_joined(counts) == [found]
    assert describe_joined({"New York": 2, "New": 1, "-": 1, "a-b": 1, "": 2, "a": 1, "b": 1, "sand": 1, "s": 1}) == []


def test_what_other_programs_write_for_missing_values_is_noted():
    counts = {"NA": 3, "pos": 9, "\\N": 1, "none": 2, "na": 4}
    assert describe_missing(counts) == [
        "labels that may stand for a missing one: 'NA' (3), '\\N' (1); if so, remove these rows"
    ]
    assert describe_missing({"pos": 1, "neg": 2}) == []
    assert describe_missing({"0": 9, "1": 9, "2": 9, "-1": 2, "-": 1}) == [
        "labels that may stand for a missing one: '-1' (2), '-' (1); if so, remove these rows"
    ]
    assert describe_missing({"-1": 1, "0": 1, "1": 1, "+": 1, "-": 1}) == [], "they are opinions"
    (note,) = describe_missing({"NULL": 261, "I10": 9}, several=True)
    assert note.endswith("'NULL' (261); if so, remove these rows, or for no label leave these cells empty")
    assert describe_missing_texts(["NULL", "None of it.", "nan", "NULL", "", "a"]) == [
        "texts that may stand for a missing one: 'NULL' (2), 'nan' (1); if so, remove these rows"
    ]
    assert describe_missing_texts(["a"]) == []
