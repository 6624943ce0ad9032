"""The server as users start it: `unmask.serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from unmask.support.choices import Device, InferenceEngine, InferencePrecision, as_several, as_texts
from unmask.support.errors import UserError, check_count
from unmask.support.messages import argument, call, in_command, rendered
from unmask.training.machine import choose_inference_machine
from unmask.training.runs.display import Display

PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
"""Packages of the extra `serve`."""


def serve(
    models: Sequence[str | Path],
    *,
    port: int = 8080,
    host: str = "127.0.0.1",
    allow_host: Sequence[str] = (),
    api_key_file: str | Path | None = None,
    max_concurrent_requests: int = 2048,
    max_batch_tokens: int = 8192,
    max_client_batch_size: int = 128,
    payload_limit: int = 2_000_000,
    timeout: int = 60,
    log_requests: bool = False,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: InferencePrecision = "float32",
    engine: InferenceEngine = "torch",
    quiet: bool = False,
) -> None:
    """Answer requests over HTTP with one or more models.

    Args:
        models: run directories or Hugging Face model directories, each also as NAME=DIRECTORY; requests without a model
            use the first one that can do what they ask for.
        port: port; 0 is any free one.
        host: address to listen on; 127.0.0.1 is reached only by programs of this machine.
        allow_host: names by which clients may address the server, such as that of a proxy; * allows all; by default
            localhost and host.
        api_key_file: file with API keys, one per line; also read from UNMASK_API_KEY.
        max_concurrent_requests: more requests get 429.
        max_batch_tokens: number of tokens that are computed together.
        max_client_batch_size: number of texts in a request.
        payload_limit: size of a request in bytes.
        timeout: time in seconds to compute a response.
        log_requests: print route, status and time of each request; texts are never printed.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32, and int8
            needs VNNI of AVX-512.
        engine: auto is the fastest that is installed, which is measured before the first request, and stored in the
            directory of the model.
        quiet: print only results and errors.

    Raises:
        UserError: the address or a model cannot be used, no model is named, a limit is not positive, or an event loop
            is running.
    """
    try:
        from unmask.serving import run
        from unmask.serving.app import create_app
        from unmask.serving.guard import LOOPBACK, read_keys
        from unmask.serving.metrics import Meter
        from unmask.serving.playground import playground_routes, public_paths
        from unmask.serving.service import Service
        from unmask.serving.types import Limits
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        raise UserError("serving needs more packages", remedy="install them: pip install 'unmask[serve]'") from error

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UserError(
            "a program with an event loop, such as a notebook, cannot run a server besides",
            remedy=f"start it in a terminal: {rendered(call('serve', 'MODEL'), in_command)}",
        )
    if not (models := as_several(models)):
        raise UserError(f"{argument('models')}: there is no model", remedy="name one or more directories of models")
    most = {
        "max_concurrent_requests": max_concurrent_requests,
        "max_batch_tokens": max_batch_tokens,
        "max_client_batch_size": max_client_batch_size,
        "payload_limit": payload_limit,
        "timeout": timeout,
    }
    for name, number in most.items():
        check_count(name, number)
    check_count("port", port, 0, 65535)
    limits = replace(
        Limits(),
        requests=max_concurrent_requests,
        batch_tokens=max_batch_tokens,
        inputs=max_client_batch_size,
        body=payload_limit,
        seconds=timeout,
    )
    display, sources, keys = Display(quiet=quiet), run.parse_sources(models), read_keys(api_key_file)
    with run.listen(host, port) as listener:  # an address in use is noticed before the models are loaded
        if not run.is_loopback(host) and not keys:
            display.warn(f"everybody who reaches this address can use the models; see {argument('api_key_file')}")
        meter = Meter(log=log_requests)
        machine = choose_inference_machine(device, precision)
        models_served = run.load_served(sources, machine, limits, meter, allow_pickle=allow_pickle, engine=engine)
        service = Service(models_served, limits, meter)
        everything = host in ("0.0.0.0", "::") and not allow_host
        hosts = ("*",) if everything else (*LOOPBACK, host, *as_texts(allow_host))
        url, names = run.address(listener), [name.lower() for name in hosts]
        app = create_app(service, keys=keys, hosts=names, pages=playground_routes(service), public=public_paths())
        run.serve(run.make_server(app, service, lambda: display.say(run.greeting(service, url))), listener)
