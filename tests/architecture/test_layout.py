"""The tests mirror the packages of the source; no file is too long, and no helper is written twice."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, TESTS = ROOT / "src" / "unmask", ROOT / "tests"
PACKAGES = sorted({path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"})
FILES = sorted(TESTS.rglob("*.py"))
MAX_LINES = 500
MIN_HELPER_LINES = 5
"""Number of lines from which a helper function must not be repeated, decorators aside."""


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_each_package_has_tests_in_a_folder_of_its_name(package):
    paths = list((TESTS / package).glob("test_*.py"))
    assert paths, f"src/unmask/{package} has no tests/{package}/test_*.py"
    assert any(is_test(function) for path in paths for function in functions(path.read_text(encoding="utf8")))


def test_no_test_file_is_too_long():
    for path in FILES:
        lines = len(path.read_text(encoding="utf8").splitlines())
        assert lines <= MAX_LINES, f"{path}: {lines} lines: split the file by subject"


def test_no_helper_is_in_two_files():
    assert repeated({path.relative_to(TESTS): path.read_text(encoding="utf8") for path in FILES}) == {}


def test_no_test_replaces_the_time_of_other_threads():
    replaced = re.compile(r"""setattr\((\w+\.)?time, |setattr\(["']time\.""")
    found = [path.name for path in FILES if replaced.search(path.read_text(encoding="utf8"))]
    assert found == [], "use the fixture replace_time"


def functions(source):
    """Return all functions and methods of a file, nested ones too."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_test(function):
    return function.name.startswith("test_")


def body(function):
    """Return the statements of a function without its docstring, so that wording and names of helpers do not matter."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    return "\n".join(ast.unparse(statement) for statement in function.body[has_docstring:])


def repeated(sources):
    """Return the bodies of helpers that are in several files, each with the files and names of the helpers.

    A helper counts if it is long, from its `def` to its last line and without its docstring.
    """
    found = defaultdict(set)
    for path, source in sources.items():
        for function in functions(source):
            if is_test(function) or not function.body:
                continue
            docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
            dropped = docstring.end_lineno - docstring.lineno + 1 if docstring is not None else 0
            if function.end_lineno - function.lineno + 1 - dropped >= MIN_HELPER_LINES:
                found[body(function)].add(f"{path}: {function.name}")
    return {text: sorted(helpers) for text, helpers in found.items() if len({it.split(":")[0] for it in helpers}) > 1}


HELPER = '''
def {name}({argument}):
    """{docstring}"""
    found = []
    for number in range(3):
        found.append(number{more})
    return found
'''


def helper(name="make", argument="", docstring="Return three numbers.", more=""):
    return HELPER.format(name=name, argument=argument, docstring=docstring, more=more)


def test_a_planted_repetition_is_found():
    other = helper(name="build", docstring="Count.")
    assert list(repeated({"a.py": helper(), "b.py": f"class A:\n{other}".replace("\n", "\n    ")}).values()) == [
        ["a.py: make", "b.py: build"]
    ]
    assert repeated({"a.py": helper() + other}) == {}, "within a file it is the reader's business"
    assert repeated({"a.py": helper(), "b.py": helper(more=" + 1")}) == {}
    assert repeated({"a.py": helper(name="test_a"), "b.py": helper(name="test_b")}) == {}, "tests are not helpers"
    short = "def make():\n    found = 1\n    found += 1\n    return found\n"
    assert repeated({"a.py": short, "b.py": short}) == {}
