"""Does `unmask audit` find wrong labels, and what does it help to correct those that it ranks first?

In labels that are right, as far as known, 5, 10 or 20 % are made wrong: "random" ones get any other label with equal
probability; "confusions" are the mistakes of a weaker model, a probe on the mean of the token embeddings, without
context, that was trained on 100 of the examples. Of CoNLL-2003's entities, the type is changed, or the entity is
removed. The labels are then audited with MiniLM's encoder.

Measured: precision and recall of what is flagged (for entities, of sentences); the precision in the first tenth of the
ranking; and the score on held-out examples, whose labels are as published, of a linear probe that is trained on the
noisy labels, on those whose first tenth is corrected, on those of which a random tenth is corrected, and on the
original ones. Only wrong labels that were planted count as wrong, although the data has some of its own.

`published` audits the labels of CoNLL-2003's second test set (testb) as they are, if `--corrected` names the file in
which Wang et al. (2019) corrected it by hand, conllpp_test.txt of github.com/ZihanWangKi/CrossWeigh: a sentence is
wrong whose entities are others there.

The data: 2,000 of SST-2's training phrases, scored on its dev set; the paragraphs of `benchmarks/labelled.py`, the
part with 100 for each topic, scored on the other part; every eighth sentence of CoNLL-2003, scored on every fourth of
testb.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from common import SEEDS, SHARED, add, minilm, parse
from files import excerpt, sample
from labelled import SST2, SST2_DEV, topics
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
from unmask.workflows.auditing.out_of_fold import text_vectors, word_vectors
from unmask.workflows.finetuning.logistic_regression import fit_probes

RATES = (0.05, 0.1, 0.2)
NOISES = ("random", "confusions")
DATA = ("sst2", "topics", "conll2003")
CONLL = "ner/conll2003"
PUBLISHED = "published"
"""Labels that are audited as they are."""
WEAK_EXAMPLES, TEXTS, SENTENCES, TESTED = 100, 2000, 8, 4
"""Examples that the weaker model is trained on; phrases; one sentence in how many is audited, and scored."""
L2 = 100.0
"""Weight of the squared norm of the probes that are scored."""
MISSING = ""
"""Type of an entity that is removed."""


class Labels(NamedTuple):
    """What is labeled: texts, or the entities of sentences.

    Attributes:
        task: the task that is audited.
        true: index of the label of each, (labels,).
        example: index of the text or sentence of each, (labels,).
        context_free: vectors of each for the weaker model, (labels, width).
        write: returns examples with other labels, as `unmask.audit` takes them.
        score: returns the score of a probe that is trained on other labels.
    """

    task: AuditedTask
    true: np.ndarray
    example: np.ndarray
    context_free: Tensor
    write: Callable[[np.ndarray], Any]
    score: Callable[[np.ndarray], float]


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
    (probe,) = fit_probes((train - mean) / deviation, torch.from_numpy(labels), int(labels.max()) + 1, [L2])
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


def of_texts(train: Sequence[Row], test: Sequence[Row]) -> Labels:
    """Return the labels of texts, scored on others."""
    names = sorted({row.values["label"] for row in train})
    true, gold = (np.array([names.index(row.values["label"]) for row in rows]) for rows in (train, test))
    inside, outside = (text_vectors(encoder(), rows, []) for rows in (train, test))

    def write(labels: np.ndarray) -> Any:
        return [row.values["text"] for row in train], [names[label] for label in labels]

    def score(labels: np.ndarray) -> float:
        return 100 * float((predicted(inside, labels, outside) == gold).mean())

    return Labels("classification", true, np.arange(len(train)), embeddings(train), write, score)


def of_entities(train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]) -> Labels:
    """Return the types of the entities of sentences, scored on others."""
    tags = TASKS["token-classification"]().label_names(train)
    kinds = [MISSING, *sorted({tag[2:] for tag in tags if tag != "O"})]
    inside, outside = (word_vectors(encoder(), sentences, tags) for sentences in (train, test))
    entities = [(number, chunk) for number, sentence in enumerate(train) for chunk in sentence.chunks]
    starts = np.cumsum([0, *(len(sentence.tags) for sentence in train)])
    firsts = np.array([starts[number] + chunk.start for number, chunk in entities])
    lengths = [len(sentence.tags) for sentence in test]

    def tagged(labels: np.ndarray) -> list[TaggedSentence]:
        spans: list[list[Chunk]] = [[] for _ in train]
        for (number, chunk), label in zip(entities, labels, strict=True):
            if kind := kinds[label]:
                spans[number].append(Chunk(kind, chunk.start, chunk.stop))
        return [
            replace(sentence, tags=tuple(write_tags(chunk, len(sentence.tags))))
            for sentence, chunk in zip(train, spans, strict=True)
        ]

    def write(labels: np.ndarray) -> Any:
        return [{"words": sentence.words, "tags": sentence.tags} for sentence in tagged(labels)]

    def score(labels: np.ndarray) -> float:
        numbers = np.array([tags.index(tag) for sentence in tagged(labels) for tag in sentence.tags])
        guessed = np.split(predicted(inside, numbers, outside), np.cumsum(lengths)[:-1])
        entities_found = [chunks([tags[number] for number in sentence]) for sentence in guessed]
        return measure([sentence.chunks for sentence in test], entities_found)(np.arange(len(test)))["f1"]

    true = np.array([kinds.index(chunk.type) for _, chunk in entities])
    example = np.array([number for number, _ in entities])
    return Labels("token-classification", true, example, inside[firsts], write, score)


def audited(labels: Labels, size: int, noise: str, rate: float, seed: int, folder: Path) -> dict[str, Any]:
    """Make some labels of `size` examples wrong, and measure what an audit finds."""
    rng, true = np.random.default_rng(seed), labels.true
    few = rng.permutation(len(true))[:WEAK_EXAMPLES]
    weak = predicted(labels.context_free[few], true[few], labels.context_free)
    noisy, bad = wrong_labels(noise, rate, true, weak, rng)
    wrong = np.zeros(size, bool)
    wrong[labels.example[bad]] = True
    flagged, first, estimate = looked_for(labels.write(noisy), labels.task, size, folder)

    def score(corrected: np.ndarray) -> float:
        return labels.score(np.where(corrected[labels.example], true, noisy))

    return {"examples": size, **found(flagged, first, wrong), **estimate, **compared(score, first, rng)}


def looked_for(
    data: Any, task: AuditedTask, size: int, folder: Path
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Audit `size` examples; return which are flagged, which are in the first tenth, and what is estimated."""
    out = folder / "fix.jsonl"
    audit = unmask.audit(minilm(), data, task=task, out=out, quiet=True)
    flagged, first = np.zeros((2, size), bool)
    for row in map(json.loads, out.read_text(encoding="utf8").splitlines()):
        line = int(row["source"].rpartition(":")[2]) - 1
        flagged[line] = row["suggested"] is not None
        first[line] = row["rank"] <= size // 10
    return flagged, first, {"noise_estimate": 100 * audit.noise, "agreement": 100 * audit.agreement}


