"""The views Audit and Suggest in headless Chromium: files are read, labels chosen by clicks and keys, files saved."""

import csv
import io
import json
import random
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.serving.browser import TEXT, UNLABELED, served
from unmask.data.labelled.labelled_file import read_rows
from unmask.inference.selection import balanced_order
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.serving.types import Limits
from unmask.workflows.suggest import uncertainty

WORDS = ["the", "dog", "cat", "sees", "a", "near", "sea", "poem", "red", "house", "of", "and", "to", "in"]
PIECES = ["dog", "Ωmega", "🐕", "مرحبا", "a b", "it's", "{x}", "[1]", ":", "\\n", "e\u0301", "0012", "1e5"]
MORE = ".ranked + p button"
READ = """
const [files] = arguments;
return import("/playground/table.js").then(({ readTable }) => Promise.all(files.map(
  async ([name, text, labels]) => {
    const table = await readTable(new File([text], name));
    const changed = new Map(Object.entries(labels).map(([index, label]) => [table.rows[index], label]));
    const values = table.rows.map((row) => table.names.map((name) => row.cells.get(name)?.value ?? null));
    const lines = table.rows.map(({ line }) => line);
    return { names: table.names, values, lines, content: table.content(changed, table.rows) };
  })));
"""


def read_tables(page, files):
    """Return the tables in files, (name, content, new labels by row) each, and the content with the new labels."""
    return page.driver.execute_script(READ, files)


def choose_file(page, view, path, **columns):
    """Open a view, choose a file and columns, and submit the form."""
    page.open(f"#{view}")
    page.one("#file").send_keys(str(path))
    page.wait(lambda: page.all("#choice-texts") or page.all("[role=alert]"))
    for name, value in columns.items():
        element = "#model" if name == "model" else f"#choice-{name}"
        Select(page.one(element)).select_by_visible_text(value)
        page.wait(lambda: page.one("#choice-texts").is_displayed())
    if not page.all("[role=alert]"):
        page.one("form button.primary").click()
        page.wait(lambda: page.all("article, [role=alert]"), seconds=60)


def write(path, content):
    path.write_bytes(content.encode())
    return path


@pytest.fixture
def saved(page, tmp_path):
    """Return a function that saves the file of the view, and returns its content."""
    folder = tmp_path / "downloads"
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def save(name):
        page.one(".saving button").click()
        page.wait(lambda: (folder / name).exists() and (folder / name).stat().st_size)  # begun as an empty file
        return (folder / name).read_bytes().decode()

    return save


def generated(kind, rng):
    """Return the content of a file, its names and values, and the same with some labels changed."""
    names = ["id", "text", "label", "note, too" if kind == "csv" else "note"]
    rng.shuffle(names)
    breaks = {"csv": ['"', ",", "\n", '""', "\r\n", ";"], "tsv": ['"', ",", ";"], "jsonl": ['"', "\n", "\t", "\u2028"]}[
        kind
    ]

    def cell(name):
        if name == "label":
            return rng.choice(["good", "bad", "so-so", 'a "b"'])
        text = " ".join(rng.choices([*PIECES, *breaks], k=rng.randint(1, 6)))
        return f"x{text}x" if name == "text" else text

    rows = [[cell(name) for name in names] for _ in range(rng.randint(1, 8))]
    new = {
        index: rng.choice(["good", "other label", 'quoted "x"', "with, comma"])
        for index in rng.sample(range(len(rows)), len(rows) // 2)
    }
    at = names.index("label")
    changed = [
        [new.get(index, value) if column == at else value for column, value in enumerate(row)]
        for index, row in enumerate(rows)
    ]
    return names, rows, new, changed


def as_file(kind, names, rows, rng):
    """Return the content of a file, with what people's files differ in."""
    end = rng.choice(["\n", "\r\n"])
    if kind == "jsonl":
        indent = rng.choice([(",", ":"), (", ", ": ")])
        lines = [
            json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=rng.random() < 0.5, separators=indent)
            for row in rows
        ]
        return end.join(lines) + rng.choice(["", end])
    if kind == "tsv":
        return end.join("\t".join(row) for row in [names, *rows]) + rng.choice(["", end])
    stream = io.StringIO()
    options = {
        "quoting": rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        "lineterminator": end,
        "delimiter": rng.choice(",;|"),
    }
    csv.writer(stream, **options).writerows([names, *rows])
    return rng.choice(["", "\ufeff"]) + stream.getvalue()


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_files_are_read_as_unmask_reads_them_and_only_labels_change(page, tmp_path, kind):
    page.open("#audit")
    rng = random.Random(kind)
    cases = [generated(kind, rng) for _ in range(60)]
    contents = [as_file(kind, names, rows, rng) for names, rows, _, _ in cases]
    name = f"x.{kind}"
    tables = read_tables(page, [(name, content, new) for content, (_, _, new, _) in zip(contents, cases, strict=True)])
    unchanged = read_tables(page, [(name, content, {}) for content in contents])
    again = read_tables(page, [(name, table["content"], {}) for table in tables])
    for (names, rows, _, changed), content, table, same, corrected in zip(
        cases, contents, tables, unchanged, again, strict=True
    ):
        assert table["names"] == names and table["values"] == rows, content
        assert same["content"].rstrip("\r\n") == content.rstrip("\r\n")
        assert corrected["values"] == changed
        text, label = names.index("text"), names.index("label")
        for written, expected in ((content, rows), (table["content"], changed)):
            read = read_rows([write(tmp_path / name, written)], columns={"text": "text", "label": "label"})
            assert [row.values for row in read] == [{"text": row[text], "label": row[label]} for row in expected]
            assert [row.line for row in read] == table["lines"]


