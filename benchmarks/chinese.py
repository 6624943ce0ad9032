"""What is a small Chinese BERT worth that was pretrained here, on the little text at hand?

`shared/data/text/chinese` (web and encyclopaedic text, Simplified and Traditional, and 60,000 classical poems) and the
training passages of CMRC 2018, without their questions: each Chinese character is a token of its own. Then
- CVs (`token_classification.py --data resume_zh --start RUN` and `--start random --body RUN`): entities from a tenth of
  the training sentences, beside the same body with random weights;
- CMRC 2018 (`--cmrc`): questions answered, trained on its training questions, scored on its dev set by its own rules.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from common import SHARED, add, logged, write

import unmask
from unmask.corpus.corpus import Corpus
from unmask.evaluation.model import evaluate_task
from unmask.labelled.squad_file import read_squad
from unmask.model import load_model
from unmask.settings import parse_overrides
from unmask.text.documents import Skipped, TextOptions, read_documents

TEXT = sorted((SHARED / "text/chinese").glob("*.jsonl.xz"))
CMRC = SHARED / "qa/cmrc2018"
VOCABULARY = 13_500
"""The text has 6,400 different characters, each of them alone and within a word."""


def prepare(folder: Path) -> Corpus:
    """Train the tokenizer and build the corpus where that is not done."""
    folder.mkdir(parents=True, exist_ok=True)
    passages = folder / "cmrc-passages.jsonl"
    if not passages.exists():
        texts = dict.fromkeys(question.passage for question in read_squad([CMRC / "train.json.xz"]))
        passages.write_bytes(b"".join(msgspec.json.encode({"text": text}) + b"\n" for text in texts))
    files = [*TEXT, passages]
    if not (folder / "tokenizer").exists():
        words = unmask.train_wordpiece(read_documents(files, TextOptions(), Skipped()), size=VOCABULARY)
        words.save(folder / "tokenizer")
    if not (folder / "corpus").exists():
        unmask.build_corpus(files, unmask.load_tokenizer(folder / "tokenizer"), folder / "corpus", report=print)
    return unmask.open_corpus(folder / "corpus")


SETTINGS = [
    "objective.next_sentence=false",  # a poem is too short to be cut into pairs
    "layout.kind=document_sentences",
    "layout.length=64",
    "encoder.dropout=0",
    "batch.tokens=512",
    "optimizer.learning_rate=7e-4",
]
"""What gets furthest in little time (docs/pretraining.md)."""


def pretrain(folder: Path, minutes: float) -> None:
    """Pretrain, or go on, and write the learning curve down."""
    corpus, run = prepare(folder), folder / "bert-mini-zh"
    if (run / "model").exists():
        return
    recipe = unmask.read_recipe("bert-mini", parse_overrides([*SETTINGS, f"budget.minutes={minutes}"]))
    unmask.pretrain(recipe, corpus, run, resume=(run / "recipe.toml").exists())
    last = logged(run)[-1]
    write(
        "chinese",
        {
            "minutes": minutes,
            "corpus_tokens": corpus.train.num_tokens,
            "guess": logged(run, "guess")[0],
            **{name: last[name] for name in ("step", "tokens", "seconds", "passes")},
            "heldout": logged(run, "heldout"),
        },
    )


def answer(start: Path, seed: int, epochs: float) -> None:
    """Train on CMRC's training questions, score on its dev set."""
    out = start.parent / f"cmrc-{seed}"
    unmask.finetune(
        "question-answering",
        start,
        [CMRC / "train.json.xz"],
        out,
        settings={"seed": seed, "budget.epochs": epochs},
        resume=(out / "recipe.toml").exists(),
    )
    last = logged(out)[-1]
    result = evaluate_task(load_model(out), [CMRC / "dev.json.xz"], columns={})
    result.pop("notes", None)  # they name the files by their paths
    about = {name: last[name] for name in ("step", "passes", "tokens", "seconds")}
    add("cmrc", {"seed": seed, "dev": result, **about})


def main() -> None:
    """Pretrain, and on request answer questions; what was cut off goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--cmrc", action="store_true")
    parser.add_argument("--epochs", type=float, default=3, help="passes over CMRC's training questions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/chinese"), help="where everything is kept")
    options = parser.parse_args()
    pretrain(options.runs, options.minutes)
    if options.cmrc:
        for seed in options.seeds:
            answer(options.runs / "bert-mini-zh", seed, options.epochs)


if __name__ == "__main__":
    main()
