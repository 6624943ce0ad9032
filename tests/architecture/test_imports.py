"""Packages import only packages below them, in the order in which data flows; optional dependencies stay optional."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "unmask"
ORDER = [
    {"errors", "version", "durable", "fingerprint", "lock", "processor"},
    {"settings", "environment", "plugins", "capabilities"},
    {"text", "samples", "runs", "metrics", "requirements"},
    {"tokenizers", "labelled"},
    {"corpus"},
    {"batches"},
    {"layers"},
    {"encoders"},
    {"families"},
    {"objectives"},
    {"checkpoints", "training", "tasks"},
    {"recipe"},
    {"model_directory"},
    {"model", "schema"},
    {"inference"},
    {"evaluation", "serving", "doctor"},
    {"pretraining", "finetuning"},
    {"distillation", "estimators"},
    {"demo"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {package: rank for rank, packages in enumerate(ORDER) for package in packages}
NO_TORCH = (
    *("text", "tokenizers", "corpus", "samples", "metrics", "labelled"),
    *("durable", "environment", "errors", "lock", "processor", "settings", "version"),
)


def imports(path: Path) -> set[str]:
    """Return the full names of all modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def package_of(module: str) -> str:
    """Return the package of `unmask` to which a module belongs."""
    return module.split(".")[1]


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert package in RANK, f"{package} is missing in ORDER"
    for module in imports(path):
        if module.startswith("unmask.") and package_of(module) in RANK and package_of(module) != package:
            assert RANK[package_of(module)] < RANK[package], f"{package} imports {module}"


def test_the_order_would_catch_a_cycle():
    assert RANK["training"] > RANK["objectives"] > RANK["encoders"] > RANK["batches"] > RANK["corpus"] > RANK["text"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_packages_for_text_need_no_torch(path):
    if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in NO_TORCH:
        assert not any(module.split(".")[0] == "torch" for module in imports(path))


def test_text_and_labelled_files_are_read_without_torch():
    packages = ("text", "tokenizers", "metrics", "labelled")
    modules = [f"unmask.{name}.{path.stem}" for name in packages for path in (PACKAGE / name).glob("*.py")]
    modules += ["unmask.tasks", "unmask.encoders.downstream_kind"]  # names that the command line offers
    program = f"import sys\nfor name in {modules}: __import__(name)\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_training_loop_is_independent_of_models_and_objectives():
    allowed = {"batches", "capabilities", "durable", "errors", "fingerprint", "environment", "runs", "training"}
    for path in (PACKAGE / "training").glob("*.py"):
        for module in imports(path):
            if module.startswith("unmask."):
                allowed_here = package_of(module) in allowed or module.startswith("unmask.objectives.learner")
                assert allowed_here, (path.name, module)


def test_transformers_is_not_a_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    assert not any(name.startswith(("transformers", "scikit-learn")) for name in project["dependencies"])
    others = [path for path in FILES if path.stem != "estimators"]  # those of scikit-learn, an extra
    assert not any(module.split(".")[0] in ("transformers", "sklearn") for path in others for module in imports(path))


def test_every_objective_is_in_the_table():
    from unmask.objectives import OBJECTIVES

    files = {path.stem for path in (PACKAGE / "objectives").glob("*.py")}
    assert set(OBJECTIVES) == files - {"__init__", "objective", "learner", "teacher"}


def test_every_task_is_in_the_table():
    from unmask.tasks import CLASSES, TASKS

    for kind, target in CLASSES.items():
        module, name = target.split(":")
        assert (module, name) == (TASKS[kind].__module__, TASKS[kind].__name__)
        assert msgspec.to_builtins(TASKS[kind]())["kind"] == kind


def test_every_verb_has_a_file():
    from unmask.cli.main import VERBS

    files = {path.stem for path in (PACKAGE / "cli").glob("*.py")}
    assert set(VERBS) == files - {"__init__", "main", "options"}


def test_no_data_set_or_checkpoint_is_named_in_the_code():
    for path in FILES:
        if path.name == "demo.py":  # the demonstration names the package of a published checkpoint
            continue
        text = path.read_text(encoding="utf8").lower()
        for name in ("sst-2", "sst2", "minilm", "cola", "imdb", "chnsenticorp"):
            assert name not in text, (path.name, name)
