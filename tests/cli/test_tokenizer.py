"""`unmask tokenizer train`, `extend` and `encode` as a user types them, and user errors."""

import gzip
import io
import json
import lzma
import re
import subprocess
import sys
from functools import partial

import pytest
from transformers import AutoTokenizer

from unmask.cli.main import main
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.train import train_vocabulary
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.families.xlnet import XlnetSettings
from unmask.model.model import Model, save_model

from .conftest import name_case

TEXTS = ["The dog sees the unriver.", "Café 😀 [MASK] house", ""]


@pytest.fixture
def encode(tokenizer_directory, capsys):
    """Return a function that tokenizes with the command and returns the printed lines."""

    def encode(*given, directory=tokenizer_directory):
        assert main(["tokenizer", "encode", "--tokenizer", str(directory), *map(str, given)]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        return output.out.splitlines()

    return encode


def test_tokens_ids_and_json(encode, tokenizer, tokenizer_directory):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)
    expected = [theirs(text, add_special_tokens=False, return_offsets_mapping=True) for text in TEXTS]
    assert encode(*TEXTS) == [" ".join(theirs.convert_ids_to_tokens(one["input_ids"])) for one in expected]
    assert encode("--ids", *TEXTS) == [" ".join(map(str, one["input_ids"])) for one in expected]
    lines = [json.loads(line) for line in encode("--json", *TEXTS)]
    for text, line, one in zip(TEXTS, lines, expected, strict=True):
        assert list(line) == ["text", "tokens", "ids", "offsets"]
        assert (line["text"], line["ids"]) == (text, one["input_ids"])
        assert line["tokens"] == theirs.convert_ids_to_tokens(one["input_ids"])
        assert line["offsets"] == [list(pair) for pair in one["offset_mapping"]]
    first, mask = lines[0], lines[1]
    assert [first["text"][begin:end] for begin, end in first["offsets"][:2]] == ["The", "dog"]
    assert mask["offsets"][mask["tokens"].index("[MASK]")] == [7, 13], "code points, not bytes"


def test_special_tokens_are_added_around(encode, tokenizer_directory):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)
    lines = [json.loads(line) for line in encode("--json", "--special", *TEXTS)]
    for text, line in zip(TEXTS, lines, strict=True):
        one = theirs(text, return_offsets_mapping=True)
        assert line["ids"] == one["input_ids"]
        assert line["offsets"] == [list(pair) for pair in one["offset_mapping"]]
        assert (line["tokens"][0], line["tokens"][-1]) == ("[CLS]", "[SEP]")
    assert encode("--special", "") == ["[CLS] [SEP]"]


def test_training_checks_its_files_as_corpora_do(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The dog sees the house.\n")
    twice = [str(tmp_path / "a.txt")] * 2
    for files, problem in ((twice, "a.txt: is given twice; give each file once"), ([str(tmp_path)], "is a directory")):
        assert main(["tokenizer", "train", *files, "--out", str(tmp_path / "out"), "--vocab-size", "50"]) == 2
        assert problem in capsys.readouterr().err


def test_each_line_of_a_file_is_printed_as_a_line(encode, tmp_path, monkeypatch):
    content = ("The dog\r\n\n" + "near the sea\n" * 1500 + "a house").encode()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(content))
    expected = encode("The dog", "", *["near the sea"] * 1500, "a house")
    assert len(expected) == 1503
    for name in ("a.txt", "a.txt.gz", "a.txt.xz"):
        assert encode("--data", tmp_path / name) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert encode("--data", "-") == expected
    assert json.loads(encode("--data", tmp_path / "a.txt", "--json")[0])["text"] == "The dog"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_kinds(encode, documents, tmp_path, kind):
    train_vocabulary(kind, documents, size=300, lowercase=kind == "unigram").save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for special in ((), ("--special",)):
        (line,) = [json.loads(text) for text in encode("--json", *special, TEXTS[0], directory=tmp_path)]
        one = theirs(TEXTS[0], add_special_tokens=bool(special), return_offsets_mapping=True)
        assert line["ids"] == one["input_ids"]
        assert line["offsets"] == [list(pair) for pair in one["offset_mapping"]]


@pytest.mark.parametrize("causal", [False, True])
def test_the_tokenizer_of_a_model(encode, tokenizer, tmp_path, causal):
    kind = GptSettings if causal else partial(BertSettings, feed_forward=64)
    shape = kind(layers=1, width=16, heads=2, positions=16)
    save_model(tmp_path / "model", Model(shape.build(tokenizer.size), tokenizer), "card")
    for directory in (tmp_path, tmp_path / "model"):  # a run, with its model inside
        (line,) = encode("--special", "the dog", directory=directory)
        assert line == ("[CLS] the dog [MASK]" if causal else "[CLS] the dog [SEP]")


