"""Pretrain, adapt, fine-tune and use bidirectional language encoders on your own text.

    >>> import unmask
    >>> model = unmask.load("RUN")                      # doctest: +SKIP
    >>> model.predict(["A text."])                      # doctest: +SKIP
    >>> model.tag("A text with Names in it.")           # doctest: +SKIP
    >>> model.answer("Who?", "A passage.")              # doctest: +SKIP
    >>> model.fill(["A text with a [MASK] in it."])     # doctest: +SKIP

`unmask.pretrain`, `unmask.finetune`, `unmask.distill`, `unmask.read_recipe`, `unmask.build_corpus`,
`unmask.open_corpus`, `unmask.train_wordpiece`, `unmask.extend_tokenizer` and `unmask.load_tokenizer` correspond to the
commands of the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from unmask.errors import InputWarning, UnmaskError, UserError
from unmask.version import __version__

if TYPE_CHECKING:
    from unmask.corpus.build import build_corpus
    from unmask.corpus.corpus import open_corpus
    from unmask.distillation.distill import distill
    from unmask.finetuning.finetune import finetune
    from unmask.inference.predictor import Predictor, load
    from unmask.pretraining.pretrain import pretrain
    from unmask.recipe import read_recipe
    from unmask.tokenizers.bpe import train_bpe
    from unmask.tokenizers.extend import extend_tokenizer
    from unmask.tokenizers.load import load_tokenizer
    from unmask.tokenizers.unigram import train_unigram
    from unmask.tokenizers.word_level import train_words
    from unmask.tokenizers.wordpiece import train_wordpiece

_MODULES = {
    "build_corpus": "unmask.corpus.build",
    "distill": "unmask.distillation.distill",
    "extend_tokenizer": "unmask.tokenizers.extend",
    "finetune": "unmask.finetuning.finetune",
    "Predictor": "unmask.inference.predictor",
    "load": "unmask.inference.predictor",
    "load_tokenizer": "unmask.tokenizers.load",
    "open_corpus": "unmask.corpus.corpus",
    "pretrain": "unmask.pretraining.pretrain",
    "read_recipe": "unmask.recipe",
    "train_bpe": "unmask.tokenizers.bpe",
    "train_unigram": "unmask.tokenizers.unigram",
    "train_wordpiece": "unmask.tokenizers.wordpiece",
    "train_words": "unmask.tokenizers.word_level",
}

__all__ = [
    "InputWarning",
    "Predictor",
    "UnmaskError",
    "UserError",
    "__version__",
    "build_corpus",
    "distill",
    "extend_tokenizer",
    "finetune",
    "load",
    "load_tokenizer",
    "open_corpus",
    "pretrain",
    "read_recipe",
    "train_bpe",
    "train_unigram",
    "train_wordpiece",
    "train_words",
]


def __getattr__(name: str) -> object:
    """Import a public name on first access, so that the command line starts without importing torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'unmask' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return __all__
