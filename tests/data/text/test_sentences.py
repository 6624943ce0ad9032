"""Tests of sentence segmentation: English and Chinese sentences are found, no text is lost, and the time is linear."""

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.text import sentences
from unmask.data.text.sentences import cut_sentences, split_sentences

GOLD = Path(__file__).parents[2] / "files" / "sentences"

ANY = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from("\n\r\t .。！？!?…\"“”「」'()Aa1\u3000\x85\u2028")
    | st.sampled_from("ก ข ລ ក។៕ ཀ། ༎")
)


@pytest.mark.parametrize(("language", "joint", "floor"), [("english", " ", 0.97), ("chinese", "", 0.95)])
def test_gold_sentences_are_found(language, joint, floor):
    right = found = expected = 0
    for paragraph in (GOLD / f"{language}.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        gold = paragraph.split("\n")
        ends = [
            set(accumulate(len("".join(sentence.split())) for sentence in cut[:-1]))
            for cut in (gold, split_sentences(joint.join(gold)))
        ]
        right += len(ends[0] & ends[1])
        expected += len(ends[0])
        found += len(ends[1])
    assert 2 * right / (expected + found) > floor


def test_languages_mix():
    text = "Dr. Wu said hello. 他说：你好。然后走了！ Then he left... at 3 p.m. sharp."
    assert split_sentences(text) == [
        "Dr. Wu said hello.",
        "他说：你好。",
        "然后走了！",
        "Then he left... at 3 p.m. sharp.",
    ]


def test_marks_of_khmer_and_tibetan_end_a_sentence():
    assert split_sentences("ភាសាខ្មែរ។ កម្ពុជា។ខ្ញុំ៕ មួយ") == ["ភាសាខ្មែរ។", "កម្ពុជា។", "ខ្ញុំ៕", "មួយ"]
    text = "བོད་ཡིག་ནི། བོད་ཀྱི།། ཡིན་ནོ། །ཡི་གེ"
    assert split_sentences(text) == ["བོད་ཡིག་ནི།", "བོད་ཀྱི།།", "ཡིན་ནོ། །", "ཡི་གེ"]


def test_clauses_of_thai_and_lao_are_sentences_if_they_are_long_enough():
    short, long = "ภาษาไทย", "ฉันรักประเทศไทยมากที่สุดในโลกนี้และที่อื่น"
    assert split_sentences(f"{short} {long} {long} 500 {short}") == [f"{short} {long}", f"{long} 500 {short}"]
    assert split_sentences("ພາສາລາວ " * 12) == [("ພາສາລາວ " * 5).strip()] * 2 + ["ພາສາລາວ ພາສາລາວ"]


def test_white_space_before_a_sentence_is_reported():
    assert cut_sentences("你好。再見。 Then he left.\n\nThe end.") == [
        ("你好。", False),
        ("再見。", False),
        ("Then he left.", True),
        ("The end.", True),
    ]


def test_paragraphs_always_end_a_sentence():
    assert split_sentences("A title\n\nno stop here\n \nthe end") == ["A title", "no stop here", "the end"]
    assert split_sentences(" \n\n ") == []


@given(text=ANY, window=st.integers(2, 40))
def test_every_character_is_in_one_sentence(text, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "_WINDOW", window)
        found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


def test_windows_do_not_change_the_sentences(monkeypatch):
    text = "Dr. Wu said hello. Did he? He did! " * 200
    monkeypatch.setattr(sentences, "_WINDOW", 100)
    windowed = split_sentences(text)
    assert windowed == ["Dr. Wu said hello.", "Did he?", "He did!"] * 200


@pytest.mark.parametrize(
    "text",
    [
        "你好。" * 100_000,
        "“yes. " * 100_000,
        "你" * 300_000,
        "word " * 100_000,
        "(" * 300_000,
        "།" * 300_000,
        "ก " * 100_000,
    ],
)
def test_long_paragraphs_take_linear_time(text, monkeypatch):
    """sentencex, whose time grows with the square of a text's length, gets no more than a window at a time."""
    segment, given = sentences.segment, []
    monkeypatch.setattr(sentences, "segment", lambda language, part: given.append(len(part)) or segment(language, part))
    found = split_sentences(text)
    assert max(given) <= 4_000
    assert sum(given) <= 2 * len(text)
    assert max(map(len, found)) <= 4_000
