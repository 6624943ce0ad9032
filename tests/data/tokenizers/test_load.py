"""Tests of loading tokenizers from directories: precedence of the files, and corrupt files, which are named."""

import json

import pytest

from unmask.data.batches.frame import adopt_framing
from unmask.data.tokenizers.load import load_tokenizer, read_length
from unmask.support.errors import UserError

from .conftest import VOCABULARY


def test_case_is_inferred_from_the_tokens_or_configured(directory):
    (directory / "vocab.txt").write_text("\n".join([*VOCABULARY, "Cat"]), encoding="utf-8")
    assert not load_tokenizer(directory).lowercase
    assert load_tokenizer(directory).encode("é").tolist() == [14]
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": False}))
    assert load_tokenizer(directory).encode("Cat É").tolist() == [6, 14]
    load_tokenizer(directory).save(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert load_tokenizer(directory).encode("Cat").tolist() == [15]


def test_special_tokens_may_have_other_names(directory):
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    (directory / "vocab.txt").write_text("\n".join([*VOCABULARY[5:], *names]), encoding="utf-8")
    roles = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]
    special = {role: {"content": name, "lstrip": False} for role, name in zip(roles, names, strict=True)}
    (directory / "special_tokens_map.json").write_text(json.dumps(special))
    tokenizer = load_tokenizer(directory)
    assert tokenizer.encode("cat<mask> zzz").tolist() == [1, 14, 11]
    tokenizer.save(directory / "saved")
    assert load_tokenizer(directory / "saved").sha256 == tokenizer.sha256


def damaged(directory, name, content):
    for path in directory.iterdir():
        path.unlink()
    if name:
        (directory / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_tokenizer(directory)
    return str(caught.value)


def test_C11_corrupt_tokenizer_is_named(directory):
    load_tokenizer(directory).save(directory)
    content = (directory / "tokenizer.json").read_bytes()
    path = directory / "tokenizer.json"
    assert "contains none of tokenizer.json, vocab.txt" in damaged(directory, None, b"")
    for broken in (content[:-30], b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": 1}'):
        assert damaged(directory, path.name, broken).startswith(f"{path}: is not ")
    for broken in (b'"version": "2.0"', b'"version": null'):
        assert str(path) in damaged(directory, path.name, content.replace(b'"version": "1.0"', broken))
    other = json.loads(content) | {"normalizer": None}
    assert "BERT's normalizer" in damaged(directory, path.name, json.dumps(other).encode())
    other = json.loads(content)
    other["model"]["continuing_subword_prefix"] = "@@"
    assert "marks continuations of words by '@@', not by '##' as BERT does" in damaged(
        directory, path.name, json.dumps(other).encode()
    )
    gap = json.loads(content)
    gap["model"]["vocab"]["cat"] = 70
    assert "are not 0 to 14" in damaged(directory, path.name, json.dumps(gap).encode())


def test_C11_corrupt_vocabulary_is_named(directory):
    path = directory / "vocab.txt"
    assert damaged(directory, "vocab.txt", b"") == f"{path}: the vocabulary is empty"
    twice = "\n".join([*VOCABULARY, "cat"]).encode()
    assert damaged(directory, "vocab.txt", twice) == f"{path}:16: 'cat' is also in line 7"
    assert "lacks [CLS], [MASK]" in damaged(directory, "vocab.txt", b"[PAD]\n[UNK]\n[SEP]\na\n")
    assert "is not UTF-8" in damaged(directory, "vocab.txt", b"[PAD]\n\xff\n")


def test_C11_corrupt_configuration_is_named(directory):
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (directory / name).write_text('{"do_lower')
        with pytest.raises(UserError, match=name):
            load_tokenizer(directory)
        (directory / name).write_text("{}")


def test_spaces_after_tokens_are_no_part_of_them(directory):
    """As in transformers; files that were edited by hand have some, and their tokens were never found."""
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY))
    expected = load_tokenizer(directory).sha256
    (directory / "vocab.txt").write_text("".join(f"{token}{' ' * (id % 3)}\t\n" for id, token in enumerate(VOCABULARY)))
    assert load_tokenizer(directory).sha256 == expected


@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "BertTokenizer", "do_lower_case": True}])
def test_a_vocabulary_without_its_unknown_token_is_refused(directory, settings):
    """transformers adds the token, but not to the model, which fails at the first unknown word."""
    (directory / "vocab.txt").write_text("".join(f"{token}\t{id}\n" for id, token in enumerate(VOCABULARY)))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"vocab\.txt: the vocabulary lacks .*\[UNK\]"):
        load_tokenizer(directory)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_files_that_disagree_are_read_as_transformers_does(directory, name):
    from transformers import AutoTokenizer

    words = load_tokenizer(directory)
    words.save(directory)
    path = directory / name
    other = next(token for token in words.tokens(range(5, words.size)) if not token.isalpha())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mask_token": other}))
    assert load_tokenizer(directory).mask_token == AutoTokenizer.from_pretrained(directory).mask_token


@pytest.mark.shared
def test_published_vocabulary_and_tokenizer_json_agree(shared, tmp_path):
    source = shared / "vocabularies" / "bert-base-uncased"
    (tmp_path / "vocab.txt").write_bytes((source / "vocab.txt").read_bytes())
    assert load_tokenizer(tmp_path).sha256 == load_tokenizer(source).sha256


