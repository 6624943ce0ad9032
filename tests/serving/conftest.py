"""Fixtures of the server's tests: tiny models, applications in memory, and servers on real sockets."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest
import torch

from unmask.data.tokenizers.word_level import train_words
from unmask.families.bert import BertSettings
from unmask.families.elmo import ElmoSettings
from unmask.families.xlnet import XlnetSettings
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.objectives import OBJECTIVES
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.serving.app import create_app
from unmask.serving.metrics import Meter
from unmask.serving.run import listen, make_server
from unmask.serving.served import Served
from unmask.serving.service import Service
from unmask.serving.types import Limits
from unmask.tasks.answer_beams import AnswerBeams
from unmask.tasks.classification import Classification
from unmask.tasks.coqa import Coqa
from unmask.tasks.embedding import Embedding
from unmask.tasks.hotpotqa import Hotpotqa
from unmask.tasks.late_interaction import LateInteraction
from unmask.tasks.multi_label import MultiLabel
from unmask.tasks.multiple_choice import MultipleChoice
from unmask.tasks.quac import Quac
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.ranking import Ranking
from unmask.tasks.regression import Regression
from unmask.tasks.relations import Relations
from unmask.tasks.spans import Spans
from unmask.tasks.sparse import Sparse
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import choose_machine

testclient = pytest.importorskip("starlette.testclient", reason="the extra serve is not installed")

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=40, init_std=0.3, dropout=0.0)
KINDS = {
    "masked": (None, ()),
    "classes": (Classification(length=16), ("bad", "good", "so-so")),
    "pairs": (Classification(length=16, pairs=True), ("no", "yes")),
    "number": (Regression(length=16), ()),
    "ranks": (Ranking(length=16, activation="sigmoid"), ()),
    "tags": (TokenClassification(length=16), ("O", "B-X", "I-X")),
    "answers": (QuestionAnswering(length=24, question=6), ()),
    "turns": (Coqa(length=40, question=20), ()),
    "passages": (Hotpotqa(length=24, question=6, threshold=0.0), ()),
    "choices": (MultipleChoice(length=16), ()),
    "several": (MultiLabel(length=16, threshold=0.5), ("bad", "good", "so-so")),
    "windows": (Classification(length=16, windows=3), ("bad", "good")),
    "spans": (Spans(length=16, width=3), ("O", "X", "Y")),
    "relations": (Relations(length=32), ("O", "in")),
    "beams": (AnswerBeams(length=24, question=6, no_answer=True, threshold=0.0), ()),
}
LIMITS = Limits(
    inputs=8, characters=2000, request_tokens=400, batch_tokens=256, queue_tokens=2000, body=20_000, wait=0.0
)
FAST = replace(LIMITS, header_seconds=0.4, body_seconds=0.4, seconds=20, drain_seconds=5)

PAGE_SHAPE = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 32, "positions": 128, "init_std": 0.3}
PAGE_TASKS = {
    "classifier": (Classification(length=64, pairs=False), ("bad", "good")),
    "tagger": (TokenClassification(length=64), ("O", "B-ANIMAL", "I-ANIMAL", "B-PLANT", "I-PLANT", "B-SEA", "I-SEA")),
    "reader": (QuestionAnswering(length=64, question=16), ()),
    "quac": (Quac(length=64, no_answer=True, threshold=0.0), ()),
    "coqa": (Coqa(length=96), ()),
    "hotpotqa": (Hotpotqa(length=64, question=16, threshold=0.0), ()),
    "chooser": (MultipleChoice(length=64), ()),
    "relater": (Relations(length=64), ("O", "founded", "lives in")),
    "several": (MultiLabel(length=64, threshold=(0.4, 0.5, 0.6), pairs=False), ("animal", "plant", "sea")),
    "ranker": (Ranking(length=64, activation="sigmoid"), ()),
    "vectors": (Embedding(length=64), ()),
    "late": (LateInteraction(length=64, query_length=12, query_prompt="", document_prompt=""), ()),
}


@pytest.fixture(scope="session")
def tiny(tokenizer):
    """Random models by kind: a masked LM, one for each task, and one of sparse vectors, which is a masked LM too."""

    def build(number, task, labels):
        torch.manual_seed(number)
        encoder = SHAPE.build(tokenizer.size)
        heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()} if task is None else {}
        if task is not None:
            heads[task.part] = task.build(encoder.head, labels).published()
        return Model(encoder, tokenizer, heads, labels, task)

    models = {kind: build(number, *of) for number, (kind, of) in enumerate(KINDS.items())}
    masked = models["masked"]
    sparse = replace(masked, heads={**masked.heads, "sparse": {}}, task=Sparse(length=16))
    return {**models, "sparse": sparse}


@pytest.fixture(scope="session")
def serving(tiny):
    """Make the service of some of the models."""

    def make(*kinds, limits=LIMITS, meter=None):
        meter = meter or Meter()
        cpu = choose_machine("cpu", "float32")
        return Service([Served(kind, Predictor(tiny[kind], cpu), limits, meter) for kind in kinds], limits, meter)

    return make


@pytest.fixture
def client(serving):
    """Open a client of an application in memory."""
    opened = []

    def make(*kinds, limits=LIMITS, meter=None, **options):
        app = create_app(serving(*(kinds or KINDS), limits=limits, meter=meter), **options)
        opened.append(testclient.TestClient(app, base_url="http://localhost"))
        return opened[-1].__enter__()

    yield make
    for one in opened:
        one.__exit__(None, None, None)


@dataclass
class Live:
    """A server on a real socket."""

    service: Service
    port: int

    def connect(self):
        """Return a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def ask(self, sent):
        """Send bytes and return all that comes back until the server closes the connection."""
        with self.connect() as connection:
            found = b""
            with suppress(ConnectionError):  # the server may close before it has read everything
                connection.sendall(sent)
                while received := connection.recv(65536):
                    found += received
        return found


