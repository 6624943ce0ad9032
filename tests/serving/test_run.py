import asyncio
import gc
import json
import socket
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from tests.serving.conftest import FAST, KINDS, LIMITS, SHAPE, testclient
from unmask.inference import fastest
from unmask.inference.fastest import Choice, Engines
from unmask.inference.load import load
from unmask.model.directory import write_tasks
from unmask.model.model import Model, save_model
from unmask.serving import run
from unmask.serving.app import create_app
from unmask.serving.metrics import Meter
from unmask.serving.run import address, greeting, is_loopback, listen, load_served, make_server, parse_sources
from unmask.serving.serve import serve
from unmask.serving.service import Service
from unmask.serving.types import Limits
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")
TORCH = Engines(Choice({}, "torch", "torch", {}, []))


def test_models_have_the_names_of_their_directories_or_others():
    found = parse_sources([Path("runs/films"), "other=runs/films/", "/a/b=c/model"])
    assert [source.name for source in found] == ["films", "other", "model"]
    assert found[1].directory == "runs/films/" and found[2].directory == "/a/b=c/model"
    for arguments, message in (
        (["a/x", "b/x"], "two models"),
        (["=x"], "cannot be the name"),
        (["-x=y"], "cannot be"),
        (["/"], "cannot be the name"),
        ([None], "a NoneType is given, where a model is expected"),
    ):
        with pytest.raises(UserError, match=message):
            parse_sources(arguments)


def test_a_server_has_at_least_one_model():
    with pytest.raises(UserError, match="models: there is no model"):
        serve([])
    with pytest.raises(UserError, match="no directory 'nothing'"):
        serve("nothing", port=0)
    with pytest.raises(UserError, match="no directory 'nothing'"):
        serve(Path("nothing"), port=0)
    for models in (object(), None, {"a": "nothing"}, [5]):
        with pytest.raises(UserError, match="is given, where a model is expected; name a run"):
            serve(models, port=0)
    with pytest.raises(UserError, match=r"port=80\.5: not a whole number from 0 to 65,535"):
        serve("nothing", port=80.5)


def test_a_server_is_not_started_in_a_notebook():
    """Its event loop runs already."""

    async def cell():
        serve("nothing", port=0)

    with pytest.raises(UserError, match=r"such as a notebook, .* start it in a terminal: unmask serve MODEL"):
        asyncio.run(cell())


def test_a_link_has_its_own_name(tmp_path):
    (tmp_path / "run7").mkdir()
    (tmp_path / "current").symlink_to("run7")
    assert [one.name for one in parse_sources([f"{tmp_path}/current", f"{tmp_path}/run7/."])] == ["current", "run7"]


def test_an_address_that_is_in_use_is_an_error():
    with listen("127.0.0.1", 0) as listener:
        url = address(listener)
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(UserError, match="choose another port"):
            listen("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(UserError, match="choose another"):
        listen("no.such.host.invalid", 0)


def test_what_python_does_between_threads_is_as_before_once_a_server_has_stopped(serving):
    service, before, during = serving("masked"), sys.getswitchinterval(), []

    def started():
        during.append(sys.getswitchinterval())
        server.should_exit = True

    server = make_server(create_app(service), service, started)
    with listen("127.0.0.1", 0) as listener:
        run.serve(server, listener)
    assert during == [pytest.approx(run.SWITCH)] and sys.getswitchinterval() == before


def test_packets_of_responses_do_not_wait_for_acknowledgements():
    listener = listen("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("files", "expected"), [(512, 256), (20_000, 2 * Limits().requests)])
def test_connections_leave_half_of_the_files_that_a_program_may_open(files, expected, serving, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    service = serving("masked", limits=Limits())
    assert make_server(create_app(service), service, lambda: None).config.limit_concurrency == expected


def test_S18_loopback_is_told_from_other_addresses():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))


def test_the_greeting_tells_address_models_and_limits(serving):
    line = greeting(serving("masked", "classes"), "http://127.0.0.1:1")
    assert line == (
        "http://127.0.0.1:1 serves masked (40 tokens), classes (16 tokens); a request holds at most 8 texts, "
        "400 tokens, 0.02 MB"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "bert", "vocab_size": 10000000000, "auto_map": {"AutoModel": "evil.Model"}}'),
        ("model.safetensors", (10**12).to_bytes(8, "little") + b"{"),
        ("tokenizer.json", b"[" * 10_000),
    ],
)
def test_malicious_directories_are_refused_before_memory_is_spent(tiny, tmp_path, name, content):
    gc.freeze()  # the collection below goes through what is made here, not through all that the tests have loaded
    save_model(tmp_path / "model", tiny["masked"], "card")
    assert load_served(parse_sources([str(tmp_path / "model")]), CPU, LIMITS, Meter())
    (tmp_path / "model" / name).write_bytes(content)
    (tmp_path / "model" / "evil.py").write_text("import os\nos._exit(3)\n")
    gc.collect()
    before = psutil.Process().memory_info().rss
    with pytest.raises(UserError):
        load_served(parse_sources([str(tmp_path / "model")]), CPU, LIMITS, Meter())
    assert psutil.Process().memory_info().rss - before < 50_000_000


