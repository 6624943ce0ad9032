"""Pretrain, adapt, fine-tune and use bidirectional language encoders on your own text.

    >>> import unmask
    >>> model = unmask.load("RUN")                      # doctest: +SKIP
    >>> model.predict(["A text."])                      # doctest: +SKIP
    >>> model.tag("A text with Names in it.")           # doctest: +SKIP
    >>> model.answer("Who?", "A passage.")              # doctest: +SKIP
    >>> model.fill(["A text with a [MASK] in it."])     # doctest: +SKIP

Each command of the command line has a function (docs/python.md); `unmask.TextClassifier`, `unmask.TokenClassifier` and
`unmask.TextRegressor` are estimators for scikit-learn.
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
    from unmask.estimators import TextClassifier, TextRegressor, TokenClassifier
    from unmask.evaluation.evaluate import evaluate
    from unmask.finetuning.finetune import finetune
    from unmask.inference.commands import predict, write_features
    from unmask.inference.predictor import Predictor, load
    from unmask.pretraining.pretrain import pretrain
    from unmask.recipe import read_recipe, recipe_text, shipped
    from unmask.runs.overview import describe_run, list_runs
    from unmask.runs.plots import plot_runs
    from unmask.runs.summary import find_runs, read_run
    from unmask.schema import recipe_schema
    from unmask.text.documents import read_documents
    from unmask.tokenizers.bpe import train_bpe
    from unmask.tokenizers.extend import extend_tokenizer
    from unmask.tokenizers.load import load_tokenizer
    from unmask.tokenizers.train import train_tokenizer
    from unmask.tokenizers.unigram import train_unigram
    from unmask.tokenizers.word_level import train_words
    from unmask.tokenizers.wordpiece import train_wordpiece

_MODULES = {
    "Predictor": "unmask.inference.predictor",
    "TextClassifier": "unmask.estimators",
    "TextRegressor": "unmask.estimators",
    "TokenClassifier": "unmask.estimators",
    "build_corpus": "unmask.corpus.build",
    "describe_run": "unmask.runs.overview",
    "distill": "unmask.distillation.distill",
    "evaluate": "unmask.evaluation.evaluate",
    "extend_tokenizer": "unmask.tokenizers.extend",
    "find_runs": "unmask.runs.summary",
    "finetune": "unmask.finetuning.finetune",
    "list_runs": "unmask.runs.overview",
    "load": "unmask.inference.predictor",
    "load_tokenizer": "unmask.tokenizers.load",
    "open_corpus": "unmask.corpus.corpus",
    "plot_runs": "unmask.runs.plots",
    "predict": "unmask.inference.commands",
    "pretrain": "unmask.pretraining.pretrain",
    "read_documents": "unmask.text.documents",
    "read_recipe": "unmask.recipe",
    "read_run": "unmask.runs.summary",
    "recipe_schema": "unmask.schema",
    "recipe_text": "unmask.recipe",
    "shipped": "unmask.recipe",
    "train_bpe": "unmask.tokenizers.bpe",
    "train_tokenizer": "unmask.tokenizers.train",
    "train_unigram": "unmask.tokenizers.unigram",
    "train_wordpiece": "unmask.tokenizers.wordpiece",
    "train_words": "unmask.tokenizers.word_level",
    "write_features": "unmask.inference.commands",
}

__all__ = [
    "InputWarning",
    "Predictor",
    "TextClassifier",
    "TextRegressor",
    "TokenClassifier",
    "UnmaskError",
    "UserError",
    "__version__",
    "build_corpus",
    "describe_run",
    "distill",
    "evaluate",
    "extend_tokenizer",
    "find_runs",
    "finetune",
    "list_runs",
    "load",
    "load_tokenizer",
    "open_corpus",
    "plot_runs",
    "predict",
    "pretrain",
    "read_documents",
    "read_recipe",
    "read_run",
    "recipe_schema",
    "recipe_text",
    "shipped",
    "train_bpe",
    "train_tokenizer",
    "train_unigram",
    "train_wordpiece",
    "train_words",
    "write_features",
]


def __getattr__(name: str) -> object:
    """Import a public name on first access, so that the command line starts without importing torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'unmask' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return __all__
