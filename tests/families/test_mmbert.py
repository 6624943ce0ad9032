"""mmBERT (Marone et al. 2025): ModernBERT with Gemma's kind of tokenizer, which is used as it is."""

import json

import msgspec
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.load import load_tokenizer
from unmask.families.modernbert import ModernBertSettings
from unmask.model.model import load_model, save_model
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError

from .conftest import assert_exported, assert_served

TEXTS = ["the dog  sees a cat", " The Dog", "naïve 中文 🦊\n\tend", "", "a<mask> b <mask>c"]
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
SHAPE = {"layers": 4, "width": 16, "heads": 2, "feed_forward": 24, "positions": 40, "init_std": 0.3}
SETTINGS = ModernBertSettings(**SHAPE, local_base=160_000.0)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory, documents):
    """A directory with a small tokenizer of Gemma's kind."""
    directory = tmp_path_factory.mktemp("gemma")
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False)
    words = (word for text in documents for word in text.replace(" ", " ▁").split(" "))
    library.train_from_iterator(words, trainer)
    content = json.loads(library.to_str())
    vocabulary = content["model"]["vocab"]
    for token in bytes_:
        vocabulary[token] = len(vocabulary)
    (directory / "tokenizer.json").write_text(json.dumps(content))
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    names |= {"cls_token": "<bos>", "sep_token": "<eos>", "mask_token": "<mask>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def test_ids_and_texts_are_those_of_transformers(gemma):
    ours, theirs = load_tokenizer(gemma), transformers.AutoTokenizer.from_pretrained(gemma)
    assert ours.kind.name == "fallback_bpe"
    for text in TEXTS[:4]:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text).tolist() == expected, text
        assert ours.decode(ours.encode(text)) == text
    assert (ours.cls, ours.sep, ours.pad, ours.mask) == (2, 1, 0, 4)


def test_words_begin_after_spaces_and_bytes_continue_a_character(gemma):
    ours = load_tokenizer(gemma)
    ids = ours.encode("the dog sees 🦊")
    starts = ours.begins_word(ids)
    begins = [ours.decode(part).strip() for part in np.split(ids, np.flatnonzero(starts)[1:])]
    assert begins == ["the", "dog", "sees", "🦊"]


def test_another_bpe_with_byte_fallback_is_refused(gemma, tmp_path):
    content = json.loads((gemma / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"normalizer": None}))
    with pytest.raises(UserError, match="is of an unsupported kind"):
        load_tokenizer(tmp_path)


def test_a_published_directory_gives_the_same_logits_and_is_written_back(gemma, tmp_path):
    tokenizer = load_tokenizer(gemma)
    shape = {"num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        **shape,
        vocab_size=tokenizer.size,
        local_rope_theta=160_000.0,
        initializer_range=0.3,
        **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1, "cls_token_id": 2, "sep_token_id": 1},
    )
    theirs = transformers.ModernBertForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(gemma).save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError, match="transformers puts other special tokens around texts"):
        load_model(tmp_path / "theirs")  # none, as in a tokenizer.json without a post-processor
    names = ("<bos>", "<eos>")
    template = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B <eos>",
        special_tokens=[(name, tokenizer.encode(name)[0]) for name in names],
    )
    library = Tokenizer.from_file(str(tmp_path / "theirs" / "tokenizer.json"))
    library.post_processor = template
    library.save(str(tmp_path / "theirs" / "tokenizer.json"))
    model = load_model(tmp_path / "theirs")
    assert model.encoder.settings.local_base == 160_000
    logits = logits_of(model, "the dog sees a cat")
    save_model(tmp_path / "ours", model, "card")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    inputs = words("the dog sees a cat", return_tensors="pt")
    for other in (theirs, again):
        expected = other(inputs["input_ids"]).logits[0]
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5 * float(expected.detach().abs().max()))


@torch.no_grad()
def logits_of(model, text):
    """Return the masked-LM logits at each token of a text between its special tokens."""
    head = OBJECTIVES["masked_lm"]().build(BuildContext(model.encoder))
    assert not model.take("masked_lm", head)
    sample = Frame.of(model.tokenizer).wrap(model.tokenizer.encode(text)).named((0,))
    batch = collate([sample.add(positions={"masked": np.arange(len(sample))})])
    return head.predict(model.encoder, model.encoder.eval()(batch.tokens), batch)


def test_a_model_is_served(gemma):
    assert_served(SETTINGS, load_tokenizer(gemma))


@pytest.mark.exhaustive  # other ModernBERTs are exported in tests/inference
def test_a_model_is_exported(gemma, tmp_path):
    shorter = msgspec.structs.replace(SETTINGS, layers=2)  # a global and a local one
    assert_exported(shorter, load_tokenizer(gemma), tmp_path)
