"""What does a bert-mini learn in 30 minutes on this machine, from real text and from scratch?

English Wikipedia articles and news (`shared/data/text`), a vocabulary of 30,522 trained on them; the held-out articles
are other documents. Compared with always guessing the most frequent token of the training text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import SHARED, logged, write

import unmask
from unmask.corpus.corpus import Corpus
from unmask.text.documents import Skipped, TextOptions, read_documents

TRAIN = [*sorted((SHARED / "text/wikipedia").glob("train-*.jsonl.xz")), SHARED / "text/wikinews/train.jsonl.xz"]
HELDOUT = [SHARED / "text/wikipedia/heldout.jsonl.xz", SHARED / "text/wikinews/heldout.jsonl.xz"]


def prepare(folder: Path, heldout: list[Path], train: list[Path], *, vocabulary: int = 30522) -> Corpus:
    """Train the tokenizer and build the corpus where that is not done."""
    if not (folder / "tokenizer").exists():
        unmask.train_wordpiece(read_documents(train, TextOptions(), Skipped()), size=vocabulary).save(
            folder / "tokenizer"
        )
    if not (folder / "corpus").exists():
        tokenizer = unmask.load_tokenizer(folder / "tokenizer")
        unmask.build_corpus(train, tokenizer, folder / "corpus", heldout=heldout, report=print)
    return unmask.open_corpus(folder / "corpus")


def main() -> None:
    """Pretrain, or go on; write the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--runs", type=Path, default=Path("runs/pretrain-mini"), help="where everything is kept")
    options = parser.parse_args()
    corpus = prepare(options.runs, HELDOUT, TRAIN)
    run = options.runs / "run"
    recipe = unmask.read_recipe("bert-mini", {"budget.minutes": options.minutes})
    if not (run / "model").exists():
        unmask.pretrain(recipe, corpus, run, resume=(run / "recipe.toml").exists())
    train = logged(run)
    seconds, last = {line["step"]: line["seconds"] for line in train}, train[-1]
    values = {
        "minutes": options.minutes,
        "corpus_tokens": corpus.train.num_tokens,
        "most_frequent_token": corpus.tokenizer.token(corpus.manifest.most_frequent_token.id),
        "guess": logged(run, "guess")[0],
        "steps": last["step"],
        "tokens": last["tokens"],
        "seconds": last["seconds"],
        "heldout": [line | {"seconds": seconds.get(line["step"], 0)} for line in logged(run, "heldout")],
    }
    write("pretrain_mini", values)


if __name__ == "__main__":
    main()