def ask(url, number):
    """Send some requests, good and bad ones, over new connections."""
    for index in range(number):
        value = {"inputs": ["the dog sees the cat", f"a garden {index}"]} if index % 5 else {"inputs": 1}
        request = urllib.request.Request(url, json.dumps(value).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as found:
                found.read()
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 422


def test_S12_memory_and_descriptors_do_not_grow(live):
    """A short version of the loads of benchmarks/serving.py."""
    gc.freeze()  # the collections below go through what is made here
    process, folder = psutil.Process(), Path("/proc/self/fd")
    with live("masked") as server:
        url = f"http://127.0.0.1:{server.port}/embed"

        def load(number):
            threads = [threading.Thread(target=ask, args=(url, number)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            gc.collect()
            return (
                process.memory_info().rss,
                len(list(folder.iterdir())) if folder.is_dir() else 0,
                threading.active_count(),
            )

        load(15)
        memory, descriptors, running = load(10)
        more, still, later = load(40)
    assert more < 1.05 * memory
    assert still <= descriptors + 2
    assert later <= running
    assert torch.is_grad_enabled()


@pytest.fixture
def several(tmp_path, tokenizer):
    """Return the directory of a run on three tasks, whose models have one encoder."""
    torch.manual_seed(0)
    encoder = SHAPE.build(tokenizer.size)
    for name in ("tags", "classes", "number"):
        task, labels = KINDS[name]
        heads = {task.part: task.build(encoder.head, labels).published()}
        save_model(tmp_path / "run" / "model" / name, Model(encoder, tokenizer, heads, labels, task), "card")
    write_tasks(tmp_path / "run" / "model", ["classes", "number", "tags"])
    return tmp_path / "run"


def test_a_run_on_several_tasks_is_a_model_for_each(several):
    names = [source.name for source in parse_sources([str(several)])]
    assert names == ["classes", "number", "tags"]
    assert [source.name for source in parse_sources([f"films={several}"])] == [
        "films.classes",
        "films.number",
        "films.tags",
    ]
    found = parse_sources([str(several / "model"), f"other={several / 'model' / 'tags'}"])
    assert [source.name for source in found] == ["classes", "number", "tags", "other"]
    with pytest.raises(UserError, match="two models have the name 'classes'"):
        parse_sources([str(several), f"classes={several / 'model' / 'tags'}"])


def test_equal_encoders_are_in_memory_once(several, tiny, tmp_path):
    """The tagger, whose file has no pooler, is loaded first, and uses the encoder of the others."""
    save_model(tmp_path / "another", tiny["classes"], "card")
    paths = [several / "model" / "tags", several, tmp_path / "another"]
    models = load_served(parse_sources([f"first={paths[0]}", *map(str, paths[1:])]), CPU, LIMITS, Meter())
    assert [served.name for served in models] == ["first", "classes", "number", "tags", "another"]
    encoders = [served.predictor.backend.encoder for served in models]
    assert all(encoder is encoders[1] for encoder in encoders[:4]) and encoders[4] is not encoders[1]
    assert all(served.model.encoder is models[1].model.encoder for served in models[:4])
    texts = [f"the {word} sees the cat near the sea" for word in ("dog", "cat", "river", "house")]
    folders = [paths[0], *(several / "model" / served.name for served in models[1:4])]
    for served, folder in zip(models[:4], folders, strict=True):
        alone = load(folder)
        assert served.predictor.predict(texts) == alone.predict(texts)
        assert np.array_equal(served.predictor.embed(texts), alone.embed(texts))


def test_engines_are_chosen_before_the_first_request(several, monkeypatch):
    """Models that have their encoder in memory once choose in their own directories."""
    chosen = []
    monkeypatch.setattr(fastest, "choose_engines", lambda backend, head, where: chosen.append((head, where)) or TORCH)
    models = load_served(parse_sources([str(several)]), CPU, LIMITS, Meter(), engine="auto")
    assert {served.predictor.backend.encoder for served in models} == {models[0].predictor.backend.encoder}
    for served in models:
        assert (served.predictor.task.part, several / "model" / served.name) in chosen
    number = len(chosen)
    models[0].predictor.predict(["the dog sees the cat"])
    assert len(chosen) == number


def test_one_server_answers_for_all_tasks(several):
    """Requests for several tasks at once, computed on the same modules by a thread of each model."""
    limits, meter = FAST, Meter()
    service = Service(load_served(parse_sources([str(several)]), CPU, limits, meter), limits, meter)
    texts = [f"the {word} sees the cat" for word in ("dog", "cat", "river", "house", "teacher")]
    asked = [
        (path, model, text)
        for text in texts
        for path, model in (("/predict", "classes"), ("/predict", "number"), ("/tag", "tags"))
    ] * 4
    with (
        testclient.TestClient(create_app(service), base_url="http://localhost") as client,
        ThreadPoolExecutor(8) as pool,
    ):

        def ask_one(item):
            path, model, text = item
            return client.post(path, json={"inputs": text, "model": model}).json()

        answers = list(pool.map(ask_one, asked))
        first = client.post("/predict", json={"inputs": texts[0]}).json()
    assert {score["label"] for score in first} == {"bad", "good", "so-so"}
    expected = {
        (model, text): prediction
        for model in ("classes", "number", "tags")
        for text, prediction in zip(texts, load(several / "model" / model).predict(texts), strict=True)
    }
    for (_, model, text), answer in zip(asked, answers, strict=True):
        alone = expected[model, text]
        if model == "classes":
            assert {score["label"]: score["score"] for score in answer} == pytest.approx(alone.scores, abs=1e-6)
        elif model == "number":
            assert answer[0]["score"] == pytest.approx(alone.score, abs=1e-5)
        else:
            assert [one["label"] for one in answer[0]] == [one.label for one in alone.entities]
