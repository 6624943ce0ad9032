"""What is checked and reckoned before a run."""

import numpy as np
import pytest

from unmask.batches.batch import Sample, collate
from unmask.corpus.build import build_corpus
from unmask.errors import UserError
from unmask.pretraining import guess, pretrain
from unmask.recipe import read_recipe
from unmask.tokenizers.load import load_tokenizer


def batch(hidden, pair=None):
    sample = Sample(
        key=(0,),
        ids=np.arange(8),
        segments=np.zeros(8, np.int64),
        labels={"hidden": np.array(hidden, np.int64)} | ({} if pair is None else {"next_sentence": np.array([pair])}),
    )
    return collate([sample])


def test_a_guess_is_scored_where_tokens_are_hidden():
    assert guess([batch([7, 7, 5]), batch([7, 4, 4])], 7) == {"masked_lm_accuracy": pytest.approx(0.5)}


def test_pairs_are_guessed_by_halves():
    assert guess([batch([], pair=1)], 7) == {"next_sentence_accuracy": 0.5}


def test_swapped_pairs_and_generators_are_guessed_too():
    sample = Sample(
        key=(0,),
        ids=np.arange(8),
        segments=np.zeros(8, np.int64),
        labels={"hidden": np.array([7, 5]), "sentence_order": np.array([1])},
        counts={"generator": 2},
    )
    assert guess([collate([sample])], 7) == {"generator_accuracy": 0.5, "sentence_order_accuracy": 0.5}


def test_whole_words_need_words_of_several_pieces(documents, tmp_path):
    letters = sorted({character for text in documents for character in text.lower() if not character.isspace()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf8")
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    corpus = build_corpus([tmp_path / "text.txt"], load_tokenizer(tmp_path), tmp_path / "corpus", report=lambda _: None)
    for kind in ("whole_word", "ngram", "span"):
        recipe = read_recipe("bert-tiny", [f"masking.kind={kind}", "budget.steps=1"])
        with pytest.raises(UserError, match="every piece is a word, so that whole words are single tokens"):
            pretrain(recipe, corpus, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