def test_a_wordpiece_vocabulary_without_special_tokens_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(UserError, match="lacks"):
        load_tokenizer(tmp_path)


def test_damaged_vocabularies_and_merges_are_named(bpe, tmp_path):
    bpe.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    merges = (tmp_path / "merges.txt").read_text(encoding="utf8").splitlines()
    (tmp_path / "merges.txt").write_text("\n".join([*merges[:3], "three pieces here", *merges[3:]]), encoding="utf8")
    with pytest.raises(UserError, match=r"merges\.txt:4: not two tokens separated by a space"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("\n".join([*merges, "zzz qqq"]), encoding="utf8")
    with pytest.raises(UserError, match=r"vocab\.json: does not match merges\.txt"):
        load_tokenizer(tmp_path)
    vocabulary = json.loads((tmp_path / "vocab.json").read_text(encoding="utf8"))
    for id, message in ((2**40, "are not 0 to"), ("a", "is not a table of ids"), (-1, "are not 0 to")):
        (tmp_path / "vocab.json").write_text(json.dumps(vocabulary | {"!": id}), encoding="utf8")
        with pytest.raises(UserError, match=rf"vocab\.json: .*{message}"):
            load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"merges\.txt: cannot be read"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(UserError, match="the vocabulary"):
        load_tokenizer(tmp_path)


def test_a_unigram_model_needs_an_unknown_token_but_no_normalizer(unigram, tmp_path):
    unigram.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf8"))
    content["normalizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    plain = load_tokenizer(tmp_path)
    plain.save(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").sha256 == plain.sha256
    content["model"]["unk_id"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    with pytest.raises(UserError, match="unk_id"):
        load_tokenizer(tmp_path)


def test_other_pre_tokenizers_are_refused(unigram, tmp_path):
    unigram.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf8"))
    content["pre_tokenizer"]["pretokenizers"][0] = {"type": "Whitespace"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    assert load_tokenizer(tmp_path).sha256 == unigram.sha256, "ALBERT's class splits texts as it always does"
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(UserError, match="is of an unsupported kind; use WordPiece"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("value", "length"), [(77, 77), (3, 3), (2, 512), (10**30, 512), ("77", 512), (None, 512), (1e6, 512)]
)
def test_the_length_is_that_of_the_configuration_where_it_is_sensible(tmp_path, value, length):
    assert read_length(tmp_path) == 512, "without a configuration"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": value}))
    assert read_length(tmp_path) == length


def test_settings_of_the_normalizer_must_be_true_or_false(directory):
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(UserError, match=r"tokenizer_config\.json: do_lower_case, .* must be true or false"):
        load_tokenizer(directory)


def test_tokenizer_json_takes_precedence_over_vocab_txt(directory):
    load_tokenizer(directory).save(directory)
    (directory / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nother\n")
    assert load_tokenizer(directory).size == 15


TWICE = [("SpecialToken" if id[1:] else "Sequence", id) for id in ("[CLS]", "A", "[SEP]", "[SEP]", "B", "[SEP]")]
OTHERS = {
    "longer words": lambda content: content["model"].update(max_input_chars_per_word=10),
    "control characters": lambda content: content["normalizer"].update(clean_text=False),
    "two separators": lambda content: content["post_processor"].update(
        pair=[{kind: {"id": id, "type_id": 0}} for kind, id in TWICE]
    ),
    "whole words": lambda content: content["model"].update(ignore_merges=True),
    "one word": lambda content: content["pre_tokenizer"].update(use_regex=False),
    "repeated spaces": lambda content: content.update(pre_tokenizer=content["pre_tokenizer"]["pretokenizers"][1]),
    "composed": lambda content: content.update(normalizer={"type": "NFKC"}),
}


@pytest.mark.parametrize(
    ("kind", "change"), [*zip(["tokenizer"] * 3 + ["bpe"] * 2 + ["unigram"] * 2, OTHERS, strict=True)]
)
def test_what_the_class_of_a_kind_would_change_is_saved_as_it_is(kind, change, request, tmp_path):
    """Published tokenizers whose `tokenizer.json` transformers takes as it is; then ids and pairs remain the same."""
    from transformers import AutoTokenizer

    first, second = tmp_path / "first", tmp_path / "second"
    request.getfixturevalue(kind).save(first)
    content = json.loads((first / "tokenizer.json").read_text(encoding="utf8"))
    OTHERS[change](content)
    if kind == "bpe":  # a token that no merge makes
        content["model"]["vocab"]["Ġxyzzy"] = len(content["model"]["vocab"])
    (first / "tokenizer.json").write_text(json.dumps(content), encoding="utf8")
    config = json.loads((first / "tokenizer_config.json").read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    (first / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(first)
    adopt_framing(tokenizer, first)
    tokenizer.save(second, segments=tokenizer.segments)
    again, before, after = load_tokenizer(second), *map(AutoTokenizer.from_pretrained, (first, second))
    adopt_framing(again, second)
    assert again.sha256 == tokenizer.sha256
    assert (again.ends_twice, again.segments) == (tokenizer.ends_twice, tokenizer.segments)
    for text in ("a dog  likes\tthe xyzzy sea", "unbelievable\x00 ﬁre, bâtiment", ""):
        assert before(text, "the sea").input_ids == after(text, "the sea").input_ids
        assert again.encode(text).tolist() == after.encode(text, add_special_tokens=False)
