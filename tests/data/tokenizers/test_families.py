"""Tokenizers of XLM-RoBERTa, CamemBERT, DeBERTa and MPNet, as transformers saves them: the same ids and pairs."""

import json

import pytest
import transformers

from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.unigram import DEBERTA_UNIGRAM, FAIRSEQ_UNIGRAM
from unmask.data.tokenizers.wordpiece import MPNET_WORDPIECE
from unmask.support.errors import UserError

from .test_spiece import spiece

PIECES = [(piece, -float(number)) for number, piece in enumerate(["▁", "the", "▁the", "▁cat", "s", ".", "é", "c"], 1)]
TEXTS = ["the cats.", "  the  caté ", "The  zebra the", "the <mask> cat", "the\ncat", "", "the [MASK]."]
WORDS = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[PAD]",
    "[MASK]",
    "the",
    "cat",
    "##s",
    ".",
    "<mask>",
]


def fairseq(kind):
    special = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    return kind(vocab=[*special, *PIECES, ("<mask>", 0.0)])


MAKE = {
    "xlm_roberta": (lambda: fairseq(transformers.XLMRobertaTokenizer), FAIRSEQ_UNIGRAM),
    "camembert": (lambda: fairseq(transformers.CamembertTokenizer), FAIRSEQ_UNIGRAM),
    "deberta": (
        lambda: transformers.DebertaV2Tokenizer(
            vocab=[(f"[{name}]", 0.0) for name in ("PAD", "CLS", "SEP", "UNK")] + PIECES, unk_id=3
        ),
        DEBERTA_UNIGRAM,
    ),
    "deberta, punctuation": (
        lambda: transformers.DebertaV2Tokenizer(
            vocab=[(f"[{name}]", 0.0) for name in ("PAD", "CLS", "SEP", "UNK")] + PIECES, unk_id=3, split_by_punct=True
        ),
        DEBERTA_UNIGRAM,
    ),
    "mpnet": (lambda: transformers.MPNetTokenizer(vocab={word: id for id, word in enumerate(WORDS)}), MPNET_WORDPIECE),
}


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("name", MAKE)
def test_ids_are_those_of_transformers(name, configured, same_ids, tmp_path):
    make, kind = MAKE[name]
    theirs = make()
    theirs.save_pretrained(tmp_path)
    if not configured:
        (tmp_path / "tokenizer_config.json").unlink()
    ours = load_tokenizer(tmp_path)
    assert ours.kind.special == kind.special
    assert ours.ends_twice == kind.ends_twice
    assert (ours.pad, ours.mask) == (theirs.pad_token_id, theirs.mask_token_id)
    same_ids(ours, theirs, TEXTS)
    ours.save(tmp_path / "saved", segments=False)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").sha256 == ours.sha256
    same_ids(ours, again, TEXTS)
    assert again("the", "cat").input_ids == theirs("the", "cat").input_ids


def deberta(tmp_path, **config):
    special = [(f"[{name}]", 0.0) for name in ("UNK", "PAD", "CLS", "SEP")]
    (tmp_path / "spm.model").write_bytes(spiece([*special, *PIECES], b""))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(tmp_path)


def test_a_sentencepiece_model_of_deberta_is_read(tmp_path):
    tokenizer = deberta(tmp_path, do_lower_case=False, vocab_type="spm")
    assert tokenizer.tokens(tokenizer.encode("the  cats.")) == ["▁the", "▁cat", "s", "."]
    assert (tokenizer.mask, tokenizer.size) == (12, 13), "the mask token is added"
    assert tokenizer.encode("THE").tolist()[-1] == tokenizer.unk
    lower = deberta(tmp_path, do_lower_case=True)
    assert lower.tokens(lower.encode("THE")) == ["▁the"]


@pytest.mark.parametrize("config", [{}, {"do_lower_case": True}, {"do_lower_case": False, "keep_accents": True}])
def test_a_sentencepiece_model_of_xlnet_is_read(config, same_ids, tmp_path):
    special = [(name, 0.0) for name in ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")]
    pieces = [*special, *PIECES, ("T", -9.0), ("The", -9.0), ("h", -9.0), ("e", -9.0)]
    (tmp_path / "spiece.model").write_bytes(spiece(pieces, b""))
    (tmp_path / "config.json").write_text('{"model_type": "xlnet"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.XLNetTokenizer(vocab=pieces, **config)
    same_ids(load_tokenizer(tmp_path), theirs, ["The cats", "THE caté", "the  cat."])


def test_sentencepiece_models_with_other_ids_are_refused(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"")
    with pytest.raises(UserError, match=r"sentencepiece\.bpe\.model.*add the tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_xlnet_is_not_taken_for_roberta(unigram, tmp_path):
    """Its vocabulary has the special tokens of both."""
    special = [(name, 0.0) for name in ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>")]
    unigram.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"] |= {"vocab": [*special, *PIECES], "unk_id": 0}
    content |= {"added_tokens": [], "post_processor": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"lacks \[CLS\]"):
        load_tokenizer(tmp_path)
