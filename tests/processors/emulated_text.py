"""Prints what unmask makes of raw text and labels, in JSON: all that needs no torch, and is to be equal everywhere.

Arguments: a file of documents, a file of labeled rows, a new directory.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from unmask.data.corpus.build import write_corpus
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text.documents import Skipped, TextOptions, read_documents
from unmask.data.text.sentences import split_sentences
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.unigram import train_unigram
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.metrics import classification, question_answering, regression, token_classification
from unmask.metrics.intervals import intervals

WORDS = "Żółw naïve 東京 привет ﬁn e\u0301 👩‍👧 don't 3.14\u00a0%"
TRAINED = {"wordpiece": train_wordpiece, "bpe": train_bpe, "unigram": train_unigram}


def metrics():
    """Return metrics of random predictions, with their intervals."""
    rng = np.random.default_rng(0)
    gold, predicted = rng.integers(0, 3, (2, 200))
    values, noise = rng.normal(size=(2, 200))
    tags = [["B-X", "I-X", "O", "B-Y"], ["O", "B-Y", "I-Y", "I-Y"]] * 20
    chunks = [token_classification.chunks(tags[i]) for i in range(40)]
    answers = ["the old town", "before noon", "in 1999", "a dog"] * 10
    measures = {
        "classification": classification.measure(gold, predicted, 3),
        "regression": regression.measure(values, values + noise),
        "tokens": token_classification.measure(chunks, chunks[1:] + chunks[:1]),
        "answers": question_answering.measure([[answer] for answer in answers], [*answers[2:], "old town", "noon"]),
    }
    numbers = {"classification": 200, "regression": 200, "tokens": 40, "answers": 40}
    return {
        name: (measure(np.arange(numbers[name])), intervals(measure, numbers[name]))
        for name, measure in measures.items()
    }


def main(text, rows, out):
    """Print everything."""
    documents = list(read_documents([text], TextOptions(), Skipped()))
    found = {"documents": documents, "sentences": [split_sentences(one) for one in (*documents, WORDS)]}
    found["rows"] = [str(row) for row in read_rows([rows], columns={"text": "text", "label": "label"})]
    for name, train in TRAINED.items():
        tokenizer = train(documents, size=400)
        found[name] = [tokenizer.encode(one).tolist() for one in (*documents, WORDS)]
        write_corpus([text], tokenizer, Path(out) / name, shard_tokens=1000)
    files = sorted(path for path in Path(out).rglob("*") if path.is_file())
    found["files"] = {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    print(json.dumps(found | {"metrics": metrics()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
