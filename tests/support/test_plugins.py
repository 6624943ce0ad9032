"""Plug-ins: the example and toy packages, installed as by pip, in separate processes that import unmask anew.

Line counts, excerpts, commands and errors in docs/extending.md are checked.
"""

import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from unmask.data.batches.layout import LayoutSettings, SingleSettings
from unmask.data.batches.registries import LAYOUTS, MASKINGS
from unmask.data.text.record_files import READERS
from unmask.families import FAMILIES
from unmask.families.bert import BERT
from unmask.families.checkpoints.huggingface import by_model_type
from unmask.families.format import Family
from unmask.families.roberta import ROBERTA
from unmask.metrics import METRICS
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings
from unmask.support import plugins
from unmask.support.errors import UserError
from unmask.support.plugins import Registry, missing_members, misspelt_members
from unmask.tasks import TASKS
from unmask.training.settings import OPTIMIZERS
from unmask.workflows import EXPORTERS

from .. import forking

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "unmask-structbert"
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in COMMANDS if line.startswith("unmask ")]
"""Commands on the page."""
ERRORS = re.findall(r"```console\n\$ unmask (.*?)\n(.*?)```", PAGE, re.DOTALL)
"""Commands on the page that end with an error, and its message."""
SMALL = (
    "--set encoder.layers=2 --set encoder.width=32 --set encoder.heads=2 --set encoder.feed_forward=64 "
    "--set layout.length=48 --set batch.tokens=512 --set tokenizer.vocabulary=200 --set budget.steps=4 --quiet"
)
LAYOUT = '''
"""Each sentence is a sample."""
from unmask.data.batches.layout import LayoutSettings
from unmask.data.batches.samples import Cuts

class SentencesSettings(LayoutSettings, frozen=True, kw_only=True, tag="sentences"):
    def cut(self, frame, documents, indices, rng):
        capacity = frame.capacity(self.length, texts=1)
        pieces = []
        for index, lengths in zip(indices, documents.sentence_lengths(indices)):
            stops = lengths.cumsum().tolist()
            for start, stop in zip([0, *stops], stops):
                pieces.append([(index, start, min(stop, start + capacity))])
        return Cuts.of(pieces)
'''
FAMILY = '''
"""BERT under another name."""
from dataclasses import replace
from unmask.families.bert import BERT, BertSettings
from unmask.families.format import Family

class TwinSettings(BertSettings, frozen=True, kw_only=True, tag="twin"):
    pass

TWIN = Family(TwinSettings, replace(BERT.format, model_type="twin"))
'''

OPTIMIZER = '''
"""Steps in the direction of the sign of the momentum."""
import torch
from unmask.training.optimizer import Optimizer
from unmask.training.optimizer_settings import OptimizerSettings

class SignSettings(OptimizerSettings, frozen=True, kw_only=True, tag="sign"):
    memory: float = 0.9

    def build(self, module, layer_groups=(), **options) -> Optimizer:
        return Sign(module, self, layer_groups, **options)

class Sign(Optimizer):
    state_names = ("momentum",)

    def is_special(self, value, *, matrix, inner):
        return matrix

    def update(self, group, factor):
        for name in group.names:
            if (grad := self.gradient(name)) is not None:
                momentum = self.moments.setdefault(name, {"momentum": torch.zeros_like(grad)})["momentum"]
                momentum.lerp_(grad, 1 - self.settings.memory)
                rate = self.settings.learning_rate * factor * group.factor
                self.names[name].mul_(1 - rate * group.decay).sub_(momentum.sign(), alpha=rate)
'''


@pytest.fixture
def rescanned(monkeypatch):
    """Look through all packages again, also for those of a test."""
    monkeypatch.setattr(plugins, "_points", plugins._points.__wrapped__)


