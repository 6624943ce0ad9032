"""Does `unmask audit` find wrong labels, and what does it help to correct those that it ranks first?

In labels that are right, as far as known, 5, 10 or 20 % are made wrong: "random" ones get any other label with equal
probability; "confusions" are the mistakes of a weaker model, a probe on the mean of the token embeddings, without
context, that was trained on 100 of the examples. Of CoNLL-2003's entities, the type is changed, or the entity is
removed. The labels are then audited with MiniLM's encoder.

Measured: precision and recall of what is flagged (for entities, of sentences); the precision in the first tenth of the
ranking; and the score on held-out examples, whose labels are as published, of a linear probe that is trained on the
noisy labels, on those whose first tenth is corrected, on those of which a random tenth is corrected, and on the
original ones. Only wrong labels that were planted count as wrong, although the data has some of its own.

The data: 2,000 of SST-2's training phrases, scored on its dev set; the paragraphs of `benchmarks/topics.py`, the
part with 100 for each topic, scored on the other part; every eighth sentence of CoNLL-2003, scored on every fourth of
testb.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SHARED, add, minilm
from files import excerpt, sample
from topics import topics
from torch import Tensor

import unmask
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.tagged_sentence import TaggedSentence, write_tags
from unmask.inference.backend import TorchBackend
from unmask.metrics.token_classification import Chunk, chunks, measure
from unmask.model.model import load_model
from unmask.support.choices import AuditedTask
from unmask.tasks import TASKS
from unmask.tasks.rows import frame_rows
from unmask.training.machine import choose_machine
from unmask.workflows.auditing.audit import Audit
from unmask.workflows.auditing.out_of_fold import text_vectors, word_vectors
from unmask.workflows.finetuning.probe import fit_probe

RATES = (0.05, 0.1, 0.2)
NOISES = ("random", "confusions")
DATA = ("sst2", "topics", "conll2003")
WEAK_EXAMPLES, SENTENCES, TESTED = 100, 8, 4
"""Examples that the weaker model is trained on; one sentence in how many is audited, and scored."""
L2 = 100.0
"""Weight of the squared norm of the probes that are scored."""
MISSING = ""
"""Type of an entity that is removed."""


@cache
def encoder() -> TorchBackend:
    """Return MiniLM's encoder."""
    return TorchBackend(load_model(minilm()), choose_machine("cpu", "float32"))


def embeddings(examples: Sequence[Row]) -> Tensor:
    """Return the mean of the token embeddings of each text, (texts, width)."""
    model = encoder().model
    samples = frame_rows(model.tokenizer, examples, model.encoder.longest).samples
    rows = dict(encoder().layers(samples, [0]))
    return torch.from_numpy(np.stack([rows[number][:, 0].mean(0) for number in range(len(samples))]))


def predicted(train: Tensor, labels: np.ndarray, test: Tensor) -> np.ndarray:
    """Return the classes that a probe predicts."""
    mean, deviation = train.mean(0), train.std(0).clamp(min=1e-6)
    probe = fit_probe((train - mean) / deviation, torch.from_numpy(labels), int(labels.max()) + 1, L2)
    return probe.logits((test - mean) / deviation).argmax(1).numpy()


