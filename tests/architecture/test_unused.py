"""What a module defines is used by the product: tests alone keep nothing alive."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USERS = ("src", "benchmarks", "examples")
REFERENCE = re.compile(r"[\w.]*[.:](\w+)|(\w+)")
"""Strings that may name something, as `package.module:name` and `name` in tables of parts and of public names do."""


def names(tree):
    """Yield the names that are read in a file, also in strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and (match := REFERENCE.fullmatch(str(node.value))):
            yield match[1] or match[2]


def test_functions_and_classes_of_modules_are_used():
    used, defined = set(), []
    for path in (path for folder in USERS for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_bytes())  # not kept: garbage collections would search the trees of all files
        used.update(names(tree))
        if path.is_relative_to(ROOT / "src"):
            defined += [
                (node.name, f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}")
                for node in tree.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                if not node.decorator_list and not node.name.startswith("__")
            ]
    unused = [place for name, place in defined if name not in used]
    assert not unused, "remove these, or move them to the tests that use them: " + ", ".join(unused)