@pytest.fixture
def live(serving):
    """Run a server on a real socket in a thread: `with live("masked") as server: ...`."""

    @contextmanager
    def run(*kinds, limits=FAST, **options):
        service, ready = serving(*kinds, limits=limits), threading.Event()
        listener = listen("127.0.0.1", 0)
        server = make_server(create_app(service, **options), service, ready.set)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        assert ready.wait(10)
        try:
            yield Live(service, listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)
            listener.close()
        assert not thread.is_alive()

    return run


@pytest.fixture(scope="session")
def http():
    """Return the bytes of a request with a JSON body, on a connection that is closed afterwards."""

    def make(path, value, *headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Connection: close"]
        lines += [*headers, f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    return make


def predictor(encoder, tokenizer, head, task=None, labels=()):
    """Return a predictor of a random encoder with a random head."""
    part = OBJECTIVES[head]().build(BuildContext(encoder)) if task is None else task.build(encoder.head, labels)
    model = Model(encoder, tokenizer, {head: part.published()}, labels, task)
    return Predictor(model, choose_machine("cpu", "float32"))


@pytest.fixture(scope="session")
def predictors(tokenizer, documents):
    """The models by name."""
    torch.manual_seed(3)
    bert, xlnet = BertSettings(**PAGE_SHAPE).build(tokenizer.size), XlnetSettings(**PAGE_SHAPE).build(tokenizer.size)
    words = train_words(documents, size=200)
    elmo = ElmoSettings(width=16, cells=16, filters=((1, 4), (2, 4)), characters=4).build(words.size)
    found = {
        "masked": predictor(bert, tokenizer, "masked_lm"),
        "permuted": predictor(xlnet, tokenizer, "permutation_lm"),
        "words": Predictor(Model(elmo, words), choose_machine("cpu", "float32")),
    }
    for name, (task, labels) in PAGE_TASKS.items():
        found[name] = predictor(BertSettings(**PAGE_SHAPE).build(tokenizer.size), tokenizer, task.part, task, labels)
    return found


@pytest.fixture(scope="session")
def playground(predictors):
    """The service of all models."""
    limits, meter = Limits(), Meter()
    service = Service([Served(name, one, limits, meter) for name, one in predictors.items()], limits, meter)
    yield service
    service.close()


@pytest.fixture(scope="session")
def address(playground):
    """The address of a server with the playground."""
    from tests.serving.browser import served

    with served(playground) as address:
        yield address


@pytest.fixture
def page(chromium, address):
    """A page, which neither reports errors nor loads anything from elsewhere."""
    from tests.serving.browser import Page

    page = Page(chromium, address)
    yield page
    assert page.script(
        "return performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))"
    )
    assert [entry for entry in chromium.get_log("browser") if "status of 4" not in entry["message"]] == []
    page.script("localStorage.clear()")
    chromium.get("about:blank")