def wrong_labels(
    noise: str, rate: float, true: np.ndarray, weak: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, of which some are wrong, and which."""
    number, classes = round(rate * len(true)), int(true.max()) + 1
    candidates = np.arange(len(true)) if noise == "random" else np.flatnonzero(weak != true)
    chosen = rng.permutation(candidates)[:number]
    other = (true + rng.integers(1, classes, len(true))) % classes if noise == "random" else weak
    wrong = np.isin(np.arange(len(true)), chosen)
    return np.where(wrong, other, true), wrong


def found(flagged: np.ndarray, first: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Return precision and recall of what is flagged, and of the first tenth, times 100."""
    return {
        "wrong": int(wrong.sum()),
        "flagged": int(flagged.sum()),
        "precision": 100 * float(wrong[flagged].mean()) if flagged.any() else 0.0,
        "recall": 100 * float(flagged[wrong].mean()),
        "first_tenth_precision": 100 * float(wrong[first].mean()),
        "first_tenth_recall": 100 * float(first[wrong].mean()),
    }


def compared(score: Callable[[np.ndarray], float], first: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return the scores with nothing, the first tenth, a random tenth, and everything corrected.

    Args:
        score: returns the score, given which examples are corrected.
        first: which are in the first tenth.
        rng: chooses the random tenth.
    """
    nothing = np.zeros_like(first)
    scores = {"noisy": score(nothing), "fixed": score(first), "fixed_randomly": score(rng.permutation(first))}
    scores["clean"] = score(~nothing)
    lost = scores["clean"] - scores["noisy"]
    return {**scores, "regained": 100 * (scores["fixed"] - scores["noisy"]) / lost if lost else 100.0}


def audited(data: Any, task: AuditedTask, number: int, folder: Path) -> tuple[Audit, np.ndarray, np.ndarray]:
    """Return an audit of a number of examples, which it flags, and which are in the first tenth of its ranking."""
    out = folder / "fix.jsonl"
    audit = unmask.audit(minilm(), data, task=task, out=out, quiet=True)
    flagged, first = np.zeros(number, bool), np.zeros(number, bool)
    for row in map(json.loads, out.read_text(encoding="utf8").splitlines()):
        line = int(row["source"].rpartition(":")[2]) - 1
        flagged[line] = row["suggested"] is not None
        first[line] = row["rank"] <= number // 10
    return audit, flagged, first


def audit_texts(
    train: Sequence[Row], test: Sequence[Row], noise: str, rate: float, seed: int, folder: Path
) -> dict[str, Any]:
    """Make some labels of texts wrong, and measure what an audit finds."""
    names = sorted({row.values["label"] for row in train})
    true, gold = (np.array([names.index(row.values["label"]) for row in rows]) for rows in (train, test))
    inside, outside = (text_vectors(encoder(), rows, []) for rows in (train, test))
    poor = embeddings(train)
    rng = np.random.default_rng(seed)
    few = rng.permutation(len(train))[:WEAK_EXAMPLES]
    labels, wrong = wrong_labels(noise, rate, true, predicted(poor[few], true[few], poor), rng)
    data = [row.values["text"] for row in train], [names[label] for label in labels]
    audit, flagged, first = audited(data, "classification", len(train), folder)

    def score(corrected: np.ndarray) -> float:
        return 100 * float((predicted(inside, np.where(corrected, true, labels), outside) == gold).mean())

    estimate = {"noise_estimate": 100 * audit.noise, "agreement": 100 * audit.agreement}
    return {"examples": len(train), **found(flagged, first, wrong), **estimate, **compared(score, first, rng)}


def audit_entities(
    train: Sequence[TaggedSentence],
    test: Sequence[TaggedSentence],
    noise: str,
    rate: float,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """Make some entities wrong, and measure what an audit finds."""
    tags = TASKS["token-classification"]().label_names(train)
    kinds = [MISSING, *sorted({tag[2:] for tag in tags if tag != "O"})]
    inside, outside = (word_vectors(encoder(), sentences, tags) for sentences in (train, test))
    entities = [(number, chunk) for number, sentence in enumerate(train) for chunk in sentence.chunks]
    true = np.array([kinds.index(chunk.type) for _, chunk in entities])
    starts = np.cumsum([0, *(len(sentence.tags) for sentence in train)])
    rng = np.random.default_rng(seed)
    firsts = np.array([starts[number] + chunk.start for number, chunk in entities])
    few = rng.permutation(len(entities))[:WEAK_EXAMPLES]
    weak = predicted(inside[firsts[few]], true[few], inside[firsts])
    labels, wrong = wrong_labels(noise, rate, true, weak, rng)

    def tagged(corrected: np.ndarray) -> list[TaggedSentence]:
        spans: list[list[Chunk]] = [[] for _ in train]
        for (number, chunk), right, label in zip(entities, true, labels, strict=True):
            if kind := kinds[right if corrected[number] else label]:
                spans[number].append(Chunk(kind, chunk.start, chunk.stop))
        return [
            replace(sentence, tags=tuple(write_tags(chunk, len(sentence.tags))))
            for sentence, chunk in zip(train, spans, strict=True)
        ]

    noisy = tagged(np.zeros(len(train), bool))
    records = [{"words": sentence.words, "tags": sentence.tags} for sentence in noisy]
    audit, flagged, first = audited(records, "token-classification", len(train), folder)
    planted = np.zeros(len(train), bool)
    planted[[number for (number, _), bad in zip(entities, wrong, strict=True) if bad]] = True
    lengths = [len(sentence.tags) for sentence in test]

    def score(corrected: np.ndarray) -> float:
        numbers = np.array([tags.index(tag) for sentence in tagged(corrected) for tag in sentence.tags])
        guessed = np.split(predicted(inside, numbers, outside), np.cumsum(lengths)[:-1])
        entities_found = [chunks([tags[number] for number in sentence]) for sentence in guessed]
        return measure([sentence.chunks for sentence in test], entities_found)(np.arange(len(test)))["f1"]

    estimate = {"noise_estimate": 100 * audit.noise, "agreement": 100 * audit.agreement}
    return {"examples": len(train), **found(flagged, first, planted), **estimate, **compared(score, first, rng)}


def read(name: str, folder: Path) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the examples to audit and those to score on."""
    if name == "topics":
        scored, audited = (
            [Row({"text": text, "label": label}, "topics", number) for number, (text, label) in enumerate(part)]
            for part in topics()
        )
        return audited, scored
    if name == "sst2":
        folder_of_data = SHARED / "classification" / "sst2"
        train = sample(folder_of_data / "train.tsv.xz", 2000, folder / "train.tsv")
        task = TASKS["classification"]()
        return task.read([train], columns={}), task.read([folder_of_data / "dev.tsv"], columns={})
    source, task = SHARED / "ner" / "conll2003", TASKS["token-classification"]()
    paths = (
        excerpt(source / "eng.train.xz", folder / "train.conll", 0, blocks=True, each=SENTENCES),
        excerpt(source / "eng.testb.xz", folder / "test.conll", 0, blocks=True, each=TESTED),
    )
    return task.read([paths[0]], columns={}), task.read([paths[1]], columns={})


def main() -> None:
    """Plant wrong labels, audit, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    for name in options.data:
        with tempfile.TemporaryDirectory() as folder:
            train, test = read(name, Path(folder))
            measure_audit = audit_entities if name == "conll2003" else audit_texts
            for noise in NOISES:
                for rate in RATES:
                    for seed in options.seeds:
                        what = {"data": name, "noise": noise, "rate": 100 * rate, "seed": seed}
                        result = measure_audit(train, test, noise, rate, seed, Path(folder))
                        add("audit", what | result, instead=list(what))


if __name__ == "__main__":
    main()
