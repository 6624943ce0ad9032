"""`unmask corpus sample`: texts of a corpus, to read."""

from __future__ import annotations

from pathlib import Path

from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.sample import SampledText
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.training.runs.display import Display
from unmask.workflows.corpora.texts import sampled_texts


def sample_corpus(directory: str | Path, *, count: int = 10, seed: int = 0, quiet: bool = False) -> list[SampledText]:
    """Draw texts from a corpus at random, to read.

    Texts are as they were before they became tokens, with their addresses, as far as the corpus keeps them: of 1,000
    documents, the first 10,000 characters. If more are asked for, or it keeps none, tokens are decoded.

    Args:
        directory: directory or URL of a corpus.
        count: number of documents.
        seed: of the choice.
        quiet: print only the texts.

    Returns:
        The texts, in the order of the corpus.

    Raises:
        UserError: there is no corpus, it is damaged, or the number is not positive.
    """
    if count < 1:
        raise UserError(f"{argument('count', count)}: at least one is needed")
    corpus = open_corpus(directory)
    sample = sampled_texts(corpus, count, seed)
    kind = "decoded tokens, as a model reads them" if sample.are_decoded else "texts as they were before tokenization"
    Display(quiet=quiet).say(f"{len(sample.texts):,} of {len(corpus.train):,} training documents, {kind}")
    return sample.texts