def test_special_tokens_at_the_end_have_their_offsets(encode, documents, tmp_path):
    """XLNet's [CLS] is the last token."""
    tokenizer = train_vocabulary("unigram", documents, size=300, lowercase=True)
    shape = XlnetSettings(layers=1, width=16, heads=2, feed_forward=32)
    save_model(tmp_path, Model(shape.build(tokenizer.size), tokenizer), "card")
    (line,) = [json.loads(text) for text in encode("--json", "--special", TEXTS[0], directory=tmp_path)]
    one = AutoTokenizer.from_pretrained(tmp_path)(TEXTS[0], return_offsets_mapping=True)
    assert line["ids"] == one["input_ids"]
    assert line["offsets"] == [list(pair) for pair in one["offset_mapping"]]


def test_special_tokens_of_words_are_added_around(encode, documents, tmp_path):
    train_vocabulary("words", documents, size=100, lowercase=False).save(tmp_path)
    (line,) = [json.loads(text) for text in encode("--json", "--special", "xyzzy dog", directory=tmp_path)]
    assert line["tokens"] == ["<S>", "xyzzy", "dog", "</S>"]
    assert line["offsets"] == [[0, 0], [0, 5], [6, 9], [0, 0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("--tokenizer", "{here}/none", "a"),
            "none: there is no such directory; name that of a tokenizer, a model or a run",
        ),
        (("--tokenizer", "{here}", "a"), "{here}: contains none of tokenizer.json, vocab.txt"),
        (("--tokenizer", "{good}"), "there is no text to tokenize; give texts, or --data FILE"),
        (("--tokenizer", "{good}", "a", "--data", "{here}/a.txt"), "give texts or --data FILE, not both"),
        (("--tokenizer", "{good}", "--data", "{here}/none.txt"), "none.txt: cannot be read (No such file"),
        (("--tokenizer", "{good}", "--data", "{here}/empty.txt"), "empty.txt: there is no text in the file"),
        (("--tokenizer", "{good}", "--data", "{here}/latin.txt"), "latin.txt:2: not UTF-8 (byte 4 of the line)"),
        (
            ("--tokenizer", "{good}", "a\udcff"),
            "character 2 of the text is a lone surrogate, not a valid character; pass UTF-8",
        ),
    ],
)
def test_mistakes_of_encoding(given, message, tokenizer_directory, tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("first\ncaf\xe9\n".encode("latin1"))
    words = [word.format(here=tmp_path, good=tokenizer_directory) for word in given]
    assert main(["tokenizer", "encode", *words]) == 2
    errors = capsys.readouterr().err
    assert message.format(here=tmp_path) in errors
    assert errors.startswith("unmask: ") and errors.count("\n") == 1


def test_ids_and_json_exclude_each_other(tokenizer_directory, capsys):
    assert main(["tokenizer", "encode", "--tokenizer", str(tokenizer_directory), "--ids", "--json", "a"]) == 2
    assert "--ids and --json cannot be combined" in capsys.readouterr().err


def test_lines_are_printed_while_the_file_is_read(tokenizer_directory, tmp_path):
    """A reader that closes the pipe early is not an error."""
    (tmp_path / "long.txt").write_text("the dog\n" * 100_000)
    command = [sys.executable, "-m", "unmask", "tokenizer", "encode", "--tokenizer", str(tokenizer_directory)]
    given = [*command, "--data", str(tmp_path / "long.txt")]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"the dog\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_encoding_with_the_tokenizer_just_loaded(encode, tokenizer_directory):
    words = load_tokenizer(tokenizer_directory)
    assert encode("--ids", TEXTS[0]) == [" ".join(map(str, words.encode(TEXTS[0])))]


def test_train(main_line):
    folder, outputs = main_line
    assert f"tokenizer with 170 tokens: {folder / 'tokenizer'}" in outputs["tokenizer"].err
    assert len((folder / "tokenizer" / "vocab.txt").read_text().splitlines()) == 170


@pytest.fixture
def clinical(tmp_path):
    """A file of text with words that are not in the vocabularies of these tests."""
    path = tmp_path / "clinical.txt"
    path.write_text("The hepatitis near the nephritis.\n\n" * 6, encoding="utf8")
    return path


def test_extend(line, clinical, tmp_path, capsys, encode):
    out = tmp_path / "extended"
    given = ["tokenizer", "extend", str(clinical), "--tokenizer", str(line / "run"), "--add", "3", "--out", str(out)]
    assert main(given) == 0
    fewer, counts, examples, last = capsys.readouterr().err.splitlines()
    assert fewer == "the text has only 2 new tokens to learn, not 3"
    assert re.fullmatch(r"the text has \d+ tokens before, 36 after \(\d+\.\d% fewer\)", counts)
    assert re.fullmatch(r"new tokens: (hepat|nephr)itis \(.+ ##.+\), (hepat|nephr)itis \(.+ ##.+\)", examples)
    assert last == f"tokenizer with 172 tokens: {out}"
    assert encode("The nephritis", directory=out) == ["The nephritis"]
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 64
    assert main([*given, "--min-count", "7"]) == 2
    assert "the directory is not empty" in capsys.readouterr().err
    given[-1] = str(tmp_path / "other")
    assert main([*given, "--min-count", "7"]) == 2
    assert "there is nothing to learn: every word that occurs at least 7 times" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "given", "model", "token"),
    [
        ("The Quick Fox met Anna in Rome.\n" * 9, [], "WordPiece", "Anna"),
        ("The Quick Fox met Anna in Rome.\n" * 9, ["--lowercase"], "WordPiece", "anna"),
        ("ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ\n" * 9, [], "Unigram", "ท"),
        ("ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ\n" * 9, ["--kind", "wordpiece"], "WordPiece", "ท"),
    ],
    ids=["english", "lowercase", "thai", "thai wordpiece"],
)
def test_a_vocabulary_suits_its_text_unless_it_is_named(tmp_path, text, given, model, token):
    (tmp_path / "text.txt").write_text(text, encoding="utf8")
    arguments = [str(tmp_path / "text.txt"), "--vocab-size", "90", "--out", str(tmp_path / "out"), *given]
    assert main(["tokenizer", "train", *arguments]) == 0
    trained = json.loads((tmp_path / "out/tokenizer.json").read_text(encoding="utf8"))["model"]
    assert trained["type"] == model
    assert load_tokenizer(tmp_path / "out").find(token) is not None


