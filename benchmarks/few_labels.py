"""How much do peers learn from a few labels? On the examples that the arms of comparisons/few_labels.toml learn from.

A logistic regression on the mean vectors of MiniLM (scikit-learn, C = 1), of pairs on the two vectors, their difference
and their product; SetFit with its defaults (20 pairs for each text, one epoch; install setfit first). MiniLM is a
sentence-embedding model, which was trained on the texts of SNLI. `--tasks` chooses numbers of examples (sst2-16), and
`--draws` fewer draws.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from common import RUNS, add, minilm, parse
from compare import read_file
from labelled import embed

from unmask.data.labelled.labelled_file import Row
from unmask.metrics.classification import calibration_error
from unmask.tasks import TASKS
from unmask.workflows.finetuning.examples import drawn, read_parts

Way = Callable[[Sequence[Row], Sequence[Row], Sequence[str]], np.ndarray]
"""Learns from examples; returns the probability of each label of others, (others, labels)."""


@cache
def embedded(texts: tuple[str, ...]) -> np.ndarray:
    """Return the mean vectors of texts, (texts, width)."""
    return embed(texts)


def logistic(train: Sequence[Row], test: Sequence[Row], labels: Sequence[str]) -> np.ndarray:
    """Logistic regression."""
    from sklearn.linear_model import LogisticRegression

    def vectors(rows: Sequence[Row]) -> np.ndarray:
        first, *others = (embedded(texts) for texts in zip(*map(texts_of, rows), strict=True))
        return np.concatenate([first, *(part for v in others for part in (v, np.abs(first - v), first * v))], 1)

    fitted = LogisticRegression(max_iter=1000).fit(vectors(train), [row.values["label"] for row in train])
    columns = {str(label): column for column, label in enumerate(fitted.classes_)}
    known = fitted.predict_proba(vectors(test))
    return np.stack([known[:, columns[label]] if label in columns else 0 * known[:, 0] for label in labels], 1)


def setfit(train: Sequence[Row], test: Sequence[Row], labels: Sequence[str]) -> np.ndarray:
    """SetFit; a pair is one text, its parts separated by [SEP]."""
    from datasets import Dataset  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from setfit import SetFitModel, Trainer, TrainingArguments  # type: ignore[import-untyped,import-not-found,unused-ignore]

    texts, others = ([" [SEP] ".join(texts_of(row)) for row in rows] for rows in (train, test))
    numbers = [labels.index(row.values["label"]) for row in train]
    with tempfile.TemporaryDirectory() as folder:
        model = SetFitModel.from_pretrained(minilm())
        arguments = TrainingArguments(
            folder, batch_size=16, num_epochs=1, num_iterations=20, report_to="none", save_strategy="no"
        )
        Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts, "label": numbers})).train()
    return np.asarray(model.predict_proba(others))


def texts_of(row: Row) -> list[str]:
    """Return the text of an example, or both of a pair."""
    return [row.values[name] for name in ("text", "text_b") if name in row.values]


WAYS: dict[str, Way] = {"logistic": logistic, "setfit": setfit}


def main() -> None:
    """Learn from all draws."""
    options = parse(__doc__, WAYS, runs=RUNS, tasks=[], draws=0)
    comparison = read_file("few_labels", options.runs / "compare" / "few_labels", options.runs)
    for data, task in comparison.tasks.items():
        parts = read_parts(TASKS[task.task](), task.files)
        for examples, way in product(task.examples, options.names):
            name = f"{data}-{examples}"
            if not options.tasks or name in options.tasks:
                draws = range(options.draws or comparison.seeds)
                chosen = [drawn(parts.train, examples, {"seed": seed}) for seed in draws]
                key = {"comparison": "few_labels", "arm": way, "task": name}
                add("comparisons", key, learn(WAYS[way], chosen, parts.held, parts.labels))


def learn(way: Way, draws: Sequence[Sequence[Row]], test: Sequence[Row], labels: Sequence[str]) -> dict[str, Any]:
    """Learn from draws of examples; return the accuracies, as `compare.records` does."""
    begun, scores, errors = time.process_time(), [], []
    gold = np.array([labels.index(row.values["label"]) for row in test])
    for draw in draws:
        probabilities = way(draw, test, labels)
        right = probabilities.argmax(1) == gold
        scores.append(100 * float(right.mean()))
        errors.append(calibration_error(probabilities.max(1), right))
        print(f"{len(draw)} examples: {scores[-1]:.1f}", flush=True)
    return {
        "score": round(statistics.mean(scores), 2),
        "calibration": round(statistics.mean(errors), 2),
        "cpu_seconds": round((time.process_time() - begun) / len(scores), 2),
        "seeds": scores,
    }


if __name__ == "__main__":
    main()
