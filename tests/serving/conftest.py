"""Fixtures of the server's tests: tiny models, applications in memory, and servers on real sockets."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.inference.predictor import Predictor
from unmask.model import Model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.serving.app import Service, create_app
from unmask.serving.limits import Limits
from unmask.serving.metrics import Meter
from unmask.serving.run import listen, make_server
from unmask.serving.served import Served
from unmask.tasks.classification import Classification
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import choose_machine

testclient = pytest.importorskip("starlette.testclient", reason="the extra serve is not installed")

SHAPE = BertSettings(layers=2, width=16, heads=2, feed_forward=32, positions=40, init_std=0.3, dropout=0.0)
KINDS = {
    "masked": (None, ()),
    "classes": (Classification(length=16), ("bad", "good", "so-so")),
    "pairs": (Classification(length=16, pairs=True), ("no", "yes")),
    "number": (Regression(length=16), ()),
    "tags": (TokenClassification(length=16), ("O", "B-X", "I-X")),
    "answers": (QuestionAnswering(length=24, question=6), ()),
}
LIMITS = Limits(
    inputs=8, characters=2000, request_tokens=400, batch_tokens=256, queue_tokens=2000, body=20_000, wait=0.0
)
FAST = replace(LIMITS, header_seconds=0.4, body_seconds=0.4, seconds=20, drain_seconds=5)


@pytest.fixture(scope="session")
def tiny(tokenizer):
    """Random models by kind: a masked LM, and one for each task."""

    def build(number, task, labels):
        torch.manual_seed(number)
        encoder = SHAPE.build(tokenizer.size)
        heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()} if task is None else {}
        if task is not None:
            heads[task.part] = task.build(encoder.head, labels).published()
        return Model(encoder, tokenizer, heads, labels, task)

    return {kind: build(number, *of) for number, (kind, of) in enumerate(KINDS.items())}


@pytest.fixture
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
