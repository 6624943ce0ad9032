"""The page contains all records, loads nothing, and writes what one has chosen."""

import base64
import hashlib
import json
import re

import pytest

from unmask.tasks import TASKS
from unmask.workflows.auditing.corrections import audit_page
from unmask.workflows.auditing.suspects import Audited, Ranking

HOSTILE = "</script><script>alert(1)</script><b>&amp;"
RECORDS = [
    {
        "text": "one",
        "label": "b",
        "given": "b",
        "suggested": "a",
        "probability": 0.1,
        "rank": 1,
        "source": "x:1",
        "equal_to": None,
    },
    {
        "text": HOSTILE,
        "label": "a",
        "given": "a",
        "suggested": None,
        "probability": None,
        "rank": 2,
        "source": "x:2",
        "equal_to": "x:3",
    },
    {
        "text": "three",
        "label": "b",
        "given": "b",
        "suggested": None,
        "probability": 0.9,
        "rank": 3,
        "source": "x:3",
        "equal_to": None,
    },
]


def page_of(kind, labels, records, name="fixed.jsonl"):
    """Return a page, of whose records those are suspects that have a suggestion or an equal text."""
    audited = [
        Audited((), (), record["probability"], () if record["suggested"] is None else (0,), record["equal_to"] and 0)
        for record in records
    ]
    return audit_page(kind, Ranking(labels, audited, 0.25, 0.9, {}), records, name)


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page; what it writes is returned by `saved`. Nothing is refused by its policy."""

    def open_page(*arguments):
        (tmp_path / "page.html").write_text(page_of(*arguments), encoding="utf8")
        chromium.get((tmp_path / "page.html").as_uri())
        return chromium

    yield open_page
    chromium.execute_script("window.onbeforeunload = null")
    chromium.get("about:blank")
    assert chromium.get_log("browser") == []


def saved(browser, path):
    """Return the file that the page writes, as a path."""
    path.write_text(browser.execute_script("return lines()"), encoding="utf8")
    return path


def click(browser, article, start):
    """Click the button of an article whose text begins so."""
    buttons = browser.find_elements("css selector", f"article:nth-of-type({article}) button")
    next(button for button in buttons if button.text.startswith(start)).click()


def test_the_page_contains_everything_and_loads_nothing():
    page = page_of("classification", ("a", "b"), RECORDS)
    assert "2 examples of 3. The classifier agrees with 90.0 % of all labels; the estimated share of wrong" in page
    assert not re.search(r"(src|href)=|https?://|url\(", page)
    script = re.search(r"</script>\n<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    records = [
        {**json.loads(line), "label": record["given"]} for line, record in zip(data["records"], RECORDS, strict=True)
    ]
    assert records == RECORDS
    assert data["suspects"] == 2
    assert page.count("</script>") == 2


def test_a_label_is_chosen_by_a_click(opened, tmp_path):
    browser = opened("classification", ("a", "b"), RECORDS)
    assert [text.text for text in browser.find_elements("css selector", ".text")] == ["one", HOSTILE]
    assert browser.find_element("css selector", "#count").text == "0 of 2 looked at, 0 corrected"
    click(browser, 1, "a")
    click(browser, 2, "a")
    assert browser.find_element("css selector", "#count").text == "2 of 2 looked at, 1 corrected"
    pressed = browser.find_elements("css selector", "[aria-pressed=true]")
    assert [button.text.split()[0] for button in pressed] == ["a", "a"]
    rows = TASKS["classification"]().read([saved(browser, tmp_path / "fixed.jsonl")], columns={})
    assert [row.values["label"] for row in rows] == ["a", "a", "b"]
    assert rows[1].values["text"] == HOSTILE
    browser.find_element("css selector", "#save").click()


def test_other_columns_are_saved_as_they_are(opened, tmp_path):
    others = {"id": 1234567890123456789, "1": 1.0, "of": {"b": [2**64 - 1, None], "a": "}"}, "label:": "x"}
    records = [{**record, **others} for record in RECORDS]
    browser = opened("classification", ("a", "b"), records)
    click(browser, 1, "a")
    lines = saved(browser, tmp_path / "fixed.jsonl").read_text(encoding="utf8").splitlines()
    assert [json.loads(line) for line in lines] == [{**records[0], "label": "a"}, *records[1:]]
    assert all('"1":1.0' in line for line in lines), "JavaScript would write 1"


def test_other_columns_may_have_any_name(opened, tmp_path):
    """A column `words` hid the text, and a column `note` the probability."""
    others = dict.fromkeys(("words", "note", "open", "row", "turn", "file"), 7)
    browser = opened("classification", ("a", "b"), [{**record, **others} for record in RECORDS])
    assert [text.text for text in browser.find_elements("css selector", ".text")] == ["one", HOSTILE]
    assert "probability 0.100" in browser.find_element("css selector", "article .top").text
    (first, *_) = saved(browser, tmp_path / "fixed.jsonl").read_text(encoding="utf8").splitlines()
    assert json.loads(first) == {**RECORDS[0], **others}


def test_of_many_labels_the_others_are_in_a_menu(opened, tmp_path):
    labels = tuple(f"label {number}" for number in range(30))
    record = RECORDS[0] | {"label": labels[3], "given": labels[3], "suggested": labels[7]}
    browser = opened("classification", labels, [record, RECORDS[2] | {"label": labels[1], "given": labels[1]}])
    buttons = browser.find_elements("css selector", "article button")
    assert [button.text for button in buttons] == ["label 3 given", "label 7 suggested"]
    browser.find_element("css selector", "option[value='label 20']").click()
    rows = TASKS["classification"]().read([saved(browser, tmp_path / "fixed.jsonl")], columns={})
    assert [row.values["label"] for row in rows] == ["label 20", "label 1"]


def test_several_labels_are_switched(opened, tmp_path):
    record = RECORDS[0] | {"label": ["b"], "given": ["b"], "suggested": ["a"]}
    browser = opened("multi-label", ("a", "b", "c"), [record, RECORDS[2] | {"label": ["c"], "given": ["c"]}])
    texts = [button.text for button in browser.find_elements("css selector", "article button")]
    assert texts == ["a suggested: add", "b suggested: remove", "c", "confirm"]
    click(browser, 1, "a")
    click(browser, 1, "b")
    rows = TASKS["multi-label"]().read([saved(browser, tmp_path / "fixed.jsonl")], columns={})
    assert [row.labels for row in rows] == [("a",), ("c",)]
    click(browser, 1, "confirm")
    assert browser.find_element("css selector", "#count").text == "1 of 1 looked at, 1 corrected"


def test_tags_of_words(opened, tmp_path):
    tags = {"tags": ["B-PER", "O", "O"], "given": ["B-PER", "O", "O"], "suggested": ["B-LOC", "O", "O"]}
    record = {
        "words": ["Paris", "is", "Rome"],
        **tags,
        "probability": 0.1,
        "rank": 1,
        "source": "x:1",
        "equal_to": None,
    }
    browser = opened("token-classification", ("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), [record])
    click(browser, 1, "B-LOC")
    click(browser, 1, "Rome")  # its choices appear
    browser.find_elements("css selector", "option[value='B-LOC']")[-1].click()
    (sentence,) = TASKS["token-classification"]().read([saved(browser, tmp_path / "fixed.jsonl")], columns={})
    assert sentence.tags == ("B-LOC", "O", "B-LOC")


@pytest.mark.parametrize("width", [1200, 390])
def test_it_fits_the_screen(opened, width):
    browser = opened("classification", ("a", "b"), [RECORDS[0] | {"text": "long" * 200}, RECORDS[2]])
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
