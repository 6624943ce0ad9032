"""Packages import only packages below them, in the order in which data flows; optional dependencies stay optional."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "unmask"
ORDER = [
    *("support", "metrics"),
    *("data.text", "data.tokenizers", "data.labelled", "data.corpus", "data.cleaning", "data.batches"),
    *("nn.layers", "nn.encoders"),
    *("objectives", "families", "families.checkpoints", "tasks", "training.runs", "training"),
    *("recipes", "model"),
    *("inference", "inference.evaluation", "serving"),
    *("workflows.pretraining", "workflows.finetuning", "workflows.multitask"),
    *("workflows.distillation", "workflows.auditing", "workflows.comparing", "workflows.corpora", "workflows"),
    *("demo", "testing", "cli", "__init__", "__main__"),
]
"""Packages in the order in which data flows: each imports only from those before it."""
MAX_CHAIN = 20
"""Maximum length of a chain of modules, each of which imports the next one when it is imported itself."""
NO_TORCH = ("data.text", "data.tokenizers", "data.corpus", "data.cleaning", "data.labelled", "metrics")


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the import statements of a file; its syntax tree is not kept, which garbage collections would search."""
    found, pending = [], [ast.parse(path.read_text(encoding="utf8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
    return found


@cache
def imports(path: Path) -> set[str]:
    """Return the full names of all modules that a file imports, also inside functions."""
    found = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        else:
            found |= {name.name for name in node.names}
    return found


def package_of(module: str) -> str:
    """Return the entry of `ORDER` to which a module of `unmask` belongs, the longest that matches."""
    found = [name for name in ORDER if f"{module}.".startswith(f"unmask.{name}.")]
    return max(found, key=len, default="")


def name_of(path: Path) -> str:
    """Return the full name of the module in a file."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {name_of(path).removesuffix(".__init__") for path in FILES}


def test_imports_run_downwards():
    for path in FILES:
        package = package_of(name_of(path))
        if path.name == "__init__.py" and path.parent != PACKAGE and not package:
            continue  # a folder of packages
        assert package, f"{path} is missing in ORDER"
        for module in imports(path):
            other = package_of(module)
            if other and other != package:
                assert ORDER.index(other) < ORDER.index(package), f"{path} imports {module}"


def test_few_packages_stand_at_the_top():
    names = {name.split(".")[0] for name in ORDER if not name.startswith("__")}
    assert len(names - {"testing"}) <= 15  # which no package of the program imports: it is for the tests of others


def imported_at_once(path: Path) -> set[str]:
    """Return the modules of `unmask` that a file imports when it is imported itself: not those inside functions."""
    modules = set()
    for node in import_statements(path):
        if isinstance(node, ast.ImportFrom) and node.module and not node.col_offset:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                modules.add(full if full in MODULES else node.module)
    return (modules & MODULES) - {name_of(path)}


def longest_chain(graph: dict[str, set[str]], start: str, known: dict[str, list[str]]) -> list[str]:
    """Return the longest chain of imports from a module on; `known` are the chains that were computed before."""
    if start not in known:
        known[start] = [start, *max((longest_chain(graph, name, known) for name in graph[start]), key=len, default=[])]
    return known[start]


def test_chains_of_imports_are_short():
    graph = {name_of(path).removesuffix(".__init__"): imported_at_once(path) for path in FILES}
    known: dict[str, list[str]] = {}
    longest = max((longest_chain(graph, name, known) for name in graph), key=len)
    assert len(longest) <= MAX_CHAIN, longest


def test_packages_for_text_need_no_torch():
    for path in FILES:
        if package_of(name_of(path)) in NO_TORCH:
            assert not any(module.split(".")[0] == "torch" for module in imports(path)), path


def test_text_and_labelled_files_are_read_without_torch():
    modules = [name for name in sorted(MODULES) if package_of(name) in NO_TORCH]
    modules += ["unmask.tasks", "unmask.support.choices"]  # names that the command line offers
    program = f"import sys\nfor name in {modules}: __import__(name)\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_training_loop_is_independent_of_models_and_objectives():
    allowed = {"support", "data.batches", "training", "training.runs"}
    for path in (PACKAGE / "training").glob("*.py"):
        for module in imports(path):
            if module.startswith("unmask."):
                allowed_here = package_of(module) in allowed or module.startswith(
                    ("unmask.objectives.learner", "unmask.objectives.flops")
                )
                assert allowed_here, (path.name, module)


def test_transformers_is_not_a_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    assert not any(name.startswith(("transformers", "scikit-learn")) for name in project["dependencies"])
    others = [path for path in FILES if path.stem != "estimators"]  # those of scikit-learn, an extra
    assert not any(module.split(".")[0] in ("transformers", "sklearn") for path in others for module in imports(path))


def test_every_objective_is_in_the_table():
    from unmask.objectives import OBJECTIVES

    files = {path.stem for path in (PACKAGE / "objectives").glob("*.py")}
    assert set(OBJECTIVES) == files - {"__init__", "objective", "learner", "teacher", "flops"}


def test_every_task_is_in_the_table():
    from unmask.tasks import CLASSES, TASKS

    for kind, target in CLASSES.items():
        module, name = target.split(":")
        assert (module, name) == (TASKS[kind].__module__, TASKS[kind].__name__)
        assert msgspec.to_builtins(TASKS[kind]())["kind"] == kind


def test_no_data_set_or_checkpoint_is_named_in_the_code():
    for path in FILES:
        if path.name == "demonstration.py":  # the demonstration names the package of a published checkpoint
            continue
        text = path.read_text(encoding="utf8").lower()
        for name in ("sst-2", "sst2", "minilm", "cola", "imdb", "chnsenticorp"):
            assert name not in text, (path.name, name)
