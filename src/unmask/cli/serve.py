"""`unmask serve`: answer requests over HTTP with one or more models."""

from __future__ import annotations

import argparse
from dataclasses import replace

from unmask.cli.options import add_machine, machine, report
from unmask.support.errors import UserError

PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
"""Packages of the extra `serve`."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="run directory or Hugging Face model directory, or NAME=DIRECTORY; requests without a model use the "
        "first one that can do what they ask for",
    )
    parser.add_argument("--allow-pickle", action="store_true", help="load pickled weights, restricted to tensors")
    group = parser.add_argument_group("address")
    group.add_argument("--port", type=_number, default=8080, help="port; 0 is any free one (default: 8080)")
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, only programs of this machine)"
    )
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which clients may address the server, such as that of a proxy; * allows all (default: localhost "
        "and --host)",
    )
    group.add_argument(
        "--api-key-file", metavar="FILE", help="file with API keys, one per line; also read from UNMASK_API_KEY"
    )
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-concurrent-requests", type=_positive, metavar="N", help="more requests get 429 (default: 2048)"
    )
    group.add_argument(
        "--max-batch-tokens", type=_positive, metavar="N", help="tokens that are computed together (default: 8192)"
    )
    group.add_argument("--max-client-batch-size", type=_positive, metavar="N", help="texts in a request (default: 128)")
    group.add_argument("--payload-limit", type=_positive, metavar="BYTES", help="size of a request (default: 2000000)")
    group.add_argument("--timeout", type=_positive, metavar="SECONDS", help="time to compute a response (default: 60)")
    parser.add_argument(
        "--log-requests",
        action="store_true",
        help="print route, status and time of each request; texts are never printed",
    )
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Load the models and serve."""
    try:
        from unmask.serving.app import LOOPBACK, Service, create_app
        from unmask.serving.guard import read_keys
        from unmask.serving.metrics import Meter
        from unmask.serving.playground import playground_routes, public_paths
        from unmask.serving.run import (
            address,
            greeting,
            is_loopback,
            listen,
            load_served,
            make_server,
            parse_sources,
            serve,
        )
        from unmask.serving.types import Limits
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        raise UserError("serving needs more packages", remedy="install them: pip install 'unmask[serve]'") from error

    sources, keys = parse_sources(options.models), read_keys(options.api_key_file)
    given = {
        "requests": options.max_concurrent_requests,
        "batch_tokens": options.max_batch_tokens,
        "inputs": options.max_client_batch_size,
        "body": options.payload_limit,
        "seconds": options.timeout,
    }
    limits = replace(Limits(), **{name: value for name, value in given.items() if value is not None})
    with listen(options.host, options.port) as listener:  # an address in use is noticed before the models are loaded
        if not is_loopback(options.host) and not keys:
            report(options, "warning: everybody who reaches this address can use the models; see --api-key-file")
        meter = Meter(log=options.log_requests)
        models = load_served(sources, machine(options), limits, meter, allow_pickle=options.allow_pickle)
        service = Service(models, limits, meter)
        everything = options.host in ("0.0.0.0", "::") and not options.allow_host
        hosts = ("*",) if everything else (*LOOPBACK, options.host, *options.allow_host)
        url = address(listener)
        names = [host.lower() for host in hosts]
        app = create_app(service, keys=keys, hosts=names, pages=playground_routes(service), public=public_paths())
        serve(make_server(app, service, lambda: report(options, greeting(service, url))), listener)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a port")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text)):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is not a positive whole number")
    return int(text)
