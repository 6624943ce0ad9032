"""Train a WordPiece vocabulary on one's own text.

In: texts. Out: a `Tokenizer` with BERT's normaliser; special tokens have the ids 0 to 4, then come all characters,
those of them that continue a word (##), and the merged pieces in the order of merging. The same texts give the same
vocabulary.

Wu et al. 2016, section 4.1. As in BERT's successors the pieces are merged by frequency (byte-pair encoding), not by
likelihood: Google never published the trainer of BERT.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from unmask.errors import UserError
from unmask.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer, bert_wordpiece

_PREFIX = "##"
_REPEATS = 10_000  # words in one text for the trainer
_LONGEST_WORD = 100  # characters; WordPiece reads what is longer as [UNK], so nothing is to be learned from it


def train_wordpiece(texts: Iterable[str], *, size: int, lowercase: bool = True, progress: bool = False) -> Tokenizer:
    """Train a vocabulary.

    Args:
        texts: read once; what is kept of them are the counts of their words.
        size: how many pieces the vocabulary shall have at most, special tokens included; a small text gives fewer,
            because what occurs only once is not merged.
        lowercase: lower-case and strip accents, in training and in use.
        progress: show a progress bar on standard error.

    Returns:
        The tokenizer.

    Raises:
        UserError: there is no text, or its characters alone are more than `size`.
    """
    words = _count_words(texts, lowercase, progress)
    if not words:
        raise UserError("there is no text to train a tokenizer on")
    characters = sorted({character for word in words for character in word})
    continuing = sorted({_PREFIX + character for word in words for character in word[1:]})
    fixed = [*SPECIAL_TOKENS.values(), *characters, *continuing]
    if size < len(fixed):
        raise UserError(
            f"a vocabulary of {size} is too small for the characters of this text",
            remedy=f"it needs at least {len(fixed)} pieces",
        )
    # The library numbers continuing characters in the order of a hash map, which differs from run to run and breaks
    # ties between merges. Named beforehand, as if they were special tokens, they have the same numbers in every run.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS.values(), *continuing],
        show_progress=progress,
    )
    library = tokenizers.Tokenizer(models.WordPiece())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(_repeat(words), trainer)
    trained = library.get_vocab()
    merged = sorted(trained.keys() - set(fixed), key=trained.__getitem__)
    vocabulary = {piece: id for id, piece in enumerate([*fixed, *merged])}
    return Tokenizer(bert_wordpiece(vocabulary, lowercase=lowercase))


def _count_words(texts: Iterable[str], lowercase: bool, progress: bool) -> dict[str, int]:
    """Count words as BERT cuts them: in the library, on all cores. It shows them only in a trainer's pickled state."""
    trainer = trainers.WordPieceTrainer(vocab_size=0, show_progress=progress)
    bert_wordpiece({"[UNK]": 0}, lowercase=lowercase).train_from_iterator(texts, trainer)
    state = json.loads(trainer.__getstate__())
    words: dict[str, int] = state["WordPieceTrainer"]["bpe_trainer"]["words"]
    return {word: count for word, count in words.items() if len(word) <= _LONGEST_WORD}


def _repeat(words: dict[str, int]) -> Iterator[str]:
    """Write each word as often as it was counted, for a trainer that reads only texts."""
    for word, count in sorted(words.items()):
        for start in range(0, count, _REPEATS):
            yield f"{word} " * min(_REPEATS, count - start)
