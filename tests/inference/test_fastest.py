"""`engine="auto"`: the fastest engine is chosen, stored and used, and torch computes where it fails."""

import errno
import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from unmask.inference import bench, engines, fastest
from unmask.inference.backend import TorchBackend
from unmask.inference.calls import predict
from unmask.inference.embed import embed
from unmask.inference.export import Export, export_model
from unmask.inference.exported import ExportedBackend
from unmask.inference.fastest import CHOICE, FOLDER, FastestBackend
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import save_model
from unmask.support.errors import InputWarning, UserError

from .conftest import TEXTS

for package in ("onnxruntime", "onnxscript"):
    pytest.importorskip(package, reason="the extra onnx is not installed")

ONNX = "onnx-float32"
"""Folder of the only program, where there is no OpenVINO."""


@pytest.fixture
def without_openvino(monkeypatch):
    """Hide OpenVINO."""
    for module in (fastest, bench):
        monkeypatch.setattr(module, "find_spec", lambda name: None if name == "openvino" else name)


@pytest.fixture(autouse=True)
def times(monkeypatch, without_openvino):
    """Seconds of a text alone and of one among several, for torch and for programs, in place of measured ones."""
    seconds = {"torch": (2.0, 1.0), "program": (1.0, 2.0)}

    def times(backend, model, signature, samples, number):
        alone, together = seconds["torch" if isinstance(backend, TorchBackend) else "program"]
        return 1 / together, [alone] * number

    monkeypatch.setattr(fastest, "time_backend", times)
    return seconds


@pytest.fixture
def measured(monkeypatch):
    """The heads that were measured."""
    heads, measure = [], fastest._measure
    monkeypatch.setattr(fastest, "_measure", lambda *given: heads.append(given[1]) or measure(*given))
    return heads


@pytest.fixture
def runs(monkeypatch):
    """Numbers of sequences of the calls of ONNX Runtime, once cleared."""
    numbers, run = [], engines.OnnxEngine.run

    def counted(engine, inputs):
        numbers.append(len(inputs["input_ids"]))
        return run(engine, inputs)

    monkeypatch.setattr(engines.OnnxEngine, "run", counted)
    return numbers


@pytest.fixture
def saved(make, tmp_path):
    def save(kind="classification"):
        model = make(kind)
        heads = model.heads if kind == "classification" else {model.task.part: model.heads[model.task.part]}
        save_model(tmp_path / kind, replace(model, heads=heads), "A toy.")
        return tmp_path / kind

    return save


def auto(directory, **options):
    return load(directory, engine="auto", device="cpu", **options)


def assert_same(one, other):
    for texts in (TEXTS, TEXTS[:1]):
        for left, right in zip(outputs(one, texts), outputs(other, texts), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5, rtol=1e-5)


def outputs(predictor, texts):
    task = predictor.task
    if task.part == "question_answering":
        examples = [predictor.question("who", text) for text in texts]
    else:
        examples = task.from_texts(texts, None)
    framed = task.frame(predictor.model.tokenizer, examples, predictor.labels, gold=False)
    return predictor.backend.logits(task.part, framed.samples)


def choice_of(directory):
    (path,) = directory.glob(f"{FOLDER}/*/{CHOICE}")
    return msgspec.json.decode(path.read_bytes())


@pytest.mark.parametrize(
    "kind",
    [
        *("classification", "question-answering"),  # one output, and several
        *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("regression", "token-classification")),
    ],
)
def test_a_text_alone_and_several_have_the_fastest_engine_each(saved, runs, kind):
    directory = saved(kind)
    chosen, exact = auto(directory), load(directory, device="cpu")
    assert_same(chosen, exact)
    assert choice_of(directory)["alone"] == "onnx" and choice_of(directory)["together"] == "torch"
    runs.clear()
    outputs(chosen, TEXTS)
    assert not runs
    outputs(chosen, TEXTS[:1])
    assert runs == [1]


def test_torch_computes_unless_another_engine_is_clearly_faster(saved, times):
    times["program"] = (1.9, 0.95)
    predictor = auto(directory := saved())
    predictor.predict(TEXTS)
    assert choice_of(directory)["alone"] == choice_of(directory)["together"] == "torch"
    assert not list(directory.glob(f"{FOLDER}/*/{ONNX}"))


def test_only_programs_of_the_same_precision_are_measured(saved, times):
    times["program"] = (0.1, 0.1)
    predictor = auto(directory := saved())
    predictor.predict(TEXTS)
    assert set(choice_of(directory)["milliseconds"]) == {"torch", "onnx"}
    assert {path.name for path in directory.glob(f"{FOLDER}/*/*")} == {CHOICE, ONNX}
    assert predictor.backend.precision == "float32"


def test_each_head_is_chosen_when_it_is_first_computed(saved, measured):
    predictor = auto(directory := saved())
    assert not measured and not (directory / FOLDER).exists()
    predictor.embed(TEXTS[:1])
    assert measured == ["features"]
    predictor.fill("the [MASK] near the sea")
    predictor.features(TEXTS, layers=[0])
    assert measured == ["features", "masked_lm"]


