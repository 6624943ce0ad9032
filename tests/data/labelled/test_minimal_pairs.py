"""Reading of minimal pairs: order, limits, directories, and what is refused."""

import json
import zipfile

import pytest

from unmask.data.labelled.minimal_pairs import MinimalPair, read_pairs
from unmask.support.errors import UserError


def record(number, paradigm="agreement", field="morphology", **other):
    pair = {"sentence_good": f"good {number}", "sentence_bad": f"bad {number}", "UID": paradigm, "field": field}
    return {**pair, "pairID": str(number), **other}


def write(path, records):
    path.write_text("\n".join(json.dumps(each) for each in records) + "\n\n", encoding="utf8")
    return path


def test_pairs_are_read_in_order_with_their_places(tmp_path):
    path = write(tmp_path / "a.jsonl", [record(1), record(2, "island", "syntax")])
    assert read_pairs([path]) == [
        MinimalPair("good 1", "bad 1", "agreement", "morphology", str(path), 1),
        MinimalPair("good 2", "bad 2", "island", "syntax", str(path), 2),
    ]


def test_a_limit_holds_for_each_paradigm_over_all_files(tmp_path):
    write(tmp_path / "b.jsonl", [record(number, "ab"[number % 2]) for number in range(10)])
    write(tmp_path / "a.jsonl", [record(number, "a") for number in range(10, 12)])
    (tmp_path / "notes.txt").write_text("not read")
    pairs = read_pairs([tmp_path], limit=3)
    assert [pair.good for pair in pairs] == [f"good {number}" for number in (10, 11, 0, 1, 3, 5)]
    assert len(read_pairs([tmp_path])) == 12


def test_paradigms_and_fields_that_are_not_stated_are_named_as_the_file(tmp_path):
    pair = {"sentence_good": "good", "sentence_bad": "bad"}
    path = write(
        tmp_path / "order.v2.jsonl", [pair, {**pair, "UID": "subject"}, {**pair, "field": "syntax", "UID": "x"}]
    )
    names = [(pair.paradigm, pair.field) for pair in read_pairs([path])]
    assert names == [("order", "order"), ("subject", "order"), ("x", "syntax")]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record(1), {"sentence_good": "a"}], r"a\.jsonl:2: 'sentence_bad' is missing; lines must be \{.*UID"),
        ([record(1, sentence_bad=" ")], r"a\.jsonl:1: the sentence_bad is empty"),
        ([record(1, UID=3)], r"a\.jsonl:1: 'UID' is int, not str"),
        ([record(1), record(2, field="syntax")], r"a\.jsonl:2: the paradigm agreement is in the fields morphology and"),
        ([], r"a\.jsonl: there are no pairs of sentences"),
        ([[1]], r"a\.jsonl:1: not a JSON object"),
    ],
)
def test_what_is_no_pair_is_refused(tmp_path, records, message):
    with pytest.raises(UserError, match=message):
        read_pairs([write(tmp_path / "a.jsonl", records)])


def test_a_directory_without_pairs_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"there are no \.jsonl files"):
        read_pairs([tmp_path])


def test_blimp_is_read(shared, tmp_path):
    """67 paradigms of 1,000 pairs in four fields (Warstadt et al. 2020, section 3)."""
    with zipfile.ZipFile(shared / "data/probes/blimp.zip") as archive:
        members = [name for name in archive.namelist() if name.startswith("data/") and name.endswith(".jsonl")]
        archive.extractall(tmp_path, members)
    pairs = read_pairs([tmp_path / "data"])
    assert len(pairs) == 67_000
    assert len({pair.paradigm for pair in pairs}) == 67
    assert {pair.field for pair in pairs} == {"morphology", "semantics", "syntax", "syntax_semantics"}
    assert len(read_pairs([tmp_path / "data"], limit=7)) == 7 * 67
