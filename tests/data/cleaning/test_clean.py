"""Tests of cleaning files, and of corpora of cleaned text: the same for any number of workers and interruptions."""

import json

import pytest

import unmask
from unmask.data.cleaning import clean, store
from unmask.data.cleaning.clean import clean_documents
from unmask.data.cleaning.published import C4
from unmask.data.cleaning.rule import Tally
from unmask.data.cleaning.rules import WEB, Rules, read_rules
from unmask.data.text.documents import SourceText, TextOptions
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError
from unmask.training.runs.directory import PREPARED

RULES = """
[gopher_quality]
min_words = 20
[pii]
[duplicates]
[near_duplicates]
similarity = 0.8
[repeated_passages]
[boilerplate]
[repeated_lines]
"""


@pytest.fixture
def sources(tmp_path, prose):
    """Three files: 12 documents, copies of some, short ones, and a line that all of the first have."""
    documents = [f"{prose(number)}\n\nWritten by our staff." for number in range(12)]
    texts = [documents[:6], [documents[0], documents[7].upper(), "few words", *documents[6:9]], documents[9:]]
    paths = [tmp_path / f"{index}.jsonl" for index in range(3)]
    for path, each in zip(paths, texts, strict=True):
        records = [{"text": text.replace("\n\n", "\n"), "url": f"https://{len(text)}.example"} for text in each]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "rules.toml").write_text(RULES)
    return paths


@pytest.fixture(scope="module")
def tokenizer(prose):
    return train_wordpiece([prose(number) for number in range(5)], size=150)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def build(sources, tokenizer, out, **changes):
    rules = sources[0].with_name("rules.toml")
    return unmask.build_corpus(sources, tokenizer, out, **{"clean": rules, "workers": 1, "quiet": True} | changes)


def test_what_is_left_and_what_was_dropped(sources, tokenizer, tmp_path, capsys):
    corpus = build(sources, tokenizer, tmp_path / "corpus", quiet=False)
    assert len(corpus.train) + len(corpus.heldout) == 12
    tally = json.loads((tmp_path / "corpus" / "cleaning.json").read_text())
    assert (tally["documents"], tally["left"]) == (15, 12)
    counts = {name: (rule["documents"], rule["changed"]) for name, rule in tally["rules"].items()}
    assert counts == {
        "gopher_quality": (1, 0), "pii": (0, 0), "duplicates": (2, 0), "near_duplicates": (0, 0),
        "repeated_passages": (0, 0), "boilerplate": (0, 0), "repeated_lines": (0, 11),
    }  # fmt: skip
    assert tally["rules"]["gopher_quality"]["samples"] == {"few words": ["few words"]}
    assert tally["rules"]["repeated_lines"]["removed"] == 11 * len("\n\nWritten by our staff.")
    printed = capsys.readouterr().err
    assert "cleaning: 15 documents read, 12 left" in printed
    assert "duplicates: 2 documents dropped" in unmask.describe_corpus(tmp_path / "corpus")
    assert not (tmp_path / "corpus.cleaned").exists()