def test_a_choice_is_stored_with_the_model(saved, measured, runs):
    directory = saved()
    files = {path: path.read_bytes() for path in directory.iterdir()}
    auto(directory).predict("the dog")
    runs.clear()
    again = auto(directory)
    assert again.predict("the dog") == auto(directory).predict("the dog")
    assert measured == ["classification"] and runs.count(1) >= 2
    assert {path: path.read_bytes() for path in directory.iterdir() if path.is_file()} == files
    assert again.fingerprint() == load(directory, device="cpu").fingerprint()


@pytest.mark.parametrize("changed", ["processor", "threads", "version", "precision of products", "extension", "model"])
def test_a_choice_that_no_longer_fits_is_measured_again(saved, make, measured, monkeypatch, changed):
    directory = saved()
    auto(directory).predict("the dog")
    match changed:
        case "processor":
            monkeypatch.setattr(fastest, "processor", lambda: "another one")
        case "threads":
            monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        case "version":
            monkeypatch.setattr(fastest, "_version", lambda library: "0.1")
        case "extension":  # compiled, or no longer
            monkeypatch.setattr(fastest, "panels", SimpleNamespace(registers=lambda: 1))
        case "precision of products":
            monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        case "model":
            model = make()
            with torch.no_grad():
                model.heads["classification"]["out.bias"].add_(1)
            save_model(directory, model, "A toy.")
    predictor = auto(directory)
    predictor.predict("the dog")
    assert len(measured) == 2
    assert_same(predictor, load(directory, device="cpu"))
    auto(directory).predict("the dog")
    assert len(measured) == 2


def test_without_another_engine_torch_computes(saved, monkeypatch, measured):
    monkeypatch.setattr(fastest, "find_spec", lambda name: None)
    predictor = auto(directory := saved())
    with pytest.warns(InputWarning, match="no faster engine than torch .* install onnxruntime or openvino"):
        predictor.predict(TEXTS)
    assert_same(predictor, load(directory, device="cpu"))
    assert not measured and not (directory / FOLDER).exists()


def broken_import(name):
    raise AttributeError("no attribute of a version of numpy")


def broken_start(engine, path, threads, precision):
    raise UserError("an illegal instruction")


def broken_run(engine, inputs):
    raise UserError("no memory")


def wrong_run(engine, inputs, run=engines.OnnxEngine.run):
    return run(engine, inputs) + 1


@pytest.mark.parametrize(
    ("name", "fault", "reason"),
    [
        ("import_module", broken_import, "cannot be imported .AttributeError: no attribute"),
        ("OnnxEngine.__init__", broken_start, "an illegal instruction"),
        ("OnnxEngine.run", broken_run, "no memory"),
        ("OnnxEngine.run", wrong_run, "differs from the original"),
    ],
)
def test_an_engine_that_is_broken_is_left_out(saved, monkeypatch, name, fault, reason):
    owner, _, attribute = name.rpartition(".")
    monkeypatch.setattr(getattr(engines, owner) if owner else engines, attribute, fault)
    predictor = auto(directory := saved())
    assert_same(predictor, load(directory, device="cpu"))
    (line,) = choice_of(directory)["left_out"]
    assert re.search(rf"^onnx.*: .*{reason}", line) and line.isprintable()


def test_an_engine_that_fails_later_is_replaced_with_one_warning(saved, times, monkeypatch):
    times["program"] = (0.1, 0.1)
    directory = saved()
    predictor, exact = auto(directory), load(directory, device="cpu")
    expected = exact.predict(TEXTS), exact.embed(TEXTS)
    predictor.predict(TEXTS)
    predictor.embed(TEXTS)
    calls, run = [], engines.OnnxEngine.run

    def fails_later(engine, inputs):
        calls.append(inputs)
        if len(calls) > 1:
            raise UserError("no memory")
        return run(engine, inputs)

    monkeypatch.setattr(engines.OnnxEngine, "run", fails_later)
    monkeypatch.setattr("unmask.inference.exported.BATCH_TOKENS", 5)  # several batches
    with pytest.warns(InputWarning, match=r"torch computes the last layer in its place \(no memory\)"):
        vectors = predictor.embed(TEXTS)
    np.testing.assert_allclose(vectors, expected[1], atol=1e-5)
    assert len(calls) == 2
    with pytest.warns(InputWarning, match="torch computes classification in its place"):
        assert [found.label for found in predictor.predict(TEXTS)] == [found.label for found in expected[0]]
    number = len(calls)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictor.predict(TEXTS)
        predictor.embed(TEXTS)
    assert len(calls) == number


def test_errors_of_the_model_are_not_those_of_an_engine(saved, times):
    times["program"] = (0.1, 0.1)
    predictor = auto(saved("regression"))
    predictor.predict(TEXTS)
    framed = predictor.task.frame(predictor.model.tokenizer, predictor.task.from_texts(TEXTS, None), (), gold=False)
    with pytest.raises(UserError, match="has no spans head"):
        predictor.backend.logits("spans", framed.samples)