def test_json_that_javascript_cannot_represent_stays(page):
    line = '{"id": 12345678901234567890, "2": 1.0, "1": {"label": "x", "a": [1, {"b": "}"}]}, "text": "a", "label": 1}'
    page.open("#audit")
    (table,) = read_tables(page, [("x.jsonl", f"{line}\n\n{line}\n", {1: "0"})])
    changed = line.replace('"label": 1}', '"label": 0}')
    assert table["content"] == f"{line}\n\n{changed}\n"
    assert table["lines"] == [1, 3]


def texts_of(rng, count):
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) + f" {index}" for index in range(count)]


def test_labels_are_ranked_by_the_model(page, predictors, tmp_path):
    rng = random.Random(1)
    texts = [*texts_of(rng, 60), "the dog sees", "The dog sees!"]
    labels = [rng.choice(["good", "bad"]) for _ in texts[:60]] + ["good", "bad"]
    labels[7] = "spam"
    path = write(tmp_path / "a.csv", "label,text\n" + "".join(f"{a},{b}\n" for a, b in zip(labels, texts, strict=True)))
    choose_file(page, "audit", path)
    predictions = predictors["classifier"].predict(texts)
    wrong = [p.label != label for p, label in zip(predictions, labels, strict=True)]
    own = [p.scores.get(label, 2) for p, label in zip(predictions, labels, strict=True)]
    order = sorted((n for n in range(60) if n != 7), key=lambda n: (not wrong[n], own[n]))
    expected = [f"{rank}. line {n + 2}" for rank, n in enumerate([60, 61, 7, *order][:25], start=1)]
    assert [text.split(",")[0] for text in page.texts(".top span:first-child")] == expected
    assert page.texts(".top span:last-child")[3:] == [f"probability {own[n]:.3f}" for n in order[:22]]
    number = sum(wrong) - 1
    assert page.one(".headline").text == f"The model predicts another label for {number} of 62 rows"
    notes = "\n".join(page.texts(".notes li"))
    assert (
        "“spam” (1)" in notes
        and "2 rows have an equal text" in notes
        and "If it was trained on these examples" in notes
    )
    page.one(MORE).click()
    assert len(page.all("article")) == 50
    assert page.script("return document.querySelector('.saving').getBoundingClientRect().top") == 0, "it stays in view"
    assert page.script("return document.activeElement.closest('article').ariaLabel") == "Example 26"


