"""Program that runs each command in each precision: `python simulated_program.py OUT TEXT EXAMPLES`.

Environment variables restrict the libraries of this process to what a simulated processor has. Prints a JSON object:
the status and the last message of each cell, "COMMAND PRECISION"; what the processor can do; and what the exported
models predict. With OUT alone, which another process has filled, it prints only what the models there predict here.
"""

import contextlib
import io
import json
import logging
import shutil
import sys
from pathlib import Path

import torch

from unmask.cli.main import main
from unmask.inference import bench, export
from unmask.inference.load import load
from unmask.serving import run as serving
from unmask.support import panels
from unmask.support.capabilities import emulates_bf16, multiplies_bf16, onednn_multiplies
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine

PRECISIONS = ("float32", "bf16", "int8")
TEXTS = ["the dog near the sea", "the cat", "a garden behind the school follows the letter"]
SHAPE = ["layers=1", "width=32", "heads=2", "feed_forward=64", "positions=64"]
SMALL = [f"encoder.{setting}" for setting in SHAPE] + ["tokenizer.vocabulary=200", "layout.length=48"]
SMALL += ["batch.tokens=256", "budget.steps=3", "optimizer.learning_rate=1e-3"]
PROGRAMS = {
    "onnx-float32": (),
    "onnx-int8": (),
    "openvino-bf16": (),
    "openvino-int8": ("--target", "any"),
    "openvino-int8-this": ("--target", "this"),
}


def run(*words):
    """Run a command, and return its status, output and last message."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(map(str, words)))
        except SystemExit as error:
            status = error.code
    return {"status": status, "output": out.getvalue(), "message": (err.getvalue().strip().splitlines() or [""])[-1]}


def ask(server, listener):
    """In place of a server: answer a request to its application."""
    from starlette.testclient import TestClient

    with TestClient(server.config.app, base_url="http://localhost") as client:
        print(client.post("/predict", json={"inputs": TEXTS[0]}).raise_for_status().text)


def tracing_once(out):
    """Trace each head once: all exports of this program are of one model, and tracing takes most of their time."""
    trace = export.trace

    def trace_once(program, path, outputs):
        kept = out / ("traced-features" if program.head is None else "traced-classes") / path.name
        if not kept.exists():
            kept.parent.mkdir()
            trace(program, kept, outputs)
        for file in kept.parent.iterdir():
            shutil.copyfile(file, path.parent / file.name)

    export.trace = bench.trace = trace_once


def cells(out, text, examples):
    """Yield the result of each cell."""
    changes = [word for setting in SMALL for word in ("--set", setting)]
    few = ("--set", "budget.steps=3", "--quiet")
    model, encoder = out / "finetune-float32", out / "pretrain-float32"
    for precision in PRECISIONS:
        how = ("--precision", precision)
        yield (
            "pretrain",
            precision,
            run(
                "pretrain",
                "bert-tiny",
                "--text",
                text,
                *how,
                "--quiet",
                "--out",
                out / f"pretrain-{precision}",
                *changes,
            ),
        )
        made = out / f"finetune-{precision}"
        start = ("--model", encoder, "--train", examples, "--dev", examples)
        yield "finetune", precision, run("finetune", "classification", *start, *how, *few, "--out", made)
        made = out / f"distill-{precision}"
        start = ("--teacher", model, "--train", examples, "--dev", examples, "--layers", 1)
        yield "distill", precision, run("distill", "distilbert-mini", *start, *how, *few, "--out", made)
    for name, options in PROGRAMS.items():
        kind, precision = name.split("-")[:2]
        data = ("--data", examples) if kind == "openvino" and precision == "int8" else ()
        made = ("--model", model, "--format", kind, "--precision", precision, *data, *options, "--out", out / name)
        yield f"export to {name}", precision, run("export", *made, "--quiet")
    features = ("--head", "features", "--out", out / "features-program", "--quiet")
    run("export", "--model", model, "--format", "onnx", "--precision", "int8", *features)
    for precision in PRECISIONS:
        program = precision == "int8"
        how = () if program else ("--precision", precision)
        used = out / "onnx-int8" if program else model
        vectors = out / "features-program" if program else model
        data = ("--data", examples)
        yield "predict", precision, run("predict", "--model", used, *TEXTS, "--json", *how)
        yield "evaluate", precision, run("evaluate", "--model", used, *data, "--json", "--quiet", *how)
        made = out / f"features-{precision}"
        yield (
            "features",
            precision,
            run("features", "--model", vectors, *data, "--layers=-1", *how, "--quiet", "--out", made),
        )
        made = out / f"vectors-{precision}.npy"
        yield "embed", precision, run("embed", "--model", vectors, *data, *how, "--quiet", "--out", made)
        yield "serve", precision, run("serve", used, "--port", 0, "--quiet", *how)
    yield "predict --precision", "int8", run("predict", "--model", model, *TEXTS, "--precision", "int8")
    yield "bench", "float32", run("bench", model, "--sentences", 8, "--json")


def loaded(directory):
    """Return the probabilities that an exported model of another process computes here, or why it is refused."""
    try:
        return [list(prediction.scores.values()) for prediction in load(directory).predict(TEXTS)]
    except UserError as error:
        return str(error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    serving.serve = ask
    out, *files = map(Path, sys.argv[1:])
    if not files:
        print(json.dumps({name: loaded(out / name) for name in PROGRAMS}))
        sys.exit()
    out.mkdir()
    tracing_once(out)
    found = {f"{command} {precision}": result for command, precision, result in cells(out, *files)}
    able = {
        "int8": panels.multiplies(torch.int8),
        "emulates bf16": emulates_bf16(),
        "bf16 is faster": multiplies_bf16(),
        "oneDNN in bf16": onednn_multiplies(torch.bfloat16),
        "default": choose_machine("cpu").precision,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    programs = {name: loaded(out / name) for name in PROGRAMS}
    print(json.dumps({"cells": found, "able": able, "programs": programs}))
