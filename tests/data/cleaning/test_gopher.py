"""Tests of Gopher's rules, beside plain implementations of the tables in the paper."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.cleaning.published import GopherQuality, GopherRepetition

TOP = {2: 0.2, 3: 0.18, 4: 0.16}
REPEATED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}


def plain_repetition(text):
    """Table A1 of Rae et al. 2021, with the ties of datatrove: n-grams of strings, in loops."""
    lines, words = text.split("\n\n"), text.split()
    repeated = [line for number, line in enumerate(lines) if line in lines[:number]]
    if len(repeated) / len(lines) > 0.3:
        return "repeated lines"
    if sum(map(len, repeated)) / len(text) > 0.2:
        return "characters in repeated lines"
    for n, limit in TOP.items():
        ngrams = Counter(" ".join(words[at : at + n]) for at in range(len(words) - n + 1))
        if ngrams and len(ngrams.most_common(1)[0][0]) * ngrams.most_common(1)[0][1] / len(text) > limit:
            return f"most frequent {n}-gram"
    for n, limit in REPEATED.items():
        seen, characters, at = set(), 0, 0
        while at < len(words) - n + 1:
            ngram = tuple(words[at : at + n])
            characters += sum(map(len, ngram)) if ngram in seen else 0
            at += n if ngram in seen else 1
            seen.add(ngram)
        if characters / len(text) > limit:
            return f"repeated {n}-grams"
    return ""


@st.composite
def repetitive(draw):
    """Text of parts, some of which occur again: short and long ones, and whole lines."""
    numbers = iter(range(10_000))
    parts = [[f"w{next(numbers)}" for _ in range(draw(st.integers(1, 14)))] for _ in range(draw(st.integers(1, 12)))]
    chosen = draw(st.lists(st.sampled_from(parts), min_size=len(parts) // 2, max_size=10)) + parts
    order = draw(st.permutations(chosen))
    breaks = draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    return "".join(" ".join(part) + ("\n\n" if end else " ") for part, end in zip(order, breaks, strict=True)).strip()


@settings(max_examples=100, deadline=None)
@given(repetitive())
def test_repetition_is_that_of_the_table(verdict, text):
    assert verdict(GopherRepetition(), text)[0] == plain_repetition(text)


def test_each_threshold_of_repetition_is_reached(verdict, prose):
    fresh = " ".join(f"w{number}" for number in range(400))
    assert verdict(GopherRepetition(), fresh)[0] == ""
    for n in range(5, 11):
        copied = " ".join(f"w{number}" for number in range(n))
        text = " ".join(f"{copied} {' '.join(f'v{n}x{at}x{k}' for k in range(8))}" for at in range(12))
        only = GopherRepetition(max_top=(), max_repeated=((n, 0.1),))
        assert verdict(only, text)[0] == f"repeated {n}-grams"
        assert verdict(GopherRepetition(max_top=(), max_repeated=((n + 9, 0.1),)), text)[0] == ""
    assert verdict(GopherRepetition(), "\n\n".join([prose(0)] * 2))[0] == "repeated lines"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:150], "few words"),
        (lambda text: text * 1200, "many words"),
        (lambda text: text.replace(" ", "abcdefghij "), "long words"),
        (lambda text: " ".join("a" for _ in text.split()), "short words"),
        (lambda text: text.replace(" ", " # ", 40), "hash signs"),
        (lambda text: text.replace(" ", "... ", 40), "ellipses"),
        (lambda text: "\n\n".join("- " + line for line in text.split("\n\n")), "bullet points"),
        (lambda text: "\n\n".join(line[:-1] + "…" for line in text.split("\n\n")), "lines that end with ellipses"),
        (lambda text: text + " 12345" * 60, "words without letters"),
        (lambda text: " ".join(f"katze{number % 7}" for number in range(80)), "no stop words"),
        (lambda text: text, ""),
    ],
)
def test_quality(verdict, prose, change, reason):
    assert verdict(GopherQuality(), change(prose(1)))[0] == reason


def test_bounds_of_quality_are_inclusive(verdict):
    text = " ".join(["the", "of", *("word" for _ in range(48))])
    assert verdict(GopherQuality(), text)[0] == ""
    assert verdict(GopherQuality(min_words=51), text)[0] == "few words"
    assert verdict(GopherQuality(max_words=49), text)[0] == "many words"
    assert verdict(GopherQuality(min_alphabetic=1), text)[0] == ""


def test_text_without_spaces_is_judged_by_characters(verdict):
    text = "猫坐在垫子上，狗看着它。" * 8
    assert verdict(GopherQuality(), text)[0] == ""
    assert verdict(GopherQuality(), text[:40])[0] == "few words"
    assert verdict(GopherRepetition(), text)[0] != ""


@pytest.mark.parametrize(("times", "reason"), [(12, ""), (17, "most frequent 4-gram")])
def test_ngrams_of_text_without_spaces_have_none(verdict, times, reason):
    fresh = iter(map(chr, range(0x5000, 0x6000)))
    text = "".join("甲乙丙丁" + "".join(next(fresh) for _ in range(400 // times - 4)) for _ in range(times))
    rule = GopherRepetition(max_top=((4, 0.16),), max_repeated=())
    assert (4 * times / len(text) > 0.16) == bool(reason)
    assert verdict(rule, text)[0] == reason