def published(given: Sequence[TaggedSentence], corrected: Sequence[TaggedSentence], folder: Path) -> dict[str, Any]:
    """Audit sentences as they were published, and measure what is found of those that others have corrected."""
    if [sentence.words for sentence in given] != [sentence.words for sentence in corrected]:
        raise SystemExit("the corrected sentences are not those that were published")
    wrong = np.array([set(one.chunks) != set(other.chunks) for one, other in zip(given, corrected, strict=True)])
    data = [{"words": sentence.words, "tags": sentence.tags} for sentence in given]
    flagged, first, estimate = looked_for(data, "token-classification", len(given), folder)
    return {"examples": len(given), **found(flagged, first, wrong), **estimate}


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


def read(name: str, folder: Path) -> tuple[Labels, int]:
    """Return the labels that are audited, and of how many examples."""
    if name == "topics":
        test, train = (
            [Row({"text": text, "label": label}, "topics", number) for number, (text, label) in enumerate(part)]
            for part in topics()
        )
        return of_texts(train, test), len(train)
    if name == "sst2":
        task = TASKS["classification"]()
        train = task.read([sample(SHARED / SST2, TEXTS, folder / "train.tsv")], columns={})
        return of_texts(train, task.read([SHARED / SST2_DEV], columns={})), len(train)
    task = TASKS["token-classification"]()
    sentences, tested = (
        task.read([excerpt(SHARED / CONLL / file, folder / "part.conll", 0, blocks=True, each=each)], columns={})
        for file, each in (("eng.train.xz", SENTENCES), ("eng.testb.xz", TESTED))
    )
    return of_entities(sentences, tested), len(sentences)


def main() -> None:
    """Plant wrong labels, audit, and write what was found."""
    options = parse(__doc__, [*DATA, PUBLISHED], seeds=SEEDS, corrected="")
    for name in options.names:
        if name == PUBLISHED and not options.corrected:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if name == PUBLISHED:
                task = TASKS["token-classification"]()
                files = SHARED / CONLL / "eng.testb.xz", Path(options.corrected)
                given, corrected = (task.read([file], columns={}) for file in files)
                result = published(given, corrected, Path(folder))
                rate = round(100 * result["wrong"] / result["examples"], 1)
                add("audit", {"data": "conll2003", "noise": PUBLISHED, "rate": rate, "seed": 0}, result)
                continue
            labels, size = read(name, Path(folder))
            for noise in NOISES:
                for rate in RATES:
                    for seed in options.seeds:
                        key = {"data": name, "noise": noise, "rate": 100 * rate, "seed": seed}
                        add("audit", key, audited(labels, size, noise, rate, seed, Path(folder)))


if __name__ == "__main__":
    main()
