"""Tags without prefixes: of words, of entities in runs, and what is neither."""

import csv
import io
import itertools
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.annotations import read_annotations
from unmask.support.errors import UserError


def read(path, text, notes=None, **columns):
    path.write_text(text)
    return read_annotations([path], columns=columns, notes=notes)


def test_parts_of_speech_are_kept(tmp_path):
    (first, second) = read(tmp_path / "a", "EU NNP\n-LRB- -LRB-\ndogs NNS\ndogs NNS\n\nit PRP$\n")
    assert (first.tags, second.tags) == (("NNP", "-LRB-", "NNS", "NNS"), ("PRP$",))
    assert first.entities[2:] == [("NNS", 9, 13), ("NNS", 14, 18)]


def test_tags_without_prefixes_beside_o_are_entities(tmp_path):
    notes = []
    (sentence,) = read(tmp_path / "a", "Anna person-actor\nSmith person-actor\nmet O\nBob person-actor\n", notes)
    assert sentence.tags == ("B-person-actor", "I-person-actor", "O", "B-person-actor")
    assert notes == [
        f"{tmp_path / 'a'}: tags have no prefixes such as B-: each run of equal tags other than O is read as one entity"
    ]


@pytest.mark.parametrize("outside", ["other", "NONE", "_", "0", "-"])
def test_what_may_mean_outside_of_entities_is_noted_if_most_words_have_it(tmp_path, outside):
    notes = []
    (sentence,) = read(tmp_path / "a", f"Anna PER\nmet {outside}\n. {outside}\n", notes)
    assert sentence.tags == ("PER", outside, outside)
    assert notes == [
        f"{tmp_path / 'a'}: 2 of 3 words have the tag '{outside}', which is learned and scored as each other tag: if "
        "such words are outside of entities, write O in its place"
    ]
    read(tmp_path / "b", f"Hallo lang1\nmy lang2\nfriend lang2\n! {outside}\n", notes)
    assert len(notes) == 1


@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE])
@given(st.lists(st.tuples(st.sampled_from(["He", '"', '""', 'a"b', "''"]), st.sampled_from(["O", "B-X"])), min_size=1))
def test_columns_that_are_quoted_as_csv_are_told(separator, quoting, rows):
    """As the csv module writes them; without quoting, quotation marks are words."""
    text, notes = io.StringIO(), []
    options = {"quotechar": None} if quoting == csv.QUOTE_NONE else {}
    csv.writer(text, delimiter=separator, quoting=quoting, **options).writerows([*rows, ("x", "O")])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.conll"
        if quoting == csv.QUOTE_ALL:
            with pytest.raises(UserError, match=r"' is not a tag .*; write the file without quotation marks around"):
                read(path, text.getvalue(), notes)
            return
        (sentence,) = read(path, text.getvalue(), notes)
    words = [word for word, _ in rows]
    marked = sum('"' in word for word in words)
    if quoting == csv.QUOTE_NONE:
        assert sentence.words == [*words, "x"]
        assert not notes
    else:
        found = [note.partition(" words are quoted as in CSV")[0] for note in notes]
        assert found == ([f"{path}: {marked}"] if marked else [])


@pytest.mark.parametrize(
    "tags",
    [
        *(["O", tag] for tag in ("o", "X-PER", "B", "b-PER", "B_PER", "-PER", "O-PER", "0")),
        ["B-PER", "PER"],
        ["NOUN", "i-PER"],
        ["o", "b-PER"],
        ["B-PER", "O", "LABEL_0"],
        *(["*", tag] for tag in ("(PER*", "(PER)", "*)", "*))", "(ARG0(PER*")),
        *(["N", f"{role}{separator}PER"] for role in "BIb" for separator in "_.:/|–—−‐~"),
        *(["N", tag] for tag in ("0.98", "1.0", ".5", '"N"')),
    ],
)
def test_misspelled_tags_are_refused_wherever_they_are(tmp_path, tags):
    for order in itertools.permutations(tags):
        wrong = next(tag for tag in tags[::-1] if tag != "O" and tag != "B-PER")
        line = order.index(wrong) + 1
        with pytest.raises(UserError, match=rf"a:{line}: '{re.escape(wrong)}' is not a tag such as O, B-PER"):
            read(tmp_path / "a", "".join(f"w {tag}\n" for tag in order))


@pytest.mark.parametrize(
    ("tags", "remedy"),
    [
        (["O", "B_PER"], "write B-PER; or is it the wrong column"),
        (["N", "i–PER"], "write I-PER; or is it the wrong column"),
        (["O", "E-MAIL", "PHONE"], "as 'E-MAIL' has a prefix, write B-PHONE and I-PHONE; or, if that is a whole name"),
        (["B-PER", "X"], "if it stands for a piece of a word, or a special token, give whole words alone"),
        (["[CLS]", "O", "B-PER", "X"], r"'\[CLS\]' is not a tag .* give whole words alone"),
        (["O", "PHONE", "E-MAIL"], "as 'E-MAIL' has a prefix, write B-PHONE and I-PHONE; or, if that is a whole name"),
        (["O", "0"], "is it the right column"),
    ],
)
def test_what_to_write_in_place_of_a_tag_is_said(tmp_path, tags, remedy):
    with pytest.raises(UserError, match=remedy):
        read(tmp_path / "a", "".join(f"w {tag}\n" for tag in tags))


@pytest.mark.parametrize("outside", ["-", "O"])
@pytest.mark.parametrize("hyphen", "-_.–")
def test_prefixes_at_the_end_are_refused(tmp_path, outside, hyphen):
    """They would be tags of words, or entities of two types."""
    lines = [f"w PER{hyphen}B", f"w PER{hyphen}I", f"w {outside}", "w LOC"]
    with pytest.raises(UserError, match="B and I at their end, as that of the beginning of 'PER'; write B-PER and"):
        read(tmp_path / "a", "\n".join(lines))
    assert read(tmp_path / "a", "\n".join([lines[0], *lines[2:]]))[0].tags[0].endswith(f"PER{hyphen}B")


def test_the_column_of_words_is_no_column_of_tags(tmp_path):
    words = "".join(f"w{number} NN\n" for number in range(300))
    with pytest.raises(UserError, match="300 different tags for 300 words; is it the right column"):
        read(tmp_path / "a", words, label="0")
    assert len(read(tmp_path / "a", words)[0].tags) == 300
