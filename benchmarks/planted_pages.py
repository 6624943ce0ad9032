"""Do rules of cleaning find what was planted, and nothing else? Recall and precision, on pages of news articles.

English articles (Wikinews, without duplicates) are pages of 20 sites. In each text, pages of one kind are planted:

    equal        copies in capitals, without punctuation
    near-0.9     copies, words of which are replaced until their similarity is just above 0.9, the least of the rule;
                 beside others of 0.1 less, which are to stay; so near-0.8 and near-0.7
    foreign      paragraphs in German, Spanish, Chinese and Arabic (XQuAD)
    leaked       sentences of a test file (of Wikipedia), each inside of an article
    boilerplate  lines of a menu on pages of their site
    mail, phone, ip, card   personal data, each inside of an article

Of copies, that one of the two is dropped counts. Precision is the share of what was planted in all that was dropped or
replaced; what articles have themselves, such as the address of an agency, counts as wrong.
"""

from __future__ import annotations

import lzma
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import category

import common
import msgspec
from common import add, parse

from unmask.data.cleaning.clean import CleanedText, clean_documents
from unmask.data.cleaning.rules import read_rules
from unmask.data.labelled.duplicates import similarity
from unmask.data.labelled.folding import fold
from unmask.data.text.documents import Skipped, TextOptions, read_documents

ARTICLES, PLANTED, SITES, SHORTEST = 2400, 300, 20, 80
"""Number of articles, of planted pages and of sites, and of the words of an article, at least."""
DECOY, CLOSE = 0.1, 0.02
"""How much less similar decoys are than copies, and by how much copies may exceed the similarity."""
LANGUAGES = ("de", "es", "zh", "ar")
MENU = ("Home | News | Sports", "Sign up for our newsletter", "Share this page with your friends and colleagues")


@dataclass
class Pages:
    """Pages, some of which have something planted.

    Attributes:
        texts: the text of each page, by its address.
        names: names of the planted thing that a page has or is; copies and their originals have the same one.
        strings: what was planted into a page.
        settings: the file of rules.
    """

    texts: dict[str, str] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    strings: dict[str, list[str]] = field(default_factory=dict)
    settings: str = ""

    def add(self, rng: random.Random, text: str) -> str:
        """Add a page; return its address."""
        address = f"https://site{rng.randrange(SITES)}.example/{len(self.texts)}"
        self.texts[address] = text
        return address


def read_texts(path: Path, count: int) -> list[str]:
    """Return the first texts of a file that are long enough, their lines as paragraphs."""
    texts = read_documents([path], TextOptions(), Skipped())
    return list(islice((text for text in texts if len(text.split()) >= SHORTEST), count))


def distinct(texts: Sequence[str]) -> list[str]:
    """Return texts without those that are like others."""
    with tempfile.TemporaryDirectory() as name:
        path, rules = Path(name) / "texts.jsonl", Path(name) / "rules.toml"
        path.write_bytes(b"".join(msgspec.json.encode({"text": text}) + b"\n" for text in texts))
        rules.write_text("[near_duplicates]\nsimilarity = 0.5\n")
        return [text for text, _ in cleaned(path, rules).sources()]


def cleaned(path: Path, rules: Path) -> CleanedText:
    """Return what rules leave of a file."""
    return clean_documents(
        [path], TextOptions(), read_rules([rules]), path.parent / "cleaned", report=lambda line: None
    )


def altered(text: str, least: float, rng: random.Random) -> str | None:
    """Return a text, words of which are replaced until its similarity is just above the least; None: none is."""
    words = text.split(" ")
    for place in rng.sample(range(len(words)), len(words)):
        words[place] = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=len(words[place])))
        if (similar := similarity(fold(text), fold(" ".join(words)))) < least + CLOSE:
            return " ".join(words) if similar >= least else None
    return None


def copies(rng: random.Random, articles: list[str], change: Callable[[str], str | None]) -> Pages:
    """Return pages with changed copies of some of them."""
    pages = Pages()
    addresses = [pages.add(rng, text) for text in articles]
    changed = ((address, change(pages.texts[address])) for address in addresses)
    found = ((address, text) for address, text in changed if text is not None)
    for name, (address, text) in enumerate(islice(found, PLANTED)):
        pages.names[address] = pages.names[pages.add(rng, text)] = name
    return pages


def equal(rng: random.Random, articles: list[str]) -> Pages:
    """Return pages with copies in capitals, without punctuation."""
    pages = copies(rng, articles, lambda text: "".join(each for each in text.upper() if category(each)[0] != "P"))
    pages.settings = "[duplicates]\n"
    return pages


def near(rng: random.Random, articles: list[str], least: float) -> Pages:
    """Return pages with copies of a similarity, and decoys of less."""
    pages = copies(rng, articles, lambda text: altered(text, least, rng))
    decoys = (altered(text, least - DECOY, rng) for text in reversed(articles))
    for text in islice(filter(None, decoys), PLANTED):
        pages.add(rng, text)
    pages.settings = f"[near_duplicates]\nsimilarity = {least}\n"
    return pages


