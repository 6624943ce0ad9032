"""Questions about passages: how good is fine-tuning with default settings on a small sample of SQuAD's training set?

MiniLM, whose training data include texts of SQuAD, learns from 4,847 questions about 1,466 passages. A tenth of the
passages is held out for choices (`--set` tries settings, `--choosing` then leaves the dev set alone). The score is that
on SQuAD 1.1's dev set, after the last step. `--start random` is the same body with random weights.

`--variant none` moves every third question to another passage, which does not have its answer: there "no answer" is
right. The threshold is found on a tenth of the remaining training passages. These questions are easier to tell than
SQuAD 2.0's, which were written to mislead.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from pathlib import Path
from typing import Any

from common import SHARED, add, logged, minilm, random_start

import unmask
from unmask.batches.rng import derive_rng
from unmask.evaluation.model import evaluate_task
from unmask.labelled.squad_file import Question, read_squad
from unmask.model import load_model
from unmask.settings import parse_overrides
from unmask.tasks.question_answering import QuestionAnswering

TRAIN, DEV = SHARED / "qa/squad/train_sample.json.xz", SHARED / "qa/squad/dev-v1.1.json.xz"
MOVED = 3
"""Every so manieth question is moved to a passage without its answer."""


def move(questions: list[Question]) -> list[Question]:
    """Return the questions, every third one about another passage, which none of its answers is in."""
    passages = list(dict.fromkeys(question.passage for question in questions))
    moved = []
    for number, question in enumerate(questions):
        if number % MOVED == 0:
            order = derive_rng(0, "benchmark", number).permutation(len(passages))
            texts = [answer.text.lower() for answer in question.answers]
            other = (passages[place] for place in order if passages[place] != question.passage)
            passage = next((text for text in other if not any(answer in text.lower() for answer in texts)), None)
            if passage is not None:  # an answer like "a" is in every passage
                question = Question(question.id, question.question, passage, impossible=True)
        moved.append(question)
    return moved


def write_squad(path: Path, questions: list[Question]) -> Path:
    """Write questions in SQuAD's format, each passage once."""
    paragraphs: dict[str, list[dict[str, object]]] = {}
    for question in questions:
        answers = [{"text": answer.text, "answer_start": answer.start} for answer in question.answers]
        record = {"id": question.id, "question": question.question, "answers": answers}
        paragraphs.setdefault(question.passage, []).append({**record, "is_impossible": question.impossible})
    content = [{"context": passage, "qas": records} for passage, records in paragraphs.items()]
    path.write_text(json.dumps({"data": [{"paragraphs": content}]}, ensure_ascii=False), encoding="utf8")
    return path


def prepare(folder: Path, variant: str, passages: int | None) -> tuple[Path, Path, Path]:
    """Write what is trained on, what is held out for choices, and the dev set."""
    train, dev = ([*read_squad([path])] for path in (TRAIN, DEV))
    if passages:
        train, dev = ([*limit(questions, passages)] for questions in (train, dev))
    rest, held = QuestionAnswering().hold_out(train, seed=0)
    parts = {"train": rest, "held": held, "dev": dev}
    if variant == "none":
        parts = {name: move(part) for name, part in parts.items()}
    written = [write_squad(folder / f"{variant}-{name}.json", part) for name, part in parts.items()]
    return written[0], written[1], written[2]


def limit(questions: list[Question], passages: int) -> list[Question]:
    """Return the questions about the first passages."""
    chosen = set(list(dict.fromkeys(question.passage for question in questions))[:passages])
    return [question for question in questions if question.passage in chosen]


def score(run: Path, path: Path) -> dict[str, Any]:
    """Return scores on a file, with intervals; where some questions have no answer, of both kinds apart too."""
    model = load_model(run)
    assert isinstance(model.task, QuestionAnswering)
    return {**evaluate_task(model, [path], columns={}), "threshold": model.task.threshold}


def main() -> None:
    """Run each seed; a run that was cut off is resumed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=("always", "none"), default="always", help="are there questions without?")
    parser.add_argument("--start", choices=("minilm", "random"), default="minilm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    parser.add_argument("--choosing", action="store_true", help="score what is held out alone, not the dev set")
    parser.add_argument("--toy", action="store_true", help="40 passages and 4 steps; nothing is kept of the result")
    parser.add_argument("--runs", type=Path, default=Path("runs/question-answering"), help="where runs are kept")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    train, held, dev = prepare(options.runs, options.variant, 40 if options.toy else None)
    sets = [*options.set, *(["budget.steps=4", "batch.sequences=4", "task.length=192"] if options.toy else [])]
    for seed in options.seeds:
        name = "-".join([options.variant, *([] if options.start == "minilm" else [options.start]), *sets, str(seed)])
        out, begun = options.runs / name, time.time()
        unmask.finetune(
            "question-answering",
            minilm() if options.start == "minilm" else random_start(minilm(), options.runs),
            [train],
            out,
            dev=[held],
            tokenizer=None if options.start == "minilm" else minilm(),
            settings=parse_overrides([f"seed={seed}", *sets]),
            resume=(out / "recipe.toml").exists(),
        )
        seconds = time.time() - begun
        last = logged(out)[-1]
        result = {
            "variant": options.variant,
            "start": options.start,
            "seed": seed,
            "set": sets,
            "held": score(out, held),
            "dev": None if options.choosing else score(out, dev),
            "steps": last["step"],
            "passes": last["passes"],
            "tokens": last["tokens"],
            "step_seconds": last["seconds"],
            "seconds": round(seconds, 1),
            "recipe": tomllib.loads((out / "recipe.toml").read_text()),
        }
        if options.toy:
            print(json.dumps(result, indent=1))
        else:
            add("question_answering", result)


if __name__ == "__main__":
    main()
