"""A corpus of pages with what a report is to find: duplicates, boilerplate, other languages and characters, markup."""

import json
import random
import shutil

import pytest

from unmask.data.cleaning.clean import clean_documents
from unmask.data.cleaning.rules import read_rules
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import open_corpus
from unmask.data.text.documents import TextOptions

from ..html_page import HOSTILE

GERMAN = "Die Sitzung des Rates wurde am Abend ohne ein Ergebnis beendet, weil sich niemand einigen konnte. " * 3
FOOTER = "All pages of this site are copyright of the editors."


@pytest.fixture(scope="session")
def pages(documents):
    """100 documents with addresses: 60 with a footer, 10 copies, 8 in German, one of markup and other characters."""
    rng = random.Random(0)
    texts = [f"{text}\n{FOOTER}" if number < 60 else text for number, text in enumerate(documents[:81])]
    texts += [texts[number] for number in rng.sample(range(60, 81), 10)]
    texts += [f"{GERMAN} {letter}" for letter in "abcdefgh"]
    texts.append(f"{HOSTILE} 火 火 {' '.join(documents[81:84])}")
    urls = [f"https://{'www.news' if number < 60 else 'blog'}.example/{number}" for number in range(len(texts))]
    return [{"text": text, "url": url} for text, url in zip(texts, urls, strict=True)]


@pytest.fixture(scope="session")
def webbed(pages, tokenizer, tmp_path_factory):
    """The corpus of these pages, without held-out documents; cleaned, so that each line is a paragraph."""
    folder = tmp_path_factory.mktemp("webbed")
    (folder / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    cleaned = clean_documents([folder / "pages.jsonl"], TextOptions(), read_rules(["pii"]), folder / "c", report=id)
    return write_corpus([folder / "pages.jsonl"], tokenizer, folder / "corpus", heldout=None, copy=cleaned)


@pytest.fixture
def unsampled(webbed, tmp_path):
    """The same corpus as one that an older version built, without texts."""
    shutil.copytree(webbed.directory, tmp_path / "corpus")
    (tmp_path / "corpus" / "sample.jsonl").unlink()
    return open_corpus(tmp_path / "corpus")
