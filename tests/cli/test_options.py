"""Options shared by several verbs."""

import argparse
import os

import pytest

from unmask.cli import options
from unmask.text.documents import TextOptions


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
    machine = options.machine(parser.parse_args(["--device", "cpu", "--precision", "bf16", "--workers", "3"]))
    assert (machine.device.type, machine.precision, machine.workers) == ("cpu", "bf16", 3)


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


def test_cores_are_those_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert options.num_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert options.num_cores() == 7
