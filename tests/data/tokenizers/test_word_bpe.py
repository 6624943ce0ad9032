"""Tests of GPT's BPE, and of GPT-2's: same ids as transformers; missing special tokens are added."""

import shutil

import pytest
import torch
from transformers import AutoTokenizer, GPT2Tokenizer, OpenAIGPTConfig, OpenAIGPTLMHeadModel, OpenAIGPTTokenizer

from unmask.data.batches.batch import Sample, collate
from unmask.data.tokenizers.bpe import BPE, WORD_BPE
from unmask.data.tokenizers.load import load_tokenizer
from unmask.model.model import load_model, save_model
from unmask.support.errors import UserError

MERGES = [("t", "h"), ("th", "e</w>"), ("d", "o"), ("do", "g</w>"), ("s", "e"), ("se", "a</w>"), ("b", "r")]
LETTERS = "abcdefghijklmnopqrstuvwxyz.,!'"
PIECES = ["<unk>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), *map("".join, MERGES)]
TEXTS = ["The dog sees the sea, the bridge.", "Don't!", "näive 彼 the 😀", "", "x  y\tz"]


@pytest.fixture
def theirs(tmp_path):
    tokenizer = OpenAIGPTTokenizer({piece: id for id, piece in enumerate(PIECES)}, MERGES)
    tokenizer.save_pretrained(tmp_path / "gpt")
    tokenizer._tokenizer.model.save(str(tmp_path / "gpt"))
    return tokenizer


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_ids_are_those_of_transformers(theirs, tmp_path, name, same_ids):
    if name == "vocab.json":
        (tmp_path / "gpt/tokenizer.json").unlink()
    ours = load_tokenizer(tmp_path / "gpt")
    same_ids(ours, theirs, TEXTS)
    assert (ours.kind, ours.lowercase, ours.isolates_chinese, ours.ends_twice) == (WORD_BPE, True, True, False)
    assert (ours.unk, ours.added, ours.size) == (0, 4, len(PIECES) + 4)
    assert {ours.pad, ours.cls, ours.sep, ours.mask} == set(range(len(PIECES), len(PIECES) + 4))
    assert ours.decode(ours.encode("The dog.")) == "the dog ."
    ids = ours.encode("the dogs, bridge")
    words = "".join("|" * bool(begins) + ours.token(id) for id, begins in zip(ids, ours.begins_word(ids), strict=True))
    assert words.replace("</w>", "") == "|the|dogs|,|bridge"


def test_what_is_saved_comes_back(theirs, tmp_path, same_ids):
    ours = load_tokenizer(tmp_path / "gpt")
    ours.save(tmp_path / "again", summary="extract")
    again = load_tokenizer(tmp_path / "again")
    assert (again.sha256, again.added, again.mask) == (ours.sha256, 4, ours.mask)
    reader = AutoTokenizer.from_pretrained(tmp_path / "again")
    same_ids(ours, reader, TEXTS)
    framed = reader("the dog", "the sea")["input_ids"]
    assert (framed[0], framed[-1]) == (ours.cls, ours.mask)
    assert framed.count(ours.sep) == 1


@pytest.mark.shared
def test_gpt2s_vocabulary_gets_special_tokens(shared, tmp_path, mixed_lines):
    source = shared / "vocabularies/gpt2"
    ours = load_tokenizer(source)
    assert (ours.kind, ours.size, ours.added) == (BPE, 50_257 + 4, 4)
    assert ours.token(ours.unk) == "<|endoftext|>"
    for old, new in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        shutil.copy(source / old, tmp_path / new)
    theirs = GPT2Tokenizer.from_pretrained(tmp_path)
    lines = [*mixed_lines, "an end<|endoftext|>and a beginning"]
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    for line, ids, there in zip(lines, ours.encode_many(lines), expected, strict=True):
        assert ids.tolist() == there, line


def test_a_published_model_gets_rows_for_them(theirs, tmp_path):
    """OpenAI's model keeps its outputs, gets four more embeddings, which are reported, and is saved and loaded."""
    torch.manual_seed(0)
    config = OpenAIGPTConfig(vocab_size=len(PIECES), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    published = OpenAIGPTLMHeadModel(config).eval()
    published.save_pretrained(tmp_path / "gpt")
    model = load_model(tmp_path / "gpt")
    assert model.created == ("4 special tokens",)
    assert model.encoder.vocabulary == len(PIECES) + 4
    ids = model.tokenizer.encode("the dog sees the sea").astype(int)
    tokens = collate([Sample(key=(), ids=ids, segments=ids * 0)]).tokens
    with torch.no_grad():
        ours = model.encoder.eval()(tokens).last
        last = published.transformer(torch.from_numpy(ids)[None]).last_hidden_state[0]
    assert (ours - last).abs().max() < 1e-5
    save_model(tmp_path / "again", model, "")
    again = load_model(tmp_path / "again")
    assert not again.created
    assert torch.equal(again.encoder.words.weight, model.encoder.words.weight)
    config.vocab_size = len(PIECES) - 1
    OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path / "gpt")
    with pytest.raises(UserError, match=r"tokens, but the model .* use the tokenizer that belongs to the model"):
        load_model(tmp_path / "gpt")