def test_D14_any_number_of_workers_gives_the_same_files(sources, tokenizer, tmp_path):
    for workers in (1, 2):
        build(sources, tokenizer, tmp_path / f"{workers}", workers=workers)
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.parametrize("stage", ["documents", "duplicates", "repeated lines", "encoding"])
def test_D13_an_interrupted_build_continues_with_the_same_files(sources, tokenizer, tmp_path, monkeypatch, stage):
    build(sources, tokenizer, tmp_path / "whole")
    left = [8]  # documents until the interruption

    def interrupted(*_, **__):
        left[0] -= 1
        if left[0] < 0 or stage != "documents":
            raise KeyboardInterrupt
        return b"12345678"

    where = {
        "documents": (store, "identity"),
        "duplicates": (clean, "find_duplicates"),
        "repeated lines": (clean, "find_repeated_lines"),
        "encoding": (unmask.data.corpus.build, "_encode_into"),
    }
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*where[stage], interrupted)
        build(sources, tokenizer, tmp_path / "parts")
    if stage == "documents":
        return_to = tmp_path / "parts.cleaned"
        assert (return_to / "00000.json").exists() and not (return_to / "00001.json").exists()
        (return_to / "00000.json").unlink()  # what was stored has made-up identities
    else:
        monkeypatch.setattr(clean, "read_sources", lambda *_, **__: pytest.fail("read again"))
    build(sources, tokenizer, tmp_path / "parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_files_rules_and_test_files_that_have_changed_are_read_again(sources, tmp_path, monkeypatch):
    read = []
    texts = [SourceText("a b")]
    monkeypatch.setattr(clean, "read_sources", lambda paths, *_, **__: read.append(paths[0].name) or iter(texts))
    tests = tmp_path / "test.txt"
    tests.write_text("one two three four five six seven eight")

    def names(rules):
        read.clear()
        clean_documents(sources, TextOptions(), rules, tmp_path / "folder", report=lambda line: None)
        return list(read)

    rules = read_rules(["duplicates"], [tests])
    assert names(rules) == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert names(rules) == []
    sources[1].write_text("{}\n")
    assert names(rules) == ["1.jsonl"]
    tests.write_text("two three four five six seven eight nine")
    assert len(names(rules)) == 3
    assert len(names(read_rules(["pii"], [tests]))) == 3
    (tmp_path / "bad.txt").write_text("darn\n")
    c4 = Rules(c4=C4(bad_words=str(tmp_path / "bad.txt"), needs_terminal=False, min_sentences=0, min_words=1))
    assert [len(names(c4)), len(names(c4))] == [3, 0]
    (tmp_path / "bad.txt").write_text("drat\n")
    assert len(names(c4)) == 3
    for name in ("texts", "urls", "ends"):
        for damage in (lambda file: file.write_bytes(b""), lambda file: file.unlink()):
            damage(tmp_path / "folder" / f"00002.{name}")
            assert names(c4) == ["2.jsonl"]


def test_rules_that_leave_nothing_are_refused(sources, tokenizer, tmp_path):
    sources[0].with_name("rules.toml").write_text("[gopher_quality]\nmin_words = 1000\n")
    with pytest.raises(UserError, match="left none of 15 documents; gopher_quality dropped most"):
        build(sources, tokenizer, tmp_path / "corpus")


def test_a_model_is_pretrained_on_cleaned_text(sources, tmp_path):
    settings = {"budget.steps": 1, "encoder.layers": 1, "tokenizer.vocabulary": 150}
    call = {"text": sources, "out": tmp_path / "run", "settings": settings, "quiet": True}
    unmask.pretrain("bert-tiny", clean="duplicates", **call)
    tally = json.loads((tmp_path / "run" / PREPARED / "corpus" / "cleaning.json").read_text())
    assert tally["rules"]["duplicates"]["documents"] == 2
    with pytest.raises(UserError, match="started with other rules"):
        unmask.pretrain("bert-tiny", resume=True, **call)
    with pytest.raises(UserError, match="clean has no effect on a corpus"):
        unmask.pretrain("bert-tiny", tmp_path / "run" / PREPARED / "corpus", out=tmp_path / "other", clean="web")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["gofer"], 'clean="gofer": no such rule'),
        (["language"], "needs a setting"),
        (["overlap"], "names no files"),
        (["urls"], "needs a setting"),
        (["[urls]\nblock = ['missing.txt']\n"], "does not exist"),
        (["[boilerplate]\nmin_pages = 1\n"], "at least 2"),
        (["missing.toml"], "cannot be read"),
        (["[c4]\nmin_word = 1\n"], "unknown key `min_word`"),
        (["[c4]\nmin_words = 'x'\n"], "must be a whole number"),
        (["[language]\n"], "keep"),
        (["[near_duplicates]\nsimilarity = 2\n"], "at least 0.5 and at most 1"),
        (["[overlap]\n"], "names no files"),
        (["[overlap]\nfiles = ['missing.tsv']\n"], "does not exist"),
        (["c4 = 1"], "c4"),
    ],
)
def test_rules_that_are_wrong_are_refused(tmp_path, names, problem):
    path = tmp_path / "rules.toml"
    path.write_text(names[0])
    with pytest.raises(UserError, match=problem):
        read_rules([path] if "\n" in names[0] or "=" in names[0] else names).judges()


