"""Tasks of another package whose models make vectors: they are stored, searched with and served as unmask's own."""

import json

from tests.support.test_plugins import call, install

TASKS = '''
"""Vectors of tokens as the encoder has them, and the numbers of tokens as sparse vectors."""
from pathlib import Path

import msgspec
import numpy as np
import torch

from unmask.data.labelled.columns import Fields
from unmask.tasks.pair_head import PairHead
from unmask.tasks.rows import RowTask, frame_rows
from unmask.tasks.sparse import EMBED_SPARSE, SparseVector
from unmask.tasks.task import Framed, HeadOrigin, Reason, Vectors
from unmask.tasks.text_pairs import PairTask
from unmask.tasks.token_vectors import VECTORS

FILE = "plain_tokens.json"

class PlainTokens(PairTask, frozen=True, kw_only=True, tag="plain-tokens"):
    length: int = 20
    query_length: int = 10
    scale: float = 1.0

    part, metric, title = "plain_tokens", "reciprocal_rank", "Vectors of tokens as they are"
    fields, head = Fields((), negatives=True), HeadOrigin(weightless=True)
    route = Reason("its vectors are served by /embed_all", "ask for these")
    refusals = {"export": Reason("vectors of tokens are not exported", "use the model itself")}
    width = 32

    @property
    def vectors(self):
        return Vectors(tokens=self)

    @classmethod
    def read_files(cls, files, task):
        path = files.directory / FILE
        if not path.exists():
            return None
        table = msgspec.json.decode(path.read_bytes())
        return msgspec.structs.replace(task or cls(), **table), {"offset": torch.zeros(cls.width)}

    def write_files(self, directory, encoder, head):
        (directory / FILE).write_bytes(msgspec.json.encode({"scale": self.scale}))
        return ["offset"]

    def label_names(self, examples):
        return ()

    def build(self, spec, labels):
        return PlainHead()

    def frame_texts(self, tokenizer, rows, name):
        samples, cut, notes = frame_rows(tokenizer, rows, self.query_length if name == "query" else self.length)
        return [sample.add(positions={VECTORS: np.arange(len(sample))}) for sample in samples], cut, notes

    def frame_sides(self, tokenizer, rows):
        raise NotImplementedError

    def comparison(self, outputs):
        def compare(firsts, others):
            return np.array([[(outputs[a] @ outputs[b].T).max(1).sum() for b in others] for a in firsts], np.float32)
        return compare


class PlainHead(PairHead):
    at = VECTORS

    def __init__(self):
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros(PlainTokens.width))

    def reads(self, encoder, batch):
        return batch.positions[VECTORS]

    def predict(self, encoder, encoded, batch):
        rows = encoded.last.index_select(0, batch.positions[VECTORS]) + self.offset
        return torch.nn.functional.normalize(rows.float(), dim=1)


class Counts(PairTask, frozen=True, kw_only=True, tag="counts"):
    length: int = 20

    part, metric, title = "counts", "reciprocal_rank", "Numbers of tokens"
    head, route = HeadOrigin(weightless=True), EMBED_SPARSE

    @property
    def vectors(self):
        return Vectors(sparse=True)

    def label_names(self, examples):
        return ()

    def build(self, spec, labels):
        raise NotImplementedError

    def build_on(self, body, labels):
        return CountsHead(body.vocabulary)

    def frame(self, tokenizer, examples, labels, *, gold):
        samples, cut, notes = frame_rows(tokenizer, examples, self.length)

        def read(logits):
            vectors = []
            for row, (weights,), was_cut in zip(examples, logits, cut):
                ids = np.flatnonzero(weights)
                tokens = dict(zip(tokenizer.tokens(ids), weights[ids].tolist()))
                vectors.append(SparseVector(row.values["text"], tokens, tuple(ids.tolist()), was_cut))
            return vectors

        return Framed(samples, read, notes, cut=cut)


class CountsHead(PairHead):
    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    def reads(self, encoder, batch):
        return None

    def predict(self, encoder, encoded, batch):
        offsets = batch.tokens.offsets.tolist()
        texts = [batch.tokens.ids[start:end].long() for start, end in zip(offsets, offsets[1:])]
        return torch.stack([torch.bincount(ids, minlength=self.vocabulary).float() for ids in texts])
'''
PROGRAM = """
import json
from pathlib import Path

import msgspec
import numpy as np

import unmask
from unmask.inference.export import Export, export_model
from unmask.model.model import Model, load_model, save_model
from unmask.serving.endpoints import ENDPOINTS
from unmask.serving.metrics import Meter
from unmask.serving.served import Served
from unmask.serving.types import Limits
from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.testing.task import toy_model

words = ["rain", "sea", "poem", "dog", "garden"]
for name, lines in {
    "corpus": [{"_id": f"d{n}", "title": "", "text": f"a {word} of the {word}"} for n, word in enumerate(words)],
    "queries": [{"_id": f"q{n}", "text": f"the {word}"} for n, word in enumerate(words)],
}.items():
    Path("found").mkdir(exist_ok=True)
    Path(f"found/{name}.jsonl").write_text("\\n".join(map(json.dumps, lines)))
Path("found/qrels").mkdir()
judged = [f"q{n}\\td{n}\\t1" for n in range(len(words))]
Path("found/qrels/test.tsv").write_text("\\n".join(["query-id\\tcorpus-id\\tscore", *judged]))

toy = toy_model("\\n".join([f"a {word} of the {word}" for word in words] * 5))
here, told = {"device": "cpu", "quiet": True}, {}
for kind in ("plain-tokens", "counts"):
    task = TASKS[kind]() if kind == "counts" else TASKS[kind](scale=2.0)
    head = task.build_on(toy.encoder, ())
    save_model(kind, Model(toy.encoder, toy.tokenizer, {task.part: head.published()}, task=task), "")
    read = load_model(kind)
    assert read.task == task and read.heads[task.part].keys() == head.published().keys()
    served = Served("toy", unmask.load(kind, device="cpu"), Limits(), Meter())
    served.warm_up()
    result = unmask.evaluate(kind, "found", precision="float32", **here)
    told[kind] = {
        "routes": [of.path for of in ENDPOINTS if served.has(of.ability)],
        "metrics": result["metrics"],
        "longest": served.longest,
    }
    told[kind]["answers"] = {}
    for of in ENDPOINTS:
        if served.has(of.ability) and of.path in ("/embed_all", "/embed_sparse", "/rerank"):
            job = of.job(served, of.decoder.decode(json.dumps(of.example)))
            told[kind]["answers"][of.path] = job.read(served.compute(job.head, job.samples))
config = Path("plain-tokens/config.json")
config.write_text(json.dumps({key: value for key, value in json.loads(config.read_text()).items() if key != "unmask"}))
Path("plain-tokens/checksums.json").unlink(missing_ok=True)
told["adopted"] = load_model("plain-tokens").task
tokens = unmask.embed("plain-tokens", {"text": ["a rain"]}, out=None, **here)
told["embedded"] = [len(tokens), float(np.linalg.norm(tokens[0], axis=1).min())]
try:
    export_model(load_model("plain-tokens"), Export("onnx", head="plain_tokens"), Path("exported"))
except UserError as error:
    told["export"] = str(error)
print(msgspec.json.encode(told).decode())
"""


