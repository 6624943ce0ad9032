"""Tests of C4's and FineWeb's rules."""

import pytest

from unmask.data.cleaning.published import C4, FineWeb
from unmask.data.cleaning.rule import Document
from unmask.support.errors import UserError


def test_c4_keeps_lines_that_are_sentences(verdict, prose):
    text = prose(0)
    noise = {
        "line without terminal punctuation": "Home and About and Contact",
        "line of few words": "Yes.",
        "line with a long word": f"This is a {'x' * 1001} word.",
        "line about JavaScript": "Please turn on JavaScript in your browser.",
        "line about policies": "By using it you accept our Privacy Policy here.",
    }
    result = C4().build()(Document("\n\n".join([*noise.values(), text, "An ellipsis is no end..."])))
    assert result.document.text == text
    assert result.changes == dict.fromkeys(noise, 1) | {"line without terminal punctuation": 2}
    assert verdict(C4(needs_terminal=False), f"Home and About and Contact\n\n{text}")[1].startswith("Home")
    assert verdict(C4(), f"{text}\n\nA fact.[12] Another fact.[citation needed]")[1].endswith("A fact. Another fact.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{} and Lorem Ipsum dolor sit amet.", "lorem ipsum"),
        ("function() { return 1; }", "curly bracket"),
        ("One sentence is here. Two sentences are here. Three are here. Four are here.", "few sentences"),
        ("One sentence is here. Two sentences are here. Three are here. Four are here. Five are here.", ""),
        ("No end and no end and no end\n\nNo end at all here", "few sentences"),
        ("猫坐在垫子上。狗看着它。它跑开了。天黑了。灯亮了。", ""),
    ],
)
def test_c4_drops_documents(verdict, text, reason):
    assert verdict(C4(), text)[0] == reason


@pytest.mark.parametrize(
    ("text", "is_bad"),
    [
        *(("这是坏词的故事", True), ("这是坏的词", False), ("买spam吧", True), ("买spams吧", False), ("ปลากา", True)),
        *(("वह कम है", True), ("वह कमी है", False), ("le CAFE\u0301 noir", True), ("les cafés", False), ("cafe", False)),
    ],
)
def test_bad_words_are_words_in_every_script(verdict, tmp_path, text, is_bad):
    path = tmp_path / "words.txt"
    path.write_text("坏词\nspam\nकम\ncafé\nกา\n")
    rule = C4(bad_words=str(path), min_sentences=1, needs_terminal=False, min_words=1)
    assert (verdict(rule, text)[0] == "bad word") == is_bad


def test_c4_drops_documents_with_bad_words(verdict, prose, tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Darn\nbad word\n", encoding="utf-8-sig")  # as editors on Windows write it
    rule = C4(bad_words=str(path))
    assert verdict(rule, prose(0))[0] == ""
    assert verdict(rule, f"{prose(0)}\n\nThat is a bad word, they said.")[0] == "bad word"
    assert verdict(rule, f"{prose(0)}\n\nThe darn thing was mended.")[0] == "bad word"
    assert verdict(rule, f"{prose(0)}\n\nThe darned thing was mended.")[0] == ""
    for content, problem in (("", "has no words"), (None, "cannot be read")):
        path.unlink() if content is None else path.write_text(content)
        with pytest.raises(UserError, match=problem):
            rule.build()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text, ""),
        (lambda text: text.replace(".", ""), "lines without terminal punctuation"),
        (
            lambda text: "\n\n".join(
                f"{line}\n\nA {n}.\n\nB {n}.\n\nC {n}." for n, line in enumerate(text.split("\n\n"))
            ),
            "short lines",
        ),
        (lambda text: text + "\n\n" + text.split("\n\n")[0], "characters in repeated lines"),
        (
            lambda text: "\n\n".join(f"{number} is a number but.".replace(" ", "_" * 8) for number in range(30)),
            "line breaks",
        ),
    ],
)
def test_fineweb(verdict, prose, change, reason):
    assert verdict(FineWeb(), change(prose(0)))[0] == reason
