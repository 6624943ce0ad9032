"""The page of mistakes is one harmless file in which every text is reproduced exactly."""

import re
from html.parser import HTMLParser

import pytest

from unmask.inference.evaluation.errors_page import PROBABILITIES, WORST, errors_page
from unmask.tasks.mistakes import Mark, Mistake, Passage

ATTACK = "<script>alert('x')</script> & \"<b>\" </div><img src=x onerror=y>"
VOID = {"meta"}
TAGS = set("html head meta title style body header h1 p mark main article div span bdi h2 sup table tr td i".split())  # noqa: SIM905


class Page(HTMLParser):
    """Parser that collects texts and tags of a page and fails if tags do not nest."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.passages, self.words = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append((tag, dict(attributes)))
        if dict(attributes).get("class") == "text":
            self.passages.append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if any(attributes.get("class") == "text" for _, attributes in self.open) and self.open[-1][0] != "sup":
            self.passages[-1] += data
        self.words.append(data)


def mistake(*passages, score=1.0, **more):
    passages = tuple(Passage(it) if isinstance(it, str) else it for it in passages)
    return Mistake(passages, more.pop("caption", "a.tsv:2"), score, "probability", **more)


def test_all_input_is_escaped():
    marked = Passage(ATTACK, ATTACK, (Mark(3, 9, ATTACK),), (Mark(0, 20, ATTACK),))
    made = mistake(marked, caption=ATTACK, gold=ATTACK, predicted=ATTACK, probabilities={ATTACK: 0.9, "b": 0.1})
    text = errors_page(ATTACK, [ATTACK], [made])
    page = Page(text)
    assert page.passages == [ATTACK]
    assert {tag for tag, _ in page.tags} <= TAGS
    assert not any(
        name.startswith("on") or name in ("src", "href") for _, attributes in page.tags for name in attributes
    )
    assert "<script" not in text
    assert text.count("default-src 'none'") == 1
    assert page.words.count(ATTACK) >= 6, (
        "and is readable as title, line, caption, name, labels, words and probabilities"
    )


def test_nothing_is_fetched():
    text = errors_page("t", [], [mistake("x")])
    assert not re.search(r"https?:|url\(|@import|<link|<script|<img", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one\ntwo\n\n  three",
        "北京大学创办于1898年。",
        "ذهب أحمد إلى القاهرة",
        "\u202eright to left",
        "👩\u200d👧 é",
    ],
)
def test_texts_stay_as_they_are_in_their_own_direction(text):
    page = Page(errors_page("t", [], [mistake(text)]))
    assert page.passages == [text]
    assert [attributes["dir"] for tag, attributes in page.tags if attributes.get("class") == "text"] == ["auto"]
    assert "white-space: pre-wrap" in errors_page("t", [], [])


def marks_of(passage):
    """Return (classes, text) of each marked part of the page."""
    body = errors_page("t", [], [mistake(passage)]).split("<main>")[1]
    return re.findall(r'<mark class="([a-z ]+)">(.*?)</mark>', body)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([(0, 5)], [(0, 5)], [("gold predicted", "abcde")]),
        ([(0, 5)], [], [("gold", "abcde")]),
        ([], [(2, 4)], [("predicted", "cd")]),
        ([(0, 3)], [(2, 5)], [("gold", "ab"), ("gold predicted", "c"), ("predicted", "de")]),
        ([(1, 2), (6, 8)], [(6, 8)], [("gold", "b"), ("gold predicted", "gh")]),
        ([(0, 10)], [(3, 4)], [("gold", "abc"), ("gold predicted", "d"), ("gold", "efghij")]),
        ([(4, 4)], [], []),
    ],
)
def test_marks_may_overlap(gold, predicted, expected):
    passage = Passage("abcdefghij", "", tuple(Mark(*it) for it in gold), tuple(Mark(*it) for it in predicted))
    assert marks_of(passage) == expected
    page = Page(errors_page("t", [], [mistake(passage)]))
    assert page.passages == ["abcdefghij"]
    assert "Marks: " in page.words


def test_labels_precede_their_marks_once():
    passage = Passage("New York Times", "", (Mark(0, 14, "ORG"),), (Mark(0, 8, "LOC"), Mark(9, 14, "ORG")))
    body = errors_page("t", [], [mistake(passage)]).split("<main>")[1]
    found = re.findall(r'<sup class="(\w+)">(\w+)</sup>(?=<sup|<mark class="[a-z ]+">(\w+))', body)
    assert found == [("gold", "ORG", ""), ("predicted", "LOC", "New"), ("predicted", "ORG", "Times")]


def test_the_order_is_kept_and_the_number_is_shown():
    page = Page(errors_page("t", ["7 examples"], [mistake(f"text {n}") for n in range(WORST + 5)]))
    assert page.passages == [f"text {n}" for n in range(WORST)]
    assert f"The {WORST} worst of {WORST + 5} mistakes:" in page.words
    assert "There are no mistakes." in Page(errors_page("t", [], [])).words
    assert not any(words.startswith("Marks") for words in page.words)


def test_the_gold_label_is_among_the_probabilities_however_small():
    probabilities = {f"label {n}": (30 - n) / 500 for n in range(30)}
    page = Page(errors_page("t", [], [mistake("x", gold="label 29", predicted="label 0", probabilities=probabilities)]))
    shown = [words for words in page.words if words in probabilities and page.words.count(words)]
    assert shown == ["label 29", "label 0", *(f"label {n}" for n in range(PROBABILITIES)), "label 29"]
    assert "and 24 others" in page.words