def install(site, name, entries, modules=None):
    """Install a package as pip does, with its modules and metadata."""
    info = site / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [line for group, points in entries.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for module, text in (modules or {}).items():
        (site / f"{module}.py").write_text(text)
    return site


def call(arguments, *paths, cwd=ROOT, **variables):
    """Run Python with packages that are installed in directories."""
    path = os.pathsep.join(map(str, (*paths, ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return forking.run(arguments, cwd=cwd, env=environment, imported="torch")


def unmask(command, *paths, **options):
    return call(["-m", "unmask", *shlex.split(command)], *paths, **options)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the directories in which the example is installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf8"))["project"]
    site = install(tmp_path_factory.mktemp("site"), project["name"], project["entry-points"])
    return site, EXAMPLE / "src"


def write_files(folder, documents):
    """Write the files that the page uses, with the examples of the repository, into a folder, and return it."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "articles.txt").write_text("\n\n".join(documents), encoding="utf8")
    stars = [f"a {word} day\t{rank}" for rank, word in enumerate(("bad", "fair", "good"), 1) for _ in range(20)]
    (folder / "stars.tsv").write_text("\n".join(["text\tlabel", *stars]), encoding="utf8")
    return folder


def test_the_examples_own_tests_and_the_contract_of_objectives_pass(example, request):
    tests = [
        EXAMPLE / "tests",
        "tests/objectives/test_objective.py",
        "-k",
        "shuffled_masking or word_order or ordinal or kappa or word2vec",
    ]
    program = ["import sys, pytest", "sys.exit(pytest.main())"]
    if not request.config.getoption("--exhaustive"):  # tracing the program of the example's task takes half of the time
        program.insert(1, "sys.modules['onnxscript'] = None")
    pytest_alone = ["-c", "\n".join(program), "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    done = call([*pytest_alone, *map(str, tests)], *example, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"\.", done.stdout.partition("[100%]")[0])) > 25, "including those of all objectives"


@pytest.fixture(scope="module")
def page(example, documents, tmp_path_factory):
    """The folder in which one process, as torch takes seconds to import, ran what the page shows, and that process.

    First come the commands that end with an error, whose messages are followed by a line `end`, then the others.
    """
    folder = write_files(tmp_path_factory.mktemp("page"), documents)
    program = ["import shlex, sys", "from unmask.cli.main import main"]
    for command, _ in ERRORS:
        program.append(f"assert main(shlex.split({command!r})) == 2; print('end', file=sys.stderr, flush=True)")
    for line in COMMANDS:
        quick = line.replace("--set budget.minutes=60", SMALL).replace("--out my-stars", "--out my-stars --quiet")
        program.append(f"print('$', {line!r}, flush=True); assert main(shlex.split({quick[7:]!r})) == 0")
    done = call(["-c", "\n".join(program)], *example, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_the_commands_of_the_page_run(page):
    assert len(COMMANDS) > 5
    folder, done = page
    for text in ("+objective.word_order.weight=1.0", "word_order_loss", "mean_absolute_error", "model_type", "kappa"):
        assert text in done.stdout + (folder / "my-roformer/model/config.json").read_text()
    assert len((folder / "my-vectors/vectors.txt").read_text(encoding="utf8").splitlines()) > 100
    labels = (folder / "my-stars/model/config.json").read_text()
    assert '"unmask"' in labels and '"kind": "ordinal"' in labels


def test_the_errors_on_the_page_are_those_of_the_program(page):
    assert ERRORS
    assert page[1].stderr.startswith("".join(f"{message}end\n" for _, message in ERRORS))


def lines_of(text):
    """Return the lines without indentation and empty lines, which ruff changes on the page."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_excerpts_on_the_page_are_those_of_the_files():
    paths = [*EXAMPLE.rglob("*.py"), EXAMPLE / "pyproject.toml", *(ROOT / "src/unmask/families").glob("*.py")]
    paths.append(ROOT / "src/unmask/data/text/record_files.py")
    texts = [lines_of(path.read_text(encoding="utf8")) for path in paths]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        assert any(lines_of(block) in text for text in texts), block


def test_tasks_are_named_without_being_imported(tmp_path):
    task = {"unmask.tasks": {"stars": "broken_task:Stars"}}
    site = install(tmp_path, "unmask-broken", task, {"broken_task": "raise ImportError('no such engine')"})
    asked = ["finetune", "stars", "--model", "random:bert-tiny", "--train", "a.tsv", "--out", "run"]
    program = f"""
import contextlib, sys
from unmask.cli.main import main
with contextlib.suppress(SystemExit):
    main(["finetune", "--help"])
sys.exit(main({asked}))
"""
    done = call(["-c", program], site, cwd=tmp_path)
    assert done.returncode == 2
    assert "stars" in done.stdout
    assert done.stderr == (
        "unmask: 'stars' of the package unmask-broken cannot be imported (no such engine); fix it, or remove it: "
        "pip uninstall unmask-broken\n"
    )


def test_a_layout_a_family_and_an_optimizer(documents, tmp_path):
    """The optimizer is chosen by its kind, and resumed exactly."""
    folder = write_files(tmp_path, documents)
    entries = {"unmask.layouts": {"sentences": "toy_layout:SentencesSettings"}}
    entries["unmask.families"] = {"twin": "toy_family:TWIN"}
    entries["unmask.optimizers"] = {"sign": "toy_optimizer:SignSettings"}
    modules = {"toy_layout": LAYOUT, "toy_family": FAMILY, "toy_optimizer": OPTIMIZER}
    site = install(folder / "site", "unmask-toys", entries, modules)
    program = f"""
import toy_optimizer, toy_family, toy_layout  # before unmask, to detect circular imports
import shlex
import torch
from safetensors.torch import load_file
import unmask
from unmask.cli.main import main
words = "pretrain bert-tiny --text articles.txt --out run --set encoder.kind=twin --set layout.kind=sentences "
words += "--set objective.next_sentence=false --set optimizer.kind=sign --set optimizer.memory=0.5 " + {SMALL!r}
assert main(shlex.split(words)) == 0
assert main(["evaluate", "--model", "run", "--data", "articles.txt", "--quiet"]) == 0
task = "finetune classification --model run --train stars.tsv --out labelled --set budget.steps=2 --quiet"
assert main(shlex.split(task)) == 0
model = unmask.load("labelled").model
print(type(model.encoder.settings).__name__, model.labels)

state = load_file("run/checkpoints/step-00000004/optimizer.safetensors")
for ending in (".weight.momentum", ".bias.exp_avg"):
    assert any(name.endswith(ending) for name in state)
torch.manual_seed(0)
first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
optimizer, resumed = (toy_optimizer.SignSettings().build(module) for module in (first, second))
for number in range(4):
    gradients = [torch.randn_like(value) for value in first.parameters()]
    if number == 2:
        second.load_state_dict(first.state_dict())
        resumed.load(optimizer.state())
    for module, each in ((first, optimizer), (second, resumed)):
        for value, gradient in zip(module.parameters(), gradients):
            value.grad = gradient.clone()
        each.step(1.0)
assert first.weight.equal(second.weight) and first.bias.equal(second.bias)
"""
    done = call(["-c", program], site, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "masked_lm_accuracy" in done.stdout
    assert done.stdout.endswith("TwinSettings ('1', '2', '3')\n")
    assert '"model_type": "twin"' in (folder / "run/model/config.json").read_text()
    table = tomllib.loads((folder / "run/recipe.toml").read_text())["optimizer"]
    assert (table["kind"], table["memory"]) == ("sign", 0.5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "import msgspec\nclass It(msgspec.Struct, tag='other'): pass",
            "'mine' of the package unmask-toys has a different kind, 'other'; give its settings tag='mine'",
        ),
        (
            "",
            "'mine' of the package unmask-toys cannot be imported (module 'toy_part' has no attribute 'It'); fix it",
        ),
        (
            "from unmask.objectives.objective import Objective, ObjectiveSettings\n"
            "class Head(Objective):\n"
            "    def prepare(self, sample, name): ...\n"
            "    def predict(self, encoder, encoded, batch): ...\n"
            "    def forward_flops(self, encoder, batch): ...\n"
            "class It(ObjectiveSettings):\n"
            "    def build(self, context) -> Head: ...",
            "'mine' of the package unmask-toys lacks Head.score; define what its base class declares",
        ),
        (
            "from unmask.data.batches.layout import LayoutSettings\nclass It(LayoutSettings, tag='mine'): ...",
            "'mine' of the package unmask-toys lacks It.cut; define what its base class declares",
        ),
        (
            "from unmask.data.batches.streams import StreamSettings\nclass It(StreamSettings, tag='mine'): ...",
            "'mine' of the package unmask-toys lacks It.capacity, It.read, It.window; define what",
        ),
        (
            "from unmask.families.bert import BERT\n"
            "from unmask.families.body import TransformerSettings\n"
            "from unmask.families.format import Family\n"
            "class Settings(TransformerSettings, tag='mine'): ...\n"
            "It = Family(Settings, BERT.format)",
            "'mine' of the package unmask-toys lacks Settings.build; define what its base class declares",
        ),
        (  # the name of the method in an earlier version
            "from unmask.data.batches.layout import LayoutSettings\n"
            "class Base(LayoutSettings):\n"
            "    def sample(self, frame, texts, labels): ...\n"
            "class It(Base, tag='mine'):\n"
            "    def cut(self, frame, documents, indices, rng): ...\n"
            "    def cuts_of_one(self): ...",
            "'mine' of the package unmask-toys defines It.sample, which nothing calls; name it samples, as its base",
        ),
        (
            "from unmask.objectives.objective import Objective, ObjectiveSettings\n"
            "class Head(Objective):\n"
            "    def prepare(self, sample, name): ...\n"
            "    def predict(self, encoder, encoded, batch): ...\n"
            "    def forward_flops(self, encoder, batch): ...\n"
            "    def score(self, predicted, batch): ...\n"
            "    def warning(self, name, metrics): ...\n"
            "class It(ObjectiveSettings):\n"
            "    def build(self, context) -> Head: ...",
            "'mine' of the package unmask-toys defines Head.warning, which nothing calls; name it warnings",
        ),
    ],
)
def test_errors_in_a_plugin_are_raised_on_access(rescanned, tmp_path, monkeypatch, module, message):
    monkeypatch.syspath_prepend(install(tmp_path, "unmask-toys", {"unmask.toys": {"mine": "toy_part:It"}}))
    monkeypatch.delitem(sys.modules, "toy_part", raising=False)
    (tmp_path / "toy_part.py").write_text(module)
    table = Registry("unmask.toys", {"ours": 1})
    assert list(table) == ["ours", "mine"]
    assert (len(table), "mine" in table, table["ours"]) == (2, True, 1)
    with pytest.raises(UserError) as error:
        table["mine"]
    assert str(error.value).startswith(message)
    with pytest.raises(KeyError):
        table["another"]


def test_a_part_may_say_that_it_builds_an_objective():
    """The members that `Objective` leaves open were taken for missing ones of the part."""

    class Settings(ObjectiveSettings):
        def build(self, context: BuildContext) -> Objective: ...

    Settings.__module__ = "toys"
    assert missing_members(Settings) == []
    assert missing_members(ObjectiveSettings)[0] == "ObjectiveSettings.build"


@pytest.mark.parametrize(
    ("module", "base", "name"),
    [
        ("from unmask.families.bert import BertSettings as It", Family, "Family"),
        ("It = 3", "collections.abc:Callable", "Callable"),
        ("class It: ...", "unmask.objectives.objective:ObjectiveSettings", "ObjectiveSettings"),
    ],
)
def test_an_entry_point_that_names_something_else_is_refused(rescanned, tmp_path, monkeypatch, module, base, name):
    """What used it said what it lacks, and nothing of the package."""
    monkeypatch.syspath_prepend(install(tmp_path, "unmask-toys", {"unmask.toys": {"mine": "toy_part:It"}}))
    monkeypatch.delitem(sys.modules, "toy_part", raising=False)
    (tmp_path / "toy_part.py").write_text(module)
    with pytest.raises(
        UserError, match=f"unmask-toys is no {name}; name one in its entry point instead of toy_part:It"
    ):
        Registry("unmask.toys", {}, base)["mine"]


@pytest.mark.parametrize(
    "registry", [OBJECTIVES, MASKINGS, LAYOUTS, TASKS, FAMILIES, OPTIMIZERS, READERS, METRICS, EXPORTERS]
)
def test_parts_are_of_the_kind_that_plugins_must_be(registry):
    base = registry.base
    for part in registry.values():
        assert isinstance(part, base) or issubclass(part, base)


def test_a_part_that_knows_both_names_defines_its_own_member():
    class Both(LayoutSettings):
        def sample(self): ...

        def samples(self, frame, texts, labels): ...

    assert misspelt_members(Both) == {} and misspelt_members(SingleSettings) == {}


def test_a_name_that_is_taken_is_refused(tmp_path):
    site = install(tmp_path, "unmask-toys", {"unmask.objectives": {"masked_lm": "toys:MaskedLMSettings"}})
    done = unmask("recipes list", site)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "unmask: the package unmask-toys adds 'masked_lm' to unmask.objectives, but this name is taken; rename it "
        "there, or remove the package: pip uninstall unmask-toys\n"
    )


def test_two_families_of_one_model_type_are_refused():
    assert by_model_type([BERT, ROBERTA]) == {"bert": BERT, "roberta": ROBERTA}
    other = type(BERT)(ROBERTA.settings, BERT.format)
    with pytest.raises(UserError, match="bert and roberta have the same model_type, 'bert'"):
        by_model_type([BERT, other])