def test_skipped_documents_are_reported(tmp_path, text_file, capsys):
    (tmp_path / "bad.txt").write_bytes(text_file.read_bytes() + b"\n\ncaf\xe9\n")
    given = ["tokenizer", "train", str(tmp_path / "bad.txt"), "--vocab-size", "170", "--out", str(tmp_path / "out")]
    assert main(given) == 0
    skipped, remedy, count = capsys.readouterr().err.splitlines()
    assert remedy.startswith("to read the first skipped document: pass --encoding")
    assert count == f"tokenizer with 170 tokens: {tmp_path / 'out'}"
    assert skipped.startswith(f"skipped: 1 document: {tmp_path / 'bad.txt'}:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tokenizer", "train", "{here}/missing.txt", "--out", "{here}/t"), "missing.txt"),
        (("tokenizer", "train", "{line}/train.tsv", "--out", "{line}"), "the directory is not empty"),
        (
            ("tokenizer", "train", "{line}/train.tsv", "--out", "{line}/train.tsv"),
            "is a file, not a directory; choose another --out",
        ),
        (("tokenizer", "train", "{here}/text.txt", "--vocab-size", "5", "--out", "{here}/t"), "needs at least"),
        (("tokenizer", "train", "{here}/empty.txt", "--out", "{here}/t"), "no text"),
        (
            ("tokenizer", "train", "{here}/text.txt", "--kind", "bpe", "--lowercase", "--out", "{here}/t"),
            "--lowercase has no effect on --kind bpe, which keeps capitals, accents and all characters",
        ),
        (
            ("tokenizer", "train", "{here}/text.txt", "--kind", "bpe", "--coverage", "0.99", "--out", "{here}/t"),
            "--coverage has no effect on --kind bpe",
        ),
        (
            ("tokenizer", "train", "{here}/text.txt", "--coverage", "99", "--out", "{here}/t"),
            "--coverage must be above 0 and at most 1, not 99",
        ),
        (
            ("tokenizer", "extend", "{here}/text.txt", "--tokenizer", "{here}/no", "--add", "1", "--out", "{here}/t"),
            "no: there is no such directory",
        ),
        (
            ("tokenizer", "extend", "{here}/text.txt", "--tokenizer", "{line}/run", "--add", "0", "--out", "{here}/t"),
            "the number of new tokens must be at least 1, not 0",
        ),
        (
            ("tokenizer", "extend", "{here}/empty.txt", "--tokenizer", "{line}/run", "--add", "1", "--out", "{here}/t"),
            "empty.txt; check the files and --documents",
        ),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
