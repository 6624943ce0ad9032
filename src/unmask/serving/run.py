"""Running a server: from directories of models to a listening socket, and from SIGTERM to the last response."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

import torch
import uvicorn
from starlette.types import ASGIApp

from unmask.inference.backend import TorchBackend
from unmask.inference.load import open_predictor
from unmask.inference.predictor import Predictor
from unmask.model.directory import NAME_ONE, models_of_tasks
from unmask.model.model import NEW_POOLER
from unmask.serving.guard import LOOPBACK
from unmask.serving.metrics import Meter
from unmask.serving.protocol import bounded
from unmask.serving.served import Served
from unmask.serving.types import Limits
from unmask.support.choices import InferenceEngine, check_path
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument
from unmask.training.machine import Machine, keep_few_kernels

if TYPE_CHECKING:
    from unmask.serving.service import Service

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What names of models look like."""
SWITCH = 0.0005
"""Seconds after which Python's threads take turns: computing would otherwise wait up to 5 ms for the event loop after
each operation."""
BACKLOG = 2048
"""Number of connections that wait to be accepted."""
KEEP_ALIVE = 30
"""Seconds after which an idle connection is closed."""

KERNELS = 64
"""Number of oneDNN's kernels to cache. Nearly every batch has a new shape, and with its thousand kernels a server grew
from 330 to 770 MB in 2,500 requests; with these it stays at 500 MB from the first 500 on."""


@dataclass(frozen=True)
class ModelSource:
    """A model to serve: its name, and its directory."""

    name: str
    directory: str


def parse_sources(arguments: Sequence[str | Path]) -> list[ModelSource]:
    """Return the models that arguments name, each `DIRECTORY` or `NAME=DIRECTORY`.

    A run on several tasks is a model for each, named by the task, or `NAME.TASK`.

    Raises:
        UserError: a name is not valid, or two are equal.
    """
    models: list[ModelSource] = []
    for source in arguments:
        check_path(source, "a model", NAME_ONE)
        word = str(source)
        name, equals, directory = word.partition("=")
        if not equals or "/" in name:
            path = Path(word)  # a link has a name of its own, which resolving would lose
            directory, name = word, path.name if path.name not in ("", "..") else path.resolve().name
        if not NAME.fullmatch(name):
            raise UserError(f"'{name}' cannot be the name of a model", remedy="name it: NAME=DIRECTORY")
        tasks = models_of_tasks(directory)
        prefix = f"{name}." if equals and directory != word else ""
        models += [ModelSource(prefix + task, str(folder)) for task, folder in tasks.items()]
        models += [] if tasks else [ModelSource(name, directory)]
    if equal := [name for name, number in Counter(source.name for source in models).items() if number > 1]:
        raise UserError(f"two models have the name '{equal[0]}'", remedy="name them: NAME=DIRECTORY")
    return models


def load_served(
    sources: Sequence[ModelSource],
    machine: Machine,
    limits: Limits,
    meter: Meter,
    *,
    allow_pickle: bool = False,
    engine: InferenceEngine = "torch",
) -> list[Served]:
    """Load models; those with the same encoder, as those of a run on several tasks, have it in memory once.

    Raises:
        UserError: one does not exist or is damaged.
    """
    models = list[Served]()
    keep_few_kernels(KERNELS)
    loaded = [open_predictor(source.directory, machine, allow_pickle=allow_pickle, engine=engine) for source in sources]
    for source, predictor in zip(sources, share_encoders(loaded), strict=True):
        try:
            models.append(Served(source.name, predictor, limits, meter))
            models[-1].warm_up()
        except UserError as error:
            raise UserError(f"the model cannot be served: {error.message}", file=source.directory) from error
    return models


def share_encoders(predictors: Sequence[Predictor]) -> list[Predictor]:
    """Return models in the same order, those with equal encoders on one of them, which is then in memory once."""
    complete_first = sorted(predictors, key=lambda predictor: NEW_POOLER in predictor.model.created)
    return [
        _moved(predictor, next(other for other in complete_first if _serves(other, predictor)))
        for predictor in predictors
    ]


def _serves(other: Predictor, predictor: Predictor) -> bool:
    """Return whether the encoder of another model computes what that of a model does; its own always does.

    A pooler that is newly initialized, because the model does not use it, may be any.
    """
    if other is predictor:
        return True
    if not (isinstance(other.backend, TorchBackend) and isinstance(predictor.backend, TorchBackend)):
        return False
    if predictor.model.encoder.settings is None:  # a static encoder, whose vectors a plain model does not make
        return False
    encoder, candidate = predictor.model.encoder, other.model.encoder
    ours, theirs = encoder.state_dict(), candidate.state_dict()
    if NEW_POOLER in predictor.model.created:
        ours |= {name: value for name, value in theirs.items() if name.startswith("pooler.")}
    return (
        encoder.settings == candidate.settings
        and ours.keys() == theirs.keys()
        and all(torch.equal(value, theirs[name]) for name, value in ours.items())
    )


def _moved(predictor: Predictor, other: Predictor) -> Predictor:
    """Return a model on the encoder of another one."""
    if other is predictor:
        return predictor
    ours, theirs = cast(TorchBackend, predictor.backend), cast(TorchBackend, other.backend)
    model = replace(predictor.model, encoder=other.model.encoder)
    return Predictor(model, backend=ours.over(model, theirs.encoder))


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UserError: the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # connections inherit it; asyncio sets it only for sockets that were made for TCP by name: without it a response
        # of two packets, to a client that keeps its connection, waits 40 ms for the acknowledgement of the first
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise UserError(
            f"{host}:{port}: {error.strerror or error}",
            remedy=f"choose another {argument('port')} or {argument('host')}",
        ) from error


def address(listener: socket.socket) -> str:
    """Return the address of a listening socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a host."""
    return host in LOOPBACK or host.startswith("127.")


def greeting(service: Service, url: str) -> str:
    """Return the line that tells where the server is, which models it has, and what a request may hold at most."""
    limits = service.limits
    models = ", ".join(f"{model.name} ({model.input_length} tokens)" for model in service.models.values())
    most = f"{counted(limits.inputs, 'text')}, {limits.request_tokens:,} tokens, {limits.body / 1e6:g} MB"
    return f"{url} serves {models}; a request holds at most {most}"


class _Server(uvicorn.Server):
    """uvicorn's server: SIGTERM and Ctrl-C let open requests finish, and the program then ends normally."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._announce = service, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stopping = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: ASGIApp, service: Service, started: Callable[[], None]) -> uvicorn.Server:
    """Return a server; `serve` runs it.

    Args:
        app: the application.
        service: its models.
        started: called when requests are accepted.
    """
    limits = service.limits
    config = uvicorn.Config(
        app,
        http=bounded(limits.header_seconds),
        ws="none",
        lifespan="on",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=min(2 * limits.requests, _allow_descriptors() // 2),
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(limits.drain_seconds),
    )
    return _Server(config, service, started)


def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one does not wait for open requests.

    Args:
        server: see `make_server`.
        listener: see `listen`.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    gc.freeze()  # what is there stays: the garbage of requests is collected without a look at all of torch's objects
    try:
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def _allow_descriptors() -> int:
    """Allow as many open files as the system permits, and return the number; the default is often 1,024."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