def foreign(rng: random.Random, articles: list[str]) -> Pages:
    """Return pages, some of which are in other languages."""
    pages = Pages(settings='[language]\nkeep = ["en"]\n')
    for text in articles:
        pages.add(rng, text)
    for language in LANGUAGES:
        path = common.SHARED / f"qa/xquad/xquad.{language}.json.xz"
        for text in rng.sample(sorted(set(contexts(path))), PLANTED // len(LANGUAGES)):
            pages.names[pages.add(rng, text)] = len(pages.names)
    return pages


def contexts(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a file in SQuAD's format."""
    for document in msgspec.json.decode(lzma.decompress(path.read_bytes()))["data"]:
        yield from (paragraph["context"] for paragraph in document["paragraphs"])


def inserted(rng: random.Random, articles: list[str], strings: Sequence[str]) -> Pages:
    """Return pages, some of which have a string between two of their words."""
    pages = Pages()
    for number, text in enumerate(articles):
        words = text.split(" ")
        if number < len(strings):
            words.insert(rng.randrange(1, len(words)), strings[number])
        address = pages.add(rng, " ".join(words))
        if number < len(strings):
            pages.strings[address] = [strings[number]]
    return pages


def leaked(rng: random.Random, articles: list[str], folder: Path) -> Pages:
    """Return pages, some of which have a sentence of a test file."""
    source = read_texts(common.SHARED / "text/wikipedia/heldout.jsonl.xz", PLANTED)
    sentences = [" ".join(text.split()[20 : 20 + rng.randint(15, 40)]) for text in source]
    tests = folder / "test.jsonl"
    tests.write_bytes(b"".join(msgspec.json.encode({"text": sentence}) + b"\n" for sentence in sentences))
    pages = inserted(rng, articles, sentences)
    pages.names = {address: name for name, address in enumerate(pages.strings)}
    pages.strings, pages.settings = {}, f'[overlap]\nfiles = ["{tests}"]\n'
    return pages


def boilerplate(rng: random.Random, articles: list[str]) -> Pages:
    """Return pages, some of which have lines of a menu before and after them."""
    pages = Pages(settings="[boilerplate]\n")
    for number, text in enumerate(articles):
        menu = rng.sample(MENU, 2) if number % 2 else []
        address = pages.add(rng, "\n".join([*menu[:1], text, *menu[1:]]))
        if menu:
            pages.strings[address] = menu
    return pages


def personal(rng: random.Random, articles: list[str], kind: str) -> Pages:
    """Return pages, some of which have personal data of a kind."""

    def digits(count: int) -> str:
        return "".join(rng.choices("123456789", k=count))

    def card() -> str:
        number = f"4{digits(14)}"
        doubled = [int(digit) * (1 + (place % 2 == 0)) for place, digit in enumerate(number)]
        number += str(-sum(value - 9 * (value > 9) for value in doubled) % 10)
        return " ".join(number[start : start + 4] for start in range(0, 16, 4))

    kinds: dict[str, Callable[[], str]] = {
        "mail": lambda: f"anna.b{digits(3)}@mail.example{rng.choice(['.com', '.de', '.co.uk'])}",
        "phone": lambda: rng.choice([f"+49 30 {digits(6)}", f"({digits(3)}) {digits(3)}-{digits(4)}"]),
        "ip": lambda: f"8.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}",
        "card": card,
    }
    pages = inserted(rng, articles, [kinds[kind]() for _ in range(PLANTED)])
    others = "".join(f'{other} = ""\n' for other in kinds if other != kind)
    pages.settings = f"[pii]\n{others}"
    return pages


def score(pages: Pages, folder: Path, rng: random.Random) -> dict[str, Any]:
    """Clean pages; return the number of planted things, recall and precision."""
    order = rng.sample(sorted(pages.texts), len(pages.texts))
    path, rules = folder / "pages.jsonl", folder / "rules.toml"
    path.write_bytes(b"".join(msgspec.json.encode({"text": pages.texts[url], "url": url}) + b"\n" for url in order))
    rules.write_text(pages.settings)
    result = cleaned(path, rules)
    left = {url: text for text, url in result.sources()}
    if pages.names:
        dropped = [url for url in order if url not in left]
        planted, total = len(set(pages.names.values())), len(dropped)
        right = sum(url in pages.names for url in dropped)
        found = len({pages.names[url] for url in dropped if url in pages.names})
    else:
        planted = sum(map(len, pages.strings.values()))
        total = sum(sum(tally.reasons.values()) for tally in result.tally.rules.values())
        right = found = sum(each not in left[url] for url, strings in pages.strings.items() for each in strings)
    return {"count": planted, "recall": 100 * found / planted, "precision": 100 * right / max(1, total)}


KINDS: dict[str, Callable[[random.Random, list[str], Path], Pages]] = {
    "equal": lambda rng, articles, folder: equal(rng, articles),
    "near-0.9": lambda rng, articles, folder: near(rng, articles, 0.9),
    "near-0.8": lambda rng, articles, folder: near(rng, articles, 0.8),
    "near-0.7": lambda rng, articles, folder: near(rng, articles, 0.7),
    "foreign": lambda rng, articles, folder: foreign(rng, articles),
    "leaked": leaked,
    "boilerplate": lambda rng, articles, folder: boilerplate(rng, articles),
    "mail": lambda rng, articles, folder: personal(rng, articles, "mail"),
    "phone": lambda rng, articles, folder: personal(rng, articles, "phone"),
    "ip": lambda rng, articles, folder: personal(rng, articles, "ip"),
    "card": lambda rng, articles, folder: personal(rng, articles, "card"),
}


def main() -> None:
    """Plant each kind, and add a record of what was found."""
    options = parse(__doc__, KINDS)
    articles = distinct(read_texts(common.SHARED / "text/wikinews/train.jsonl.xz", ARTICLES))
    for kind in options.names:
        rng = random.Random(kind)
        with tempfile.TemporaryDirectory() as name:
            pages = KINDS[kind](rng, rng.sample(articles, len(articles)), Path(name))
            add("planted_pages", {"planted": kind}, score(pages, Path(name), rng))


if __name__ == "__main__":
    main()
