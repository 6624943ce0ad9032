"""Tokenizers from elsewhere: hostile or odd ones are refused, whatever they would do to a text."""

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models

from unmask.data.tokenizers.bounds import LONG_FORMS, MAX_GROWTH, check_growth
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError

TEXTS = ["the cat sat on the mat and then it ran away"] * 20
TRAIN = {"wordpiece": train_wordpiece, "bpe": train_bpe, "unigram": train_unigram}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a tokenizer of each kind."""
    path = tmp_path_factory.mktemp("saved")
    for kind, train in TRAIN.items():
        train(TEXTS, size={"bpe": 300}.get(kind, 60)).save(path / kind)
    return path


def change(saved, tmp_path, kind, name, edit):
    directory = shutil.copytree(saved / kind, tmp_path / "changed")
    content = json.loads((directory / name).read_text())
    edit(content)
    (directory / name).write_text(json.dumps(content))
    return directory


def replaced(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizing(*steps):
    def edit(content):
        content["normalizer"] = {"type": "Sequence", "normalizers": [content["normalizer"], *steps]}

    return edit


def with_table(text):
    table = (4).to_bytes(4, "little") + b"\0\0\0\0" + text.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


HOSTILE = [
    ("wordpiece", lambda content: content["model"]["vocab"].update(cat=10**9), "has the id 1000000000: the ids"),
    ("bpe", lambda content: content["model"].update(dropout=0.1), "drops merges at random"),
    (
        "wordpiece",
        lambda content: content["model"].update(max_input_chars_per_word=10**9),
        "is 1,000,000,000",
    ),
    ("unigram", normalizing(replaced({"Regex": "(a+)+$"}, "b")), r"regular expression '\(a\+\)\+\$', which may take"),
    ("unigram", normalizing(replaced({"Regex": " +"}, "  ")), "replaces ' \\+' by a longer text"),
    ("unigram", normalizing(*[replaced({"String": "a"}, "aa")] * 3), "replaces 'a' by a longer text"),
    ("unigram", normalizing(replaced({"String": ""}, "")), "replaces '' by a longer text"),
    ("unigram", normalizing({"type": "Prepend", "prepend": "x" * 1000}), "prepends a text"),
    ("unigram", normalizing(*[{"type": "NFC"}] * 40), "steps of normalization, more than 16"),
    ("unigram", normalizing(with_table("x" * 100)), "replaces a character by more than 32|is not a valid tokenizer"),
]


@pytest.mark.parametrize(("kind", "edit", "message"), HOSTILE)
def test_C11_a_tokenizer_without_bounds_is_refused(saved, tmp_path, kind, edit, message):
    directory = change(saved, tmp_path, kind, "tokenizer.json", edit)
    with pytest.raises(UserError, match=rf"tokenizer\.json: .*({message})"):
        load_tokenizer(directory)


@pytest.mark.parametrize("kind", TRAIN)
def test_a_usual_tokenizer_is_accepted(saved, tmp_path, kind):
    assert load_tokenizer(saved / kind).size
    same = {"type": "Sequence", "normalizers": [replaced({"Regex": " {2,}"}, " "), replaced({"String": "``"}, '"')]}
    if kind == "unigram":
        directory = change(saved, tmp_path, kind, "tokenizer.json", normalizing(same))
        assert load_tokenizer(directory).decode(load_tokenizer(directory).encode("the  cat")) == "the cat"


def test_C11_an_ordinary_word_is_no_special_token(saved, tmp_path):
    directory = change(saved, tmp_path, "wordpiece", "special_tokens_map.json", lambda it: it.update(cls_token="the"))
    with pytest.raises(UserError, match="cls_token is 'the', which is an ordinary word; rename it"):
        load_tokenizer(directory)


def table(replacements):
    """Return a step that replaces ASCII characters, by the trie of SentencePiece's tables (a double array).

    The root leads to 256 ^ byte, and that to the value, an offset among the replacements, at 512 + byte.
    """
    units, texts = np.zeros(768, np.uint32), b"\0"
    units[0] = 256 << 10
    for character, text in replacements.items():
        byte = ord(character)
        units[256 ^ byte] = byte | 1 << 8 | ((256 ^ byte) ^ (512 + byte)) << 10
        units[512 + byte] = 1 << 31 | len(texts)
        texts += text.encode() + b"\0"
    content = units.nbytes.to_bytes(4, "little") + units.tobytes() + texts
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def library(*steps):
    content = json.loads(tokenizers.Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())
    content["normalizer"] = {"type": "Sequence", "normalizers": list(steps)}
    return tokenizers.Tokenizer.from_str(json.dumps(content))


@pytest.mark.seeds(200)
def test_C11_steps_do_not_multiply(seed):
    """Chains of tables in any order, among other steps; what they do to each character is tried where it is little."""
    rng = np.random.default_rng(seed)
    chain = [{chr(97 + link): chr(98 + link) * int(rng.integers(1, 8))} for link in range(rng.integers(1, 5))]
    steps = [table(link) for link in chain]
    if rng.random() < 0.3:
        steps = [steps[number] for number in rng.permutation(len(steps))]
    for _ in range(rng.integers(0, 3)):
        others = [{"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "NFKC"}]
        steps.insert(int(rng.integers(0, len(steps) + 1)), others[rng.integers(0, 4)])
    made = library(*steps)
    most = max(len(made.normalizer.normalize_str(character)) for character in "abcdef" + LONG_FORMS)
    if most > MAX_GROWTH:
        with pytest.raises(UserError, match="together replace a character by more than 32"):
            check_growth(made, Path("tokenizer.json"))
    else:
        check_growth(made, Path("tokenizer.json"))


def test_C11_sixteen_tables_of_32_are_refused_at_once(saved, tmp_path):
    """They would make 32 ** 16 characters of one."""
    tables = [table({chr(97 + link): chr(98 + link) * 32}) for link in range(15)]
    directory = change(saved, tmp_path, "unigram", "tokenizer.json", lambda it: it.update(normalizer=sequence(*tables)))
    with pytest.raises(UserError, match=r"tokenizer\.json: the steps of its normalizer together replace"):
        load_tokenizer(directory)


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


@pytest.mark.parametrize(("length", "accepted"), [(16, True), (128, True), (129, False), (10_000, False)])
def test_C11_a_piece_is_not_looked_up_at_each_character_at_any_length(saved, tmp_path, length, accepted):
    directory = change(
        saved, tmp_path, "unigram", "tokenizer.json", lambda it: it["model"]["vocab"].append(["a" * length, -9.0])
    )
    if accepted:
        assert load_tokenizer(directory).size
    else:
        with pytest.raises(UserError, match=f"has a piece of {length:,} characters, more than 128"):
            load_tokenizer(directory)
