"""A tokenizer that extends another one is recognized exactly, and so are the old tokens of each new token."""

import copy
import re

import pytest

from unmask.data.tokenizers.extend import difference, learn_tokens, new_tokens, old_ids
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.wordpiece import train_wordpiece

DOMAIN = ["The hepatitis near the nephritis."] * 5


@pytest.fixture(scope="session")
def extended(tokenizer, bpe, unigram):
    """Tokenizers, each with its extension."""
    return {old.kind.name: (old, learn_tokens(old, DOMAIN, add=4).tokenizer) for old in (tokenizer, bpe, unigram)}


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_an_extension_and_the_same_tokenizer_have_no_difference(extended, kind, tmp_path):
    old, new = extended[kind]
    new.save(tmp_path)
    assert difference(old, new) == difference(old, load_tokenizer(tmp_path)) == difference(old, old) == ""
    assert difference(new, old) == f"it has {old.size:,} tokens instead of {new.size:,}"
    other = next(one for name, (_, one) in extended.items() if name != kind)
    assert difference(old, other) == f"its kind is {other.kind.name}, not {kind}"


def swap(vocabulary, first, second):
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def lower_score(model):
    model["vocab"][20][1] -= 1


def another_merge(model):
    """Return two tokens whose concatenation is a token that is merged from other ones."""
    tokens = model["vocab"]
    ways = ([token[:at], token[at:]] for token in tokens for at in range(1, len(token)))
    return next(way for way in ways if way not in model["merges"] and tokens.keys() >= set(way))


FAULTS = {
    "two old ids": ("wordpiece", lambda model: swap(model["vocab"], "the", "dog"), "token [0-9]+ is '.*' instead of"),
    "an old token": (
        "wordpiece",
        lambda model: model["vocab"].update(fog=model["vocab"].pop("dog")),
        "is 'fog' instead of 'dog'",
    ),
    "two old merges": ("bpe", lambda model: swap(model["merges"], 0, 1), "other merges or scores of the old tokens"),
    "a missing merge": ("bpe", lambda model: model["merges"].pop(3), "other merges or scores of the old tokens"),
    "a merge into an old token": (
        "bpe",
        lambda model: model["merges"].append(another_merge(model)),
        "it merges '.*' and '.*' into an old token",
    ),
    "an old score": ("unigram", lower_score, "other merges or scores of the old tokens"),
    "how unknown words are split": (
        "wordpiece",
        lambda model: model.update(max_input_chars_per_word=50),
        "other merges or scores",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(extended, fault):
    kind, change, message = FAULTS[fault]
    old, new = extended[kind]
    model = copy.deepcopy(new.definition["model"])
    model["vocab"] = [list(entry) for entry in model["vocab"]] if kind == "unigram" else model["vocab"]
    change(model)
    assert re.search(message, difference(old, new.with_model(model)))


def test_another_normalizer_is_a_difference(tokenizer, documents):
    cased = train_wordpiece(documents, size=200, lowercase=False).with_model(tokenizer.definition["model"])
    assert difference(tokenizer, cased) == "it has another normalizer"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_parts_of_new_tokens(extended, kind):
    old, new = extended[kind]
    for id, parts in enumerate(old_ids(old, new), start=old.size):
        if kind == "bpe":
            assert "".join(old.tokens(parts)) == new.token(id)
        else:
            assert parts == old.encode(new.decode([id])).tolist()
            assert len(parts) > 1


def test_tokens_added_by_other_programs(tokenizer):
    model = copy.deepcopy(tokenizer.definition["model"])
    model["vocab"]["##river"] = tokenizer.size
    new = tokenizer.with_model(model)
    new._library.add_tokens(["dog-house", " "])
    new = new.with_model(model)
    assert difference(tokenizer, new) == ""
    assert new_tokens(tokenizer, new) == ["##river", "dog-house", " "]
    river, house, space = old_ids(tokenizer, new)
    assert tokenizer.tokens(river) == tokenizer.tokens(tokenizer.encode("sriver"))[1:], "within a word"
    assert house == tokenizer.encode("dog-house").tolist()
    assert space == [tokenizer.unk]


def test_a_larger_vocabulary_of_the_same_text_extends_a_smaller_one(documents, tokenizer):
    """Merges are learned one after the other, so that the first 150 tokens are the same."""
    small = train_wordpiece(documents, size=150)
    assert difference(small, tokenizer) == ""
    for token, parts in zip(new_tokens(small, tokenizer), old_ids(small, tokenizer), strict=True):
        written = [part.removeprefix("##") for part in small.tokens(parts)]
        assert "".join(written) == token.removeprefix("##")
        assert all(part.startswith("##") for part in small.tokens(parts)[not token.startswith("##") :])