def test_vectors_of_a_task_of_another_package(tmp_path):
    entries = {"unmask.tasks": {"plain-tokens": "toy_vectors:PlainTokens", "counts": "toy_vectors:Counts"}}
    site = install(tmp_path / "site", "unmask-toys", entries, {"toy_vectors": TASKS})
    done = call(["-c", PROGRAM], site, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    tokens, counts = told["plain-tokens"], told["counts"]
    assert {"/embed_all", "/rerank", "/features"} <= set(tokens["routes"])
    assert not {"/embed", "/v1/embeddings", "/similarity"} & set(tokens["routes"]), "it makes no vectors of texts"
    assert "/embed_sparse" in counts["routes"] and "/embed" not in counts["routes"]
    assert (tokens["longest"], counts["longest"]) == (20, 20)
    assert counts["metrics"]["ndcg@10"] == 100, "each query has a word of its document alone"
    assert tokens["metrics"]["ndcg@10"] > 0
    assert {len(vector) for vector in tokens["answers"]["/embed_all"][0]} == {32}
    assert tokens["answers"]["/rerank"][0]["score"] > 1, "a sum over the tokens of the query"
    assert all(of["value"] >= 1 for of in counts["answers"]["/embed_sparse"][0])
    assert (told["adopted"]["kind"], told["adopted"]["scale"]) == ("plain-tokens", 2.0)
    assert told["embedded"][0] == 1
    assert abs(told["embedded"][1] - 1) < 1e-5
    assert told["export"].startswith("vectors of tokens are not exported")