def test_each_rule_has_its_name(tmp_path):
    (tmp_path / "test.tsv").write_text("text\n")
    for name in ("overlap", "near-duplicates", "repeated_lines", "pii"):
        rules = read_rules([name], [tmp_path / "test.tsv"] if name == "overlap" else ())
        assert rules.names == [name.replace("-", "_")]


def test_documents_of_which_rules_leave_nothing_are_dropped(tmp_path):
    (tmp_path / "a.txt").write_text("A menu\n\nAbout us\n")
    (tmp_path / "rules.toml").write_text("[c4]\nmin_sentences = 0\n[fineweb]\n")
    rules = read_rules([tmp_path / "rules.toml"])
    with pytest.raises(UserError, match="left none of 2 documents; c4 dropped most"):
        clean_documents([tmp_path / "a.txt"], TextOptions(), rules, tmp_path / "folder", report=lambda line: None)


def test_rules_by_name_and_in_files_are_joined(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("[c4]\nmin_words = 4\n[pii]\n")
    rules = read_rules(["web", path, "repeated-lines"])
    assert rules.c4.min_words == 4 and rules.c4.needs_terminal and rules.pii is not None
    assert rules.fineweb == WEB.fineweb and rules.repeated_lines is not None
    assert not Rules() and not read_rules([]) and not [*Tally().lines()]


@pytest.mark.parametrize("name", ["urls", "boilerplate"])
def test_rules_for_addresses_are_refused_where_there_are_none(sources, tokenizer, tmp_path, name):
    (tmp_path / "blocked.txt").write_text("a.example\n")
    lists = f"block = [{str(tmp_path / 'blocked.txt')!r}]\n" * (name == "urls")
    sources[0].with_name("rules.toml").write_text(f"[{name}]\n{lists}")
    (tmp_path / "a.txt").write_text("A cat.\n\nA dog.")
    with pytest.raises(UserError, match=f"the rule {name} has no effect: no document has an address"):
        build([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus")


def test_pages_of_the_web_lose_boilerplate_and_blocked_hosts(prose, tokenizer, tmp_path):
    """Lines that the rules for lines remove are counted once, and documents keep their addresses."""
    menu, notice = "Home | About us", "All rights reserved by the editors."
    pages = [(f"{menu}\n{prose(number, lines=3)}\n{notice}", f"https://a.example/{number}") for number in range(8)]
    pages += [
        (f"{menu}\n{notice}", "https://a.example/empty"),
        (f"{prose(1, lines=3)} {prose(2)}", "https://spam.example"),
    ]
    pages += [(f"{prose(9, lines=3)}\n{notice}", "https://b.example"), (f"{prose(1, lines=3)}", "https://c.example")]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps({"text": text, "url": url}) + "\n" for text, url in pages))
    (tmp_path / "blocked.txt").write_text("spam.example\n")
    lists = f"[urls]\nblock = [{str(tmp_path / 'blocked.txt')!r}]\n"
    (tmp_path / "rules.toml").write_text(f"{lists}[repeated_passages]\n[boilerplate]\n[repeated_lines]\n")
    cleaned = clean_documents(
        [tmp_path / "pages.jsonl"], TextOptions(), read_rules([tmp_path / "rules.toml"]), tmp_path / "f", report=id
    )
    left = list(cleaned.sources())
    assert [document.url for document in left] == [url for _, url in pages[:8]] + ["https://b.example"]
    assert all(menu not in text for text, _ in left)
    assert [notice in text for text, _ in left] == [False] * 8 + [True]
    rules = cleaned.tally.rules
    assert rules["urls"].reasons == {"blocked": 1}
    assert rules["repeated_passages"].reasons == {"consists of passages of earlier documents": 1}
    assert (rules["boilerplate"].changed, rules["repeated_lines"].changed) == (9, 0)
    assert rules["boilerplate"].reasons == {"line on many pages of a host": 18}
    assert (cleaned.tally.left, cleaned.tally.left_bytes) == (9, sum(len(text.encode()) for text, _ in left))
    (tmp_path / "blocked.txt").write_text("b.example\n")  # a list that has changed is read again
    cleaned = clean_documents(
        [tmp_path / "pages.jsonl"], TextOptions(), read_rules([tmp_path / "rules.toml"]), tmp_path / "f", report=id
    )
    assert "https://b.example" not in [document.url for document in cleaned.sources()]
