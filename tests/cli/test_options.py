"""Options shared by several verbs."""

import argparse

import pytest
import torch

from unmask.cli import options
from unmask.data.text.documents import TextOptions
from unmask.support.errors import counted


@pytest.fixture
def parser():
    return argparse.ArgumentParser()


def test_text_options(parser):
    options.add_text(parser)
    assert options.text_options(parser.parse_args([])) == TextOptions()
    given = parser.parse_args(["--field", "body", "--documents", "line", "--strict"])
    assert options.text_options(given) == TextOptions(field="body", documents="line", strict=True)


@pytest.mark.parametrize("precision", ["auto", "float32"])
def test_the_machine_has_the_default_precision_of_the_verb(parser, precision):
    options.add_machine(parser, precision=precision)
    options.add_workers(parser)
    given = parser.parse_args([])
    assert (given.device, given.precision, given.quiet, given.workers) == ("auto", precision, False, None)
    machine = options.machine(parser.parse_args(["--device", "cpu", "--precision", "float32", "--workers", "3"]))
    assert (machine.device.type, machine.precision, machine.workers) == ("cpu", "float32", 3)


def test_a_verb_without_progress_has_no_quiet(parser):
    options.add_machine(parser, precision="float32", quiet=False)
    assert not hasattr(parser.parse_args([]), "quiet")


def test_the_model_is_required_unless_it_is_optional(parser, capsys):
    options.add_model(parser, "--init", required=False)
    assert vars(parser.parse_args([])) == {"init": None, "allow_pickle": False}
    options.add_model(required := argparse.ArgumentParser())
    with pytest.raises(SystemExit):
        required.parse_args([])
    assert "the following arguments are required: --model" in capsys.readouterr().err


def test_a_verb_may_read_additional_formats(parser, capsys):
    options.add_labelled(parser, "txt")
    assert parser.parse_args(["--format", "txt"]).format == "txt"
    options.add_labelled(plain := argparse.ArgumentParser())
    with pytest.raises(SystemExit):
        plain.parse_args(["--format", "txt"])
    assert "invalid choice: 'txt'" in capsys.readouterr().err


def test_the_summary_of_an_action_is_its_description(parser):
    action = options.add_action(parser.add_subparsers(), "show", "print a thing")
    assert action.description == "Print a thing."


def test_json_is_one_line_and_messages_are_on_standard_error(capsys):
    options.print_json({"text": "ä\nb", "n": [1, 2.5]})
    options.report(argparse.Namespace(), "one")
    options.report(argparse.Namespace(quiet=False), "two")
    options.report(argparse.Namespace(quiet=True), "three")
    assert capsys.readouterr() == ('{"text":"ä\\nb","n":[1,2.5]}\n', "one\ntwo\n")


@pytest.fixture
def threads(monkeypatch):
    """Pretend that torch computes with 4 threads on 4 cores; return how many it is told to use, in order."""
    told = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(options, "num_cores", lambda: 4)
    return told


def asked(device="cpu"):
    return argparse.Namespace(device=device, precision="float32", quiet=False, started=None)


@pytest.mark.parametrize(("busy", "expected"), [(0.4, []), (0.6, [3]), (1.6, [2]), (4.0, [1])])
def test_cores_that_other_programs_occupy_are_left_to_them(monkeypatch, capsys, threads, busy, expected):
    monkeypatch.setattr(options, "busy_cores", lambda before, after: busy)
    assert options.machine(asked()).device.type == "cpu"
    assert threads == expected
    noted = [f"other programs use {busy} of 4 cores: computing with {counted(free, 'thread')}" for free in expected]
    assert capsys.readouterr().err == "".join(f"{text} (OMP_NUM_THREADS overrides)\n" for text in noted)


def test_a_number_of_threads_that_a_user_sets_is_kept(monkeypatch, capsys, threads):
    monkeypatch.setattr(options, "busy_cores", lambda before, after: 4.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    options.machine(asked())
    assert threads == [] and capsys.readouterr().err == ""
