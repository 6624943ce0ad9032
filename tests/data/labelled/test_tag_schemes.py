"""Tests of tagging schemes: tags round-trip, and the scheme of a file is detected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.tagged_sentence import detect_scheme, write_tags
from unmask.metrics.token_classification import Chunk, chunks


@st.composite
def entities(draw, least=0):
    """Entities in order, some side by side, and the number of words."""
    found, place = [], 0
    for _ in range(draw(st.integers(least, 6))):
        start = place + draw(st.integers(0, 2))
        place = start + draw(st.integers(1, 4))
        found.append(Chunk(draw(st.sampled_from(["X", "Y", "A-B"])), start, place))
    return found, place + draw(st.integers(0, 2))


@given(entities(), st.sampled_from(["IOB1", "IOB2", "BIOES"]))
def test_round_trip(made, scheme):
    found, number = made
    tags = write_tags(found, number, scheme)
    assert len(tags) == number
    assert chunks(tags) == found
    assert write_tags(chunks(tags), number, scheme) == tags


@given(st.lists(entities(least=1), min_size=1, max_size=4), st.sampled_from(["IOB1", "IOB2", "BIOES"]))
def test_what_a_scheme_writes_is_regular(sentences, scheme):
    tags = [write_tags(found, number, scheme) for found, number in sentences]
    detected, irregular = detect_scheme(tags)
    assert sum(irregular) == 0
    assert [write_tags(chunks(one), len(one), detected) for one in tags] == tags


@pytest.mark.parametrize(
    ("sentences", "scheme", "irregular"),
    [
        (["I-X I-X O", "I-X B-X"], "IOB1", [0, 0]),
        (["B-X I-X O", "B-X B-X"], "IOB2", [0, 0]),
        (["B-X I-X E-X S-Y"], "BIOES", [0]),
        (["B-X M-X E-X S-Y"], "BIOES", [0]),
        (["B-X M-X E-X W-Y"], "BIOES", [0]),
        (["B-X I-X L-X U-Y"], "BIOES", [0]),
        (["B-X I-X O", "O I-X O", "B-X I-Y"], "IOB2", [0, 1, 1]),
        (["I-X O", "I-X O", "O B-X"], "IOB1", [0, 0, 1]),
        (["B-X E-X", "B-X I-X O", "I-X E-X", "E-X S-X"], "BIOES", [0, 1, 1, 1]),
        (["O O"], "IOB2", [0]),
    ],
)
def test_schemes_are_detected_and_violations_are_counted(sentences, scheme, irregular):
    assert detect_scheme([one.split() for one in sentences]) == (scheme, irregular)