@pytest.mark.parametrize("model", ["classifier", "several"])
def test_texts_are_suggested_by_uncertainty(page, predictors, tmp_path, model):
    texts = texts_of(random.Random(2), 60)
    choose_file(page, "suggest", write(tmp_path / "a.txt", "\n".join([*texts, texts[3].upper(), ""])), model=model)
    doubts = [uncertainty(one, predictors[model].task) for one in predictors[model].predict(texts)]
    scores, groups = (
        np.array([score for score, _ in doubts]),
        np.unique([group for _, group in doubts], return_inverse=True)[1],
    )
    while page.one(MORE).is_displayed():
        page.one(MORE).click()
    shown = page.texts(".text")
    assert sorted(shown) == sorted(texts)
    indices = [texts.index(text) for text in shown]
    assert page.texts(".top span:last-child") == [f"uncertainty {scores[index]:.3f}" for index in indices]
    assert np.abs(scores[indices] - scores[balanced_order(scores, groups)]).max() < 1e-5, (
        "ties aside, the order is the same"
    )
    assert "1 text equal to one before" in page.one(".notes").text


def test_labels_are_corrected_by_clicks_and_keys(page, tmp_path, saved):
    content = f'id;text;label;note\r\n01;"{TEXT}; one";good;"a;b"\r\n02;the cat;bad;\r\n03;مرحبا;good;"x"\r\n'
    choose_file(page, "audit", write(tmp_path / "a.csv", content))
    assert page.script(UNLABELED) == 0
    assert page.script("return [...document.querySelectorAll('.text')].every(one => one.dir === 'auto')")
    first = page.all("article")[0].find_element("css selector", "[aria-pressed=true]")
    lines = [int(text.split()[-1]) for text in page.texts(".top span:first-child")]
    other = "2" if first.text.startswith("bad") else "1"
    first.send_keys(other)
    assert page.focused.text.startswith({"1": "bad", "2": "good"}[other])
    assert page.focused.get_attribute("aria-pressed") == "true", "the focus stays on the label"
    page.focused.send_keys(Keys.ARROW_DOWN)
    assert page.script("return document.activeElement.closest('article').ariaLabel") == "Example 2"
    page.focused.click()
    assert page.one(".saving span").text == "2 looked at, 1 corrected"
    page.one("#tab-label").click()
    page.wait(lambda: page.all("#text"))
    page.one("#tab-audit").click()
    page.wait(lambda: page.all(".saving"))
    assert page.one(".saving span").text == "2 looked at, 1 corrected", "other views discard nothing"
    row = content.split("\r\n")[lines[0] - 1]
    changed = row.replace(";good;", ";BAD;").replace(";bad;", ";good;").replace("BAD", "bad")
    assert saved("corrected-a.csv") == content.replace(row, changed)


def test_texts_are_labeled(page, tmp_path, saved):
    lines = [{"id": 1, "text": "the dog"}, {"id": 2, "text": "the sea", "labels": ["sea"]}, {"id": 3, "text": "a cat"}]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    choose_file(page, "suggest", path, model="several")
    assert "1 row with a label are not suggested" in page.one(".notes").text
    by_text = {article.find_element("css selector", ".text").text: article for article in page.all("article")}
    buttons = {button.text.split()[0]: button for button in by_text["a cat"].find_elements("css selector", "button")}
    buttons["animal"].click()
    assert page.one(".saving span").text == "1 labeled"
    written = [json.loads(line) for line in saved("labeled-a.jsonl").splitlines()]
    assert written == [lines[1], {**lines[2], "labels": ["animal"]}]


