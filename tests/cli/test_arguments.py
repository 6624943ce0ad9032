"""Options are made from signatures and docstrings; cores that others use are left to them."""

import argparse
import inspect
import re
from importlib import import_module
from typing import Literal, get_args, get_origin

import pytest
import torch

import unmask
from unmask.cli import main as program
from unmask.cli.arguments import CONVERTERS, REQUIRED, add_parameters, parameters_of, parsed, summary
from unmask.cli.main import command_parser
from unmask.cli.verbs import VERBS, print_json
from unmask.support import capabilities
from unmask.support.errors import UserError, counted

from .conftest import run

MODULE = '''
def example(
    task: str,
    data: Data,
    *,
    out: str | Path,
    layers: Sequence[int] = (),
    device: Device = "auto",
    kind: Literal["a", "b"] | None = None,
    settings: Overrides | None = None,
    columns: ColumnNames | None = None,
    normalize: bool | None = None,
    strict: bool = False,
    top: int = 5,
):
    """Do a thing.

    Args:
        task: what it is for, such as
            100 % of it.
        top: number.

    Returns:
        Nothing.
    """
'''


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The parameters of a function in a module that cannot be imported."""
    (tmp_path / "unimportable.py").write_text(f"import no_such_module\n{MODULE}")
    monkeypatch.syspath_prepend(tmp_path)
    assert summary("unimportable:example") == "do a thing"
    return parameters_of("unimportable:example")


@pytest.fixture
def parser(example):
    parser = argparse.ArgumentParser()
    add_parameters(parser, example, ("task",), {"task": ("x", "y")})
    return parser


def test_types_decide_how_options_are_written(example, parser):
    words = "x --data a b --out o --layers=-2,-1 --device cpu --kind b --set k.a=1 --set k.b=w --columns text=t"
    options = parser.parse_args([*words.split(), "--no-normalize", "--strict", "--top", "3"])
    assert parsed(example, options) == {
        **{"task": "x", "data": ["a", "b"], "out": "o", "layers": (-2, -1), "device": "cpu", "kind": "b"},
        **{"settings": {"k.a": 1, "k.b": "w"}, "columns": {"text": "t"}, "normalize": False, "strict": True, "top": 3},
    }
    short = parsed(example, parser.parse_args(["y", "--data", "a", "--out", "o"]))
    assert (short["device"], short["kind"], short["normalize"], short["top"]) == ("auto", None, None, 5)
    assert (short["layers"], short["settings"], short["columns"], short["strict"]) == ((), {}, {}, False)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_choices_are_those_of_the_function(verb):
    module, _, _ = verb.function.partition(":")
    named = vars(import_module(module))
    for parameter in parameters_of(verb.function):
        for part in parameter.types:
            if get_origin(named.get(part)) is Literal:
                assert parameter.values == get_args(named[part]), parameter.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("z --data a --out o", "invalid choice: 'z'"),
        ("x --data a", "the following arguments are required: --out"),
        ("x --data a --out o --kind c", "invalid choice: 'c'"),
        ("x --data a --out o --top many", "invalid int value"),
    ],
)
def test_what_does_not_fit_the_type_is_refused(parser, words, message, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(words.split())
    assert message in capsys.readouterr().err


def test_numbers_are_separated_by_commas_or_spaces(example, parser):
    options = parser.parse_args(["x", "--data", "a", "--out", "o", "--layers", "last"])
    with pytest.raises(UserError, match="not numbers"):
        parsed(example, options)


def test_words_of_an_option_that_is_repeated_are_added(example, parser):
    """The last --train was read, and the files of the ones before were left out, without a word."""
    words = "x --data a --data b c --out o --layers 1 --layers=2,3 --columns text=t --columns label=u,v"
    found = parsed(example, parser.parse_args(words.split()))
    assert (found["data"], found["layers"]) == (["a", "b", "c"], (1, 2, 3))
    assert found["columns"] == {"text": "t", "label": "u,v"}
    assert parser.get_default("layers") == ()
    options = command_parser("predict").parse_args(["predict", "--model", "m", "--labels", "a,b", "--labels", "c"])
    assert options.labels == "a,b,c"


@pytest.mark.parametrize(
    ("words", "message"),
    [("text=a,text=b", "'text' is there twice; name one"), ("label=a,label=b", "write label=a,b")],
)
def test_a_column_that_is_named_twice_is_refused(example, parser, words, message):
    with pytest.raises(UserError, match=message):
        parsed(example, parser.parse_args(["x", "--data", "a", "--out", "o", "--columns", words]))


@pytest.mark.parametrize("words", [["0.8,0.2"], ["0.8", "0.2"]])
def test_shares_are_numbers(words):
    verb = VERBS["corpus mix"].function
    options = command_parser("corpus").parse_args(["corpus", "mix", "a", "b", "--out", "c", "--shares", *words])
    assert parsed(parameters_of(verb), options)["shares"] == (0.8, 0.2)


@pytest.mark.parametrize("words", VERBS)
def test_sequences_of_numbers_are_converted(words):
    for parameter in parameters_of(VERBS[words].function):
        for kind in (*parameter.outer, *parameter.types):
            assert kind in CONVERTERS or not re.fullmatch(r"Sequence\[(?!str|Path|str \| Path).*\]", kind), kind


def test_help_has_the_documentation_and_the_default(example, parser):
    text = " ".join(parser.format_help().split())
    assert "what it is for, such as 100 % of it" in text and "number (default: 5)" in text


@pytest.mark.parametrize("words", VERBS)
def test_every_command_is_a_documented_public_function(words):
    target = VERBS[words].function
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    if words != "completion":
        assert getattr(unmask, name) is function
    read, real = parameters_of(target), inspect.signature(function)
    assert [parameter.name for parameter in read] == list(real.parameters)
    for parameter in read:
        default = real.parameters[parameter.name].default
        assert parameter.text, (words, parameter.name)
        assert parameter.default == (REQUIRED if default is inspect.Parameter.empty else default)


def test_json_is_one_line(capsys):
    print_json({"text": "ä\nb", "n": [1, 2.5]})
    assert capsys.readouterr().out == '{"text":"ä\\nb","n":[1,2.5]}\n'


@pytest.fixture
def threads(monkeypatch):
    """Pretend that torch computes with 4 threads on 4 cores; return how many it is told to use, in order."""
    told = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(program, "num_cores", lambda: 4)
    return told


@pytest.mark.parametrize(("busy", "expected"), [(0.4, []), (0.6, [3]), (1.6, [2]), (4.0, [1])])
def test_cores_that_other_programs_occupy_are_left_to_them(monkeypatch, capsys, threads, busy, expected):
    monkeypatch.setattr(program, "busy_cores", lambda before, after: busy)
    program._leave_busy_cores({"device": "cpu", "quiet": False}, None)
    assert threads == expected
    noted = [f"other programs use {busy} of 4 cores: computing with {counted(free, 'thread')}" for free in expected]
    assert capsys.readouterr().err == "".join(f"{text} (OMP_NUM_THREADS overrides)\n" for text in noted)


def test_a_number_of_threads_that_a_user_sets_is_kept(monkeypatch, capsys, threads):
    monkeypatch.setattr(program, "busy_cores", lambda before, after: 4.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    program._leave_busy_cores({"device": "cpu"}, None)
    assert threads == [] and capsys.readouterr().err == ""


@pytest.mark.parametrize(("line", "begins"), [("predict --model missing a", True), ("recipes list", False)])
def test_commands_that_compute_begin_the_trial_before_they_import(line, begins, monkeypatch):
    imported = []
    monkeypatch.setattr(capabilities, "try_ahead", lambda: imported.append("trial"))
    monkeypatch.setattr(program, "import_module", lambda name: imported.append(name) or import_module(name))
    run(*line.split(), status=2 if begins else 0)
    ours = [name for name in imported if name != "unmask.support.capabilities"]
    assert ours[:1] == ["trial"] if begins else "trial" not in ours
