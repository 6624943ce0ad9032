"""General text, scored before and after a model is adapted to a text of a domain.

Input: files, and the masking of the run. Output: fixed batches; in words, what to expect of the adaptation before it
begins, and what was forgotten after it. A text that is harder for the model than general text has something to teach
it; one that is not harder is like what it has read (docs/adapting.md, with what was measured).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from unmask.data.batches.batch import Batch
from unmask.data.batches.curriculum import Curriculum
from unmask.data.batches.masking import MASKED
from unmask.data.corpus.build import write_corpus
from unmask.data.text.documents import TextOptions
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.inference.evaluation.language_models import read_texts
from unmask.support.errors import EmptySource, UserError, counted
from unmask.support.messages import argument

MOST_DOCUMENTS, MOST_CHARACTERS = 2000, 200_000
"""How much of the files is read: about what is scored."""
BEGINNING = 1000
"""Number of characters of a document that are read in any case, and more only where there are few documents: what is
forgotten differs more between articles than within one."""
FEWEST = 2000
"""Number of tokens below which nothing can be concluded: the loss of 300 masked ones changes by chance nearly as much
as it may."""
HARDER = 0.5
"""By how many nats a token must be harder to predict than in general text for a gain to be expected. Of four texts, the
tasks of those that were harder by 0.54 and 0.63 gained two points, of 0.30 and 0.51 half a point (docs/results.md).
"""

MOST_LOST = 0.05
"""By how many nats the loss of general text may rise where `Recipe.initial_share` is chosen by it."""


def general_batches(
    paths: Sequence[str | Path],
    tokenizer: Tokenizer,
    curriculum: Curriculum,
    tokens: int,
    report: Callable[[str], None],
) -> list[Batch]:
    """Return batches of general text, framed and masked as the held-out text of a run is.

    Args:
        paths: files of text, of which the beginnings of the first documents are read.
        tokenizer: that of the run.
        curriculum: its layouts and maskings.
        tokens: about how many tokens there are at most.
        report: called with notes on documents that were skipped or look damaged.

    Raises:
        UserError: a file cannot be read, or there is too little text in them.
    """
    try:
        documents, notes = read_texts(paths, TextOptions(), MOST_DOCUMENTS)
    except EmptySource as error:  # whose remedy may be an option of reading the other text
        form = "JSON Lines with the field text, or text in UTF-8 with blank lines between documents"
        remedy = f"what says how the text is read does not apply to general text: write {form}"
        raise UserError(f"{argument('general')}: {error.message}", remedy=remedy) from error
    for note in notes:
        report(f"general text: {note}")
    each = max(BEGINNING, MOST_CHARACTERS // len(documents))
    parts = [document[:each] for document in documents]
    read = accumulate(map(len, parts), initial=0)
    chosen = [part for part, before in zip(parts, read, strict=False) if before < MOST_CHARACTERS]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "general.jsonl"
        file.write_text("".join(json.dumps({"text": document}) + "\n" for document in chosen), encoding="utf8")
        corpus = write_corpus(file, tokenizer, Path(folder) / "corpus", heldout=None)
        batches = curriculum.heldout(corpus.train, tokens)
    if (scored := sum(len(batch.tokens.ids) for batch in batches)) < FEWEST:
        problem = f"too little general text: {counted(scored, 'token')} of at least {FEWEST:,}"
        raise UserError(problem, file=paths[0], remedy=f"name more files in {argument('general')}")
    return batches


def fertility(batches: Sequence[Batch], tokenizer: Tokenizer) -> float:
    """Return the number of tokens of a word, on average; special ones do not count."""
    tokens = words = 0
    for batch in batches:
        ids = batch.tokens.ids.clone()
        if ids.ndim > 1:  # characters of whole words
            return 1.0
        if MASKED in batch.positions:
            ids[batch.positions[MASKED]] = batch.labels[MASKED].to(ids.dtype)
        ordinary = ids[~torch.isin(ids, torch.tensor([*tokenizer.special_ids]))].numpy()
        tokens, words = tokens + len(ordinary), words + int(tokenizer.begins_word(ordinary).sum())
    return tokens / max(1, words)


def expectation(text: Mapping[str, float], general: Mapping[str, float]) -> str:
    """Return in words what to expect of an adaptation.

    Args:
        text: loss and fertility of a model on its text.
        general: the same on general text.
    """
    harder = text["loss"] - general["loss"]
    if harder >= HARDER:
        told = f"{harder:.2f} nats a token harder for the model than the general text: expect a gain"
    else:
        how = "no harder" if harder <= 0 else f"only {harder:.2f} nats a token harder"
        told = f"{how} for the model than the general text: expect little, it is like what the model has read"
    words = f"its words have {text['fertility']:.2f} tokens, those of the general text {general['fertility']:.2f}"
    return f"this text is {told}; {words}"


def forgotten(losses: Sequence[Mapping[str, float]]) -> str:
    """Return in words how the loss of general text has changed.

    Args:
        losses: its metrics before and after; after only, if the head is new.
    """
    before, after = losses[0]["loss"], losses[-1]["loss"]
    if losses[0]["step"]:
        return f"Loss of the general text: {after:.2f} nats; it had none before, as the head is new."
    return f"Loss of the general text: {before:.2f} nats before, {after:.2f} after ({after - before:+.2f})."
