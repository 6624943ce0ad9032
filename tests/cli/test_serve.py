import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import numpy as np
import pytest
import torch

from tests.cli.conftest import COMMAND, run
from unmask.cli.main import main

pytest.importorskip("starlette", reason="the extra serve is not installed")


@pytest.fixture(scope="module")
def server(line):
    """A server of the fine-tuned and the pretrained model, in a process of its own: the process and its address."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*COMMAND, "serve", f"films={line / 'tuned'}", str(line / "run"), "--port", "0", "--log-requests"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        greeting = process.stderr.readline()
        yield process, re.match(r"http://127\.0\.0\.1:\d+", greeting)[0], greeting
        process.kill()


def post(url, value):
    request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as found:
        return json.load(found)


def test_one_line_tells_address_models_and_limits(server):
    assert re.fullmatch(
        r"http://127.0.0.1:\d+ serves films \(\d+ tokens\), run \(\d+ tokens\); a request holds at most 128 texts, "
        r"65,536 tokens, 2 MB\n",
        server[2],
    )


def test_S20_server_command_line_and_transformers_agree(server, line):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    texts = ["dog near the sea", "a cat in the garden"]
    served = post(f"{server[1]}/predict", {"inputs": [[text] for text in texts]})
    printed = run("predict", "--model", line / "tuned", *texts, "--json", "--quiet").out.splitlines()
    directory = str(line / "tuned" / "model")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    with torch.no_grad():
        rows = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits.softmax(1)
    for one, text, row in zip(served, printed, rows.tolist(), strict=True):
        scores = {item["label"]: item["score"] for item in one}
        assert scores == pytest.approx(json.loads(text)["scores"], abs=1e-5)
        assert scores == pytest.approx(
            {model.config.id2label[index]: value for index, value in enumerate(row)}, abs=1e-5
        )
    (filled,) = post(f"{server[1]}/fill", {"inputs": "the [MASK] sees", "top": 3})
    shown = json.loads(run("fill", "--model", line / "run", "the [MASK] sees", "--top", 3, "--json").out)
    assert [one["token"] for one in filled[0]["candidates"]] == [
        one["token"] for one in shown["masks"][0]["candidates"]
    ]


def test_S8_sigterm_answers_open_requests_and_then_ends(server):
    process, url, _ = server
    answers = []
    texts = ["the dog sees the cat near the sea"] * 100

    def ask():
        answers.append(np.array(post(f"{url}/embed", {"inputs": texts, "model": "run"})).shape)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    while b"unmask_open_requests 0" in (urllib.request.urlopen(f"{url}/metrics").read()):
        time.sleep(0.001)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert process.wait(30) == 0
    assert answers == [(100, 32)] * 20
    errors = process.stderr.read()
    assert "Traceback" not in errors
    assert "dog" not in errors, "texts are never logged"
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/health")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "nothing"], "no directory 'nothing'"),
        (["serve", "{line}/run", "{line}/run"], "two models have the name 'run'"),
        (["serve", "{line}/run", "--api-key-file", "{here}/empty.txt"], "no key"),
        (["serve", "{line}/run", "--host", "no.such.host.invalid"], "choose another --port or --host"),
    ],
)
def test_mistakes_are_one_line(arguments, message, refused):
    refused([*arguments, *([] if "--host" in arguments else ["--port", "0"])], message)


@pytest.mark.parametrize("option", ["--port=70000", "--port=x", "--timeout=0", "--max-batch-tokens=-1"])
def test_bad_numbers_are_refused(option, capsys):
    try:
        status = main(["serve", "model", option])
    except SystemExit as stopped:  # what is no number at all is refused by the parser
        status = stopped.code
    assert status == 2
    assert re.search(r"--(\S+ \S+: not a whole|port: invalid int)", capsys.readouterr().err)


def test_a_missing_extra_is_named(monkeypatch, refused):
    import sys

    for name in [name for name in sys.modules if name.startswith("unmask.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    refused(["serve", "model"], "pip install 'unmask[serve]'")
