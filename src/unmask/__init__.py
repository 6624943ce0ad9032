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

import os
from importlib import import_module
from typing import TYPE_CHECKING

from unmask.support import __version__
from unmask.support.errors import InputNote, InputWarning, UnmaskError, UserError

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import open_corpus
    from unmask.data.text.documents import read_documents
    from unmask.data.tokenizers.bpe import train_bpe
    from unmask.data.tokenizers.unigram import train_unigram
    from unmask.data.tokenizers.word_level import train_words
    from unmask.data.tokenizers.wordpiece import train_wordpiece
    from unmask.demo.demonstration import run_demo
    from unmask.inference.calls import bench, fill, predict
    from unmask.inference.embed import embed, write_features
    from unmask.inference.evaluation.evaluate_model import evaluate
    from unmask.inference.load import load
    from unmask.inference.predictor import Predictor
    from unmask.recipes.recipe import read_recipe, recipe_schema, shipped
    from unmask.serving.serve import serve
    from unmask.training.runs.report import describe_run, list_runs, plot_runs
    from unmask.training.runs.summary import find_runs, read_run
    from unmask.workflows.auditing.audit import audit
    from unmask.workflows.comparing.compare import compare
    from unmask.workflows.comparing.first_look import first_look
    from unmask.workflows.corpora.build import build_corpus
    from unmask.workflows.corpora.diff import diff_corpora
    from unmask.workflows.corpora.report import report_corpus
    from unmask.workflows.corpora.texts import sample_corpus
    from unmask.workflows.distillation.distill import distill
    from unmask.workflows.doctor import doctor
    from unmask.workflows.estimators import TextClassifier, TextRegressor, TokenClassifier
    from unmask.workflows.finetuning.finetune import finetune
    from unmask.workflows.formats import export
    from unmask.workflows.library import diff_recipes, list_recipes, push, show_recipe
    from unmask.workflows.mining import mine
    from unmask.workflows.multitask.multitask import multitask
    from unmask.workflows.pretraining.launch import pretrain
    from unmask.workflows.suggest import suggest
    from unmask.workflows.text import (
        describe_corpus,
        extend_tokenizer,
        load_tokenizer,
        mix_corpora,
        tokenize,
        train_tokenizer,
    )

_MODULES = {
    "Predictor": "unmask.inference.predictor",
    "TextClassifier": "unmask.workflows.estimators",
    "TextRegressor": "unmask.workflows.estimators",
    "TokenClassifier": "unmask.workflows.estimators",
    "audit": "unmask.workflows.auditing.audit",
    "bench": "unmask.inference.calls",
    "build_corpus": "unmask.workflows.corpora.build",
    "compare": "unmask.workflows.comparing.compare",
    "describe_corpus": "unmask.workflows.text",
    "describe_run": "unmask.training.runs.report",
    "diff_corpora": "unmask.workflows.corpora.diff",
    "diff_recipes": "unmask.workflows.library",
    "distill": "unmask.workflows.distillation.distill",
    "doctor": "unmask.workflows.doctor",
    "embed": "unmask.inference.embed",
    "evaluate": "unmask.inference.evaluation.evaluate_model",
    "export": "unmask.workflows.formats",
    "extend_tokenizer": "unmask.workflows.text",
    "fill": "unmask.inference.calls",
    "find_runs": "unmask.training.runs.summary",
    "finetune": "unmask.workflows.finetuning.finetune",
    "first_look": "unmask.workflows.comparing.first_look",
    "list_recipes": "unmask.workflows.library",
    "list_runs": "unmask.training.runs.report",
    "load": "unmask.inference.load",
    "load_tokenizer": "unmask.workflows.text",
    "mine": "unmask.workflows.mining",
    "mix_corpora": "unmask.workflows.text",
    "multitask": "unmask.workflows.multitask.multitask",
    "open_corpus": "unmask.data.corpus.corpus",
    "plot_runs": "unmask.training.runs.report",
    "predict": "unmask.inference.calls",
    "pretrain": "unmask.workflows.pretraining.launch",
    "push": "unmask.workflows.library",
    "read_documents": "unmask.data.text.documents",
    "read_recipe": "unmask.recipes.recipe",
    "read_run": "unmask.training.runs.summary",
    "recipe_schema": "unmask.recipes.recipe",
    "report_corpus": "unmask.workflows.corpora.report",
    "run_demo": "unmask.demo.demonstration",
    "sample_corpus": "unmask.workflows.corpora.texts",
    "serve": "unmask.serving.serve",
    "shipped": "unmask.recipes.recipe",
    "show_recipe": "unmask.workflows.library",
    "suggest": "unmask.workflows.suggest",
    "tokenize": "unmask.workflows.text",
    "train_bpe": "unmask.data.tokenizers.bpe",
    "train_tokenizer": "unmask.workflows.text",
    "train_unigram": "unmask.data.tokenizers.unigram",
    "train_wordpiece": "unmask.data.tokenizers.wordpiece",
    "train_words": "unmask.data.tokenizers.word_level",
    "write_features": "unmask.inference.embed",
}

__all__ = [
    "InputNote",
    "InputWarning",
    "Predictor",
    "TextClassifier",
    "TextRegressor",
    "TokenClassifier",
    "UnmaskError",
    "UserError",
    "__version__",
    "audit",
    "bench",
    "build_corpus",
    "compare",
    "describe_corpus",
    "describe_run",
    "diff_corpora",
    "diff_recipes",
    "distill",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "extend_tokenizer",
    "fill",
    "find_runs",
    "finetune",
    "first_look",
    "list_recipes",
    "list_runs",
    "load",
    "load_tokenizer",
    "mine",
    "mix_corpora",
    "multitask",
    "open_corpus",
    "plot_runs",
    "predict",
    "pretrain",
    "push",
    "read_documents",
    "read_recipe",
    "read_run",
    "recipe_schema",
    "report_corpus",
    "run_demo",
    "sample_corpus",
    "serve",
    "shipped",
    "show_recipe",
    "suggest",
    "tokenize",
    "train_bpe",
    "train_tokenizer",
    "train_unigram",
    "train_wordpiece",
    "train_words",
    "write_features",
]


# Iterations for which an OpenMP thread spins at a barrier before it sleeps; read when torch is loaded. The default of
# 300,000 wastes milliseconds at each of a step's many barriers if another program occupies a core.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def __getattr__(name: str) -> object:
    """Import a public name on first access, so that the command line starts without importing torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'unmask' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return __all__