def test_labels_of_several_are_corrected_in_cells(page, tmp_path, saved):
    choose_file(
        page, "audit", write(tmp_path / "a.tsv", "text\tlabel\nthe dog\tanimal, sea\nthe cat\t\n"), model="several"
    )
    article = next(one for one in page.all("article") if "the dog" in one.text)
    next(b for b in article.find_elements("css selector", "button") if b.text.startswith("sea")).click()
    assert saved("corrected-a.tsv") == "text\tlabel\nthe dog\tanimal\nthe cat\t\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "There are no rows in the file. It is empty."),
        ("a.csv", "text,label\n", "There are no rows in the file. It has a header only."),
        ("a.csv", "title,label\nx,good\n", "No column of texts is chosen. The file has the columns title, label."),
        ("a.csv", "text,body\nx,good\n", "No column of labels is chosen."),
        ("a.csv", "text,label\nx\n", "Line 2: There are 1 cells, and 2 columns."),
        ("a.csv", 'text,label\n"x,good\n', "Line 2: A quote is not closed."),
        ("a.csv", 'text,label\n"x"y,good\n', "Line 2: There is more text after a quoted cell."),
        ("a.csv", "text,text\nx,good\n", "Two columns are called “text”."),
        ("a.csv", "text,label\n,good\nx,\n", "No row has a text and a label."),
        ("a.csv", "text,label\nx,NaN\n", "Line 2: The label is “NaN”"),
        ("a.jsonl", '{"text": "x", "label": "good"}\n{"text"\n', "Line 2: This is not valid JSON."),
        ("a.jsonl", '["x"]', "Line 1: This is no JSON object."),
        ("a.jsonl", '{"text": 5, "label": "good"}', "Line 1: 'text' is no text."),
        ("a.jsonl", '{"text": "x", "label": ["good"]}', "Line 1: The label is a list"),
        ("a.jsonl", '{"text": "x", "label": {"good": 1}}', "Line 1: The label is an object"),
        ("a.xlsx", "text", "The name of the file does not end in .csv"),
        ("a.csv", b"text,label\ncaf\xe9,good\n", "The file is not UTF-8 text."),
    ],
)
def test_bad_files_are_explained(page, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    choose_file(page, "audit", path)
    alert = page.one("[role=alert]").text.replace("\n", " ")
    assert message in alert


def test_many_rows_are_bounded_and_limits_of_the_server_respected(page, predictors, tmp_path):
    limits, meter = replace(Limits(), inputs=20, characters=400), Meter()
    service = Service([Served("classifier", predictors["classifier"], limits, meter)], limits, meter)
    lines = [json.dumps({"text": f"the dog {n}", "label": "good"}) for n in range(10_000)]
    lines[50] = json.dumps({"text": "a \ud800", "label": "good"})  # half of a character
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    with closing(service), served(service) as page.address:
        choose_file(page, "audit", path)
        assert "2,000 of 10,000 rows, evenly spaced" in page.one(".notes").text
        assert page.one(".headline").text.endswith("of 2,000 rows")
        assert "1 text cannot be read" in page.one(".notes").text


def test_a_phone_and_other_tasks(page, playground, monkeypatch, tmp_path):
    page.resize(360, 740)
    choose_file(page, "audit", write(tmp_path / "a.csv", f"text,label\n{'long' * 200},good\nthe dog,{'b' * 90}\n"))
    assert page.script("return document.documentElement.scrollWidth") == 360
    small = "one => one.checkVisibility() && one.offsetHeight < 44"
    assert page.script(f"return [...document.querySelectorAll('main button, main select')].filter({small}).length") == 0
    others = {name: model for name, model in playground.models.items() if name not in ("classifier", "several")}
    monkeypatch.setattr(playground, "models", others)
    page.open("#suggest")
    assert "None of the loaded models classifies texts" in page.one(".note").text


@pytest.mark.parametrize("view", ["audit", "suggest"])
def test_html_in_a_file_is_text(page, view, tmp_path):
    """No script runs, whichever column it is in, and no element is made of it."""
    hostile = [
        "<img src=x onerror=document.title='broken'>",
        "<script>document.title='broken'</script>",
        "</textarea></script><svg onload=document.title='broken'>",
        "{{document.title='broken'}} <a href=\"javascript:document.title='broken'\">dog</a>",
    ]
    records = [{"text": f"the dog {text}", f"n{text}": text} for text in hostile]
    if view == "audit":
        records = [{**record, "label": label} for record, label in zip(records, [*hostile[:3], "good"], strict=True)]
    (tmp_path / "hostile.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page.open(f"#{view}")
    title = page.script("return document.title")
    choose_file(page, view, tmp_path / "hostile.jsonl")
    shown = page.one("main").text
    assert all(text in shown for text in hostile)
    assert page.script("return document.title") == title != "broken"
    assert not page.all("main img, main script, main [onload], main [href^=java]")