@pytest.mark.parametrize("damage", ["onnx/model.onnx", "export.json", "check.safetensors", CHOICE])
def test_a_stored_engine_that_is_damaged_is_measured_again(saved, measured, damage):
    directory = saved()
    auto(directory).predict("the dog")
    (path,) = directory.glob(f"{FOLDER}/*/{damage if damage == CHOICE else f'{ONNX}/{damage}'}")
    path.write_bytes(path.read_bytes()[:-9])
    predictor = auto(directory)
    with pytest.warns(InputWarning, match="a stored engine cannot be used, and the engines are measured again") as told:
        predictor.predict("the dog")
    assert len(told) == 1
    assert len(measured) == 2
    auto(directory).predict("the dog")
    assert len(measured) == 2


def test_a_choice_names_no_other_files(saved, measured):
    directory = saved()
    auto(directory).predict("the dog")
    (path,) = directory.glob(f"{FOLDER}/*/{CHOICE}")
    path.write_text(path.read_text().replace('"onnx"', '"../../onnx"', 1))
    with pytest.warns(InputWarning, match="a stored engine cannot be used"):
        auto(directory).predict("the dog")
    assert len(measured) == 2


def test_in_a_directory_that_cannot_be_written_nothing_is_stored(saved, measured):
    directory = saved()
    (directory / FOLDER).write_text("")  # no folder can be made there, whoever runs the test
    for number in (1, 2):
        predictor = auto(directory)
        with pytest.warns(InputWarning, match="is not stored, and measured each time"):
            predictor.predict("the dog")
        assert len(measured) == number
        assert_same(predictor, load(directory, device="cpu"))


def test_a_full_disk_is_no_error(saved, monkeypatch):
    predictor, write = auto(directory := saved()), fastest.replace_file

    def full(path, content):
        if path.is_relative_to(directory):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(fastest, "replace_file", full)
    with pytest.warns(InputWarning, match="No space left on device"):
        predictor.predict("the dog")
    assert not list(directory.glob(f"{FOLDER}/*"))


def test_several_at_once_measure_once(saved, measured):
    directory = saved()
    with ThreadPoolExecutor(4) as pool:
        labels = {found[0].label for found in pool.map(lambda _: auto(directory).predict("the dog"), range(4))}
    assert len(labels) == len(measured) == 1
    assert not list(directory.glob(f"{FOLDER}/.*"))


def test_texts_that_are_longer_than_measured_ones_are_torchs(saved, monkeypatch, times, runs):
    times["program"] = (0.1, 0.1)
    monkeypatch.setattr(fastest, "LONGEST", 7)
    predictor = auto(saved())
    predictor.predict("the dog")
    runs.clear()
    predictor.predict(["the dog", "the cat near the sea in a garden"])
    assert not runs
    predictor.predict(["the dog", "a cat"])
    assert runs


def test_a_predictor_is_pickled_with_its_engine(saved, measured):
    predictor = auto(saved())
    again = pickle.loads(pickle.dumps(predictor))
    assert isinstance(again.backend, FastestBackend)
    assert again.predict("the dog") == predictor.predict("the dog")
    backend = pickle.loads(pickle.dumps(predictor.backend))
    assert backend.directory == predictor.backend.directory and len(measured) == 1


def test_an_exported_model_has_its_own_engine(saved, make, tmp_path, measured):
    export_model(make(), Export("onnx"), tmp_path / "out")
    assert isinstance(auto(tmp_path / "out").backend, ExportedBackend) and not measured


def test_an_unknown_engine_is_refused(saved):
    with pytest.raises(UserError, match=r"engine.*unknown; choose one of torch, auto"):
        load(saved(), engine="fast")


def test_commands_choose_an_engine(saved, tmp_path, measured):
    directory, data = saved(), tmp_path / "texts.txt"
    data.write_text("\n".join(TEXTS))
    chosen = predict(directory, texts=TEXTS, engine="auto", quiet=True)
    assert [found.label for found in chosen] == [found.label for found in predict(directory, texts=TEXTS)]
    np.testing.assert_allclose(
        embed(directory, data, out=None, engine="auto"), embed(directory, data, out=None), atol=1e-5
    )
    assert measured == ["classification", "features"]


def test_predictions_are_not_resumed_by_another_engine(saved, tmp_path, times, monkeypatch):
    directory, data, out = saved(), tmp_path / "texts.txt", tmp_path / "out.jsonl"
    data.write_text("\n".join(TEXTS * 3))
    monkeypatch.setattr(Predictor, "window", 4)
    write = Predictor._read

    def interrupted(predictor, framed, explain):
        monkeypatch.setattr(Predictor, "_read", stopped)
        return write(predictor, framed, explain)

    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(Predictor, "_read", interrupted)
    options = {"out": out, "engine": "auto", "quiet": True}
    with pytest.raises(KeyboardInterrupt):
        predict(directory, data, **options)
    monkeypatch.setattr(Predictor, "_read", write)
    with pytest.raises(UserError, match=r"engine was torch 2\S+, now not set"):
        predict(directory, data, resume=True, **options | {"engine": "torch"})
    predict(directory, data, resume=True, **options)
    assert len(out.read_text().splitlines()) == 12
