"""Answer questions about your own passages: fine-tune on questions in SQuAD's format, and ask.

python examples/question_answering.py MODEL FOLDER
"""

import json
import sys
from pathlib import Path

import unmask

PASSAGE = "The old bridge near the river was built by a teacher in 1887. It is made of wood and iron."
QUESTIONS = {"When was the bridge built?": "1887", "Who built the bridge?": "a teacher", "What is near?": "the river"}


def squad(questions: dict[str, str], passage: str) -> str:
    """Return questions with their answers, which are parts of the passage, in SQuAD's format."""
    asked = [
        {"id": str(number), "question": question, "answers": [{"text": text, "answer_start": passage.index(text)}]}
        for number, (question, text) in enumerate(questions.items())
    ]
    return json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": passage, "qas": asked}]}]})


def main(model: str | Path, out: Path, epochs: int = 3) -> str:
    """Write the run to `out`/answers, and return the answer to a question."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("train", "dev"):
        (out / f"{name}.json").write_text(squad(QUESTIONS, PASSAGE), encoding="utf8")
    unmask.finetune(
        "question-answering",
        model,
        out / "train.json",
        out / "answers",
        dev=out / "dev.json",
        settings={"budget.epochs": epochs, "task.length": 64},
        quiet=True,
    )
    return unmask.load(out / "answers").answer("When was the bridge built?", PASSAGE).answer


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2])))
