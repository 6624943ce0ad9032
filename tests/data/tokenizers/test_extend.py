"""Extended vocabularies: the same ids as transformers, old text is encoded as before, and what is learned."""

import json
import lzma
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from unmask.data.tokenizers import extend
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.extend import difference, learn_tokens, old_ids
from unmask.data.tokenizers.load import load_tokenizer
from unmask.support.errors import UserError

DOMAIN = [
    "Hepatitis and nephritis, 彼得: the hepatitis near the nephritis ward. 4711 4711!",
    "Der Größenwahn; hepatocyte, hepatitis? (hepatitis) naïve café don't 😀",
    "the typo hepatitsi",
] * 6
WORDS = [
    "hepatitis",
    "Hepatitis",
    "nephritis",
    "hepato",
    "the",
    "dog",
    "house,",
    "彼得",
    "Größe",
    "4711",
    "😀",
    "[MASK]",
]
TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.characters(codec="utf-8")), max_size=12).map(" ".join)
KINDS = ("wordpiece", "bpe", "unigram", "word_bpe")


@pytest.fixture(scope="session")
def pairs(bpe, unigram, tokenizer, tmp_path_factory):
    """Tokenizers of all kinds, each with its extension."""
    folder = tmp_path_factory.mktemp("word_bpe")
    letters = [*"abcdefghijklmnoprstuvwyzöß", ",", "."]
    merges = [("t", "h"), ("th", "e</w>"), ("p", "h"), ("i", "s</w>")]
    vocabulary = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges)]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(vocabulary)}))
    (folder / "merges.txt").write_text("".join(f"{first} {second}\n" for first, second in merges))
    found = {"wordpiece": tokenizer, "bpe": bpe, "unigram": unigram, "word_bpe": load_tokenizer(folder)}
    return {kind: (old, learn_tokens(old, DOMAIN, add=12)) for kind, old in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_has_fewer_tokens(pairs, kind):
    old, extension = pairs[kind]
    new = extension.tokenizer
    assert 0 < new.size - old.size == len(extension.parts) <= 12
    assert new.tokens(range(old.size)) == old.tokens(range(old.size))
    assert [*extension.parts] == new.tokens(range(old.size, new.size))
    assert (new.pad, new.unk, new.cls, new.sep, new.mask) == (old.pad, old.unk, old.cls, old.sep, old.mask)
    assert extension.before == sum(map(len, old.encode_many(DOMAIN)))
    assert extension.after == sum(map(len, new.encode_many(DOMAIN))) < extension.before
    assert len(new.encode(" hepatitis")) < len(old.encode(" hepatitis"))
    assert not any(character.isdigit() for token in extension.parts for character in token), "numbers are no words"
    assert difference(old, new) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_has_the_same_ids_here_and_in_transformers(pairs, kind, tmp_path, same_ids):
    new = pairs[kind][1].tokenizer
    new.save(tmp_path)
    assert load_tokenizer(tmp_path).sha256 == new.sha256
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert len(theirs) == new.size
    same_ids(new, theirs, [*DOMAIN[:3], "The dog sees the hepatitises.", "[MASK] <mask> </s>"])


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_text_without_new_tokens_is_encoded_as_before(pairs, kind, text):
    old, extension = pairs[kind]
    new = extension.tokenizer
    before, after = old.encode(text).tolist(), new.encode(text).tolist()
    if kind in ("bpe", "word_bpe"):  # each new token stands for what was there before
        parts = old_ids(old, new)
        assert [one for id in after for one in (parts[id - old.size] if id >= old.size else [id])] == before
    elif max(after, default=0) < old.size:
        assert after == before
    else:  # a new token is the start of a word
        starts = [token.removeprefix("▁").removeprefix("##") for token in extension.parts]
        normal = old._library.normalizer.normalize_str(text)
        assert any(start in normal for start in starts)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        *("bert-base-uncased", "roberta-base-hf", "albert-v1v2-en"),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("bert-base-cased", "gpt2")),
    ],
)
def test_published_vocabularies_over_real_text(shared, tmp_path, name, same_ids):
    with lzma.open(shared / "data/text/wikinews/heldout.jsonl.xz", "rt", encoding="utf8") as file:
        texts = [json.loads(line)["text"] for line in file][:25]
    old = load_tokenizer(shared / "vocabularies" / name)
    extension = learn_tokens(old, texts, add=5)
    new = extension.tokenizer
    assert new.size == old.size + 5
    assert difference(old, new) == ""
    assert extension.before == sum(map(len, old.encode_many(texts)))
    assert extension.after == sum(map(len, new.encode_many(texts))) < extension.before - 24  # each 5 times
    new.save(tmp_path, length=100_000)
    same_ids(load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path), texts)


def test_the_words_that_save_most_come_first_and_rare_ones_are_not_taken(tokenizer):
    texts = ["hepatitis nephritis"] * 5 + ["nephritis"] * 5 + ["arthritis"] * 4 + ["12345"] * 9
    assert list(learn_tokens(tokenizer, texts, add=1).parts) == ["nephritis"]
    assert list(learn_tokens(tokenizer, texts, add=9).parts) == ["nephritis", "hepatitis"]
    assert "arthritis" in learn_tokens(tokenizer, texts, add=9, min_count=4).parts


def test_the_same_text_gives_the_same_vocabulary_in_any_order(pairs):
    for old, extension in pairs.values():
        again = learn_tokens(old, reversed(DOMAIN), add=12)
        assert again.tokenizer.sha256 == extension.tokenizer.sha256


def test_an_extended_tokenizer_can_be_extended(pairs):
    for old, extension in pairs.values():
        again = learn_tokens(extension.tokenizer, ["The glomerulus near the glomerulus."] * 5, add=3).tokenizer
        assert difference(extension.tokenizer, again) == difference(old, again) == ""
        assert again.size > extension.tokenizer.size


def test_no_word_of_the_text_becomes_unknown(tmp_path):
    """`cat` would be the first token of `cathe`, but what remains has no token: there is no `##h`."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ca", "s", "##t", "##a", "##the"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf8")
    old = load_tokenizer(tmp_path)
    texts = ["cat cat sat"] * 5
    assert list(learn_tokens(old, texts, add=2).parts) == ["cat", "sat"]
    extension = learn_tokens(old, [*texts, "cathe"], add=1)
    assert list(extension.parts) == ["sat"]
    assert extension.tokenizer.tokens(extension.tokenizer.encode("cathe")) == ["ca", "##the"]


SCRIPTS = {
    "Chinese": (0x4E00, 0x4E80),
    "Japanese": (0x3041, 0x3090),
    "Cyrillic": (0x0430, 0x0450),
    "Greek": (0x03B1, 0x03C9),
    "Hebrew": (0x05D0, 0x05EA),
    "Arabic": (0x0621, 0x063A),
    "Georgian": (0x10D0, 0x10F0),
    "Armenian": (0x0561, 0x0586),
    "Hangul": (0xAC00, 0xAC40),
    "Thai": (0x0E01, 0x0E2E),
}
"""Letters of scripts that English vocabularies lack: the first, and the one after the last."""


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_characters_that_the_vocabulary_lacks_are_learned(pairs, kind, script, tmp_path, same_ids):
    rng = random.Random(script)
    letters = [chr(code) for code in range(*SCRIPTS[script])]
    words = ["".join(rng.choices(letters, k=rng.randint(1, 4))) for _ in range(60)]
    texts = [" ".join(["The dog", *rng.choices(words, k=6)]) for _ in range(80)]
    old = pairs[kind][0]
    extension = learn_tokens(old, texts, add=2000, min_count=1)
    ids = extension.tokenizer.encode_many(texts)
    lost = sum(int((row == old.unk).sum()) for row in old.encode_many(texts))
    assert lost > 0
    assert extension.unknown_before >= lost, "unigram reads several unknown characters as one token"
    assert extension.unknown_after == sum(int((row == old.unk).sum()) for row in ids) == 0
    assert f"of them {extension.unknown_before:,} are unknown before, 0 after" in extension.summary(2000)
    extension.tokenizer.save(tmp_path)
    same_ids(extension.tokenizer, AutoTokenizer.from_pretrained(tmp_path), texts)
    few = learn_tokens(old, texts, add=20)
    assert 0 < few.unknown_after < few.unknown_before
    assert difference(old, few.tokenizer) == ""


@pytest.mark.parametrize(
    ("texts", "more", "message"),
    [
        (["hepatitis"] * 9, {"add": 0}, "the number of new tokens must be at least 1, not 0"),
        (["hepatitis"] * 9, {"add": 1, "min_count": 0}, "the minimum count must be at least 1, not 0"),
        ([" ", ""], {"add": 1}, "there is no text to learn new tokens from"),
        (["hepatitis"] * 4, {"add": 1}, "there is nothing to learn: every word that occurs at least 5 times is a"),
        (["the dog sees the cat 12345 67890"] * 9, {"add": 1}, "there is nothing to learn"),
        ("hepatitis", {"add": 1}, "is one text; give an iterable of texts"),
    ],
)
def test_mistakes(tokenizer, texts, more, message):
    with pytest.raises(UserError, match=message):
        learn_tokens(tokenizer, texts, **more)


def test_tokens_after_the_vocabulary_are_no_obstacle_only_if_they_are_special(tokenizer_directory, monkeypatch):
    words = load_tokenizer(tokenizer_directory)
    words._library.add_tokens(["covid-19"])
    words = words.with_model(words.definition["model"])
    with pytest.raises(UserError, match=r"tokens were added after the vocabulary, .* extended: covid-19; use the"):
        learn_tokens(words, DOMAIN, add=3)
    monkeypatch.setattr(extend, "_LEARN", {})
    with pytest.raises(UserError, match="a vocabulary of the kind wordpiece cannot be extended"):
        learn_tokens(words, DOMAIN, add=3)


def test_the_summary_has_counts_and_examples(tokenizer):
    extension = learn_tokens(tokenizer, ["hepatitis"] * 5, add=1)
    tokens, examples = extension.summary(1)
    parts = tokenizer.tokens(tokenizer.encode("hepatitis"))
    assert tokens == f"the text has {5 * len(parts)} tokens before, 5 after ({1 - 1 / len(parts):.1%} fewer)"
    assert examples == f"new tokens: hepatitis ({' '.join(parts)})"
    assert extension.summary(2)[0] == "the text has only 1 new token to learn, not 2"


def test_the_summary_shows_bytes_as_text():
    words = train_bpe(["the dog is here"] * 3, size=300)
    *_, examples = learn_tokens(words, ["日本 über"] * 9, add=8).summary(8)
    shown = examples.removeprefix("new tokens: ")
    assert r"\xe6\x97 (\xe6 \x97)" in shown and r"über (\xc3 \xbc b e r)" in shown
    assert not {*"ĠÃ¼æ"} & {*shown}
