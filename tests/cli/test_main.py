"""The program as a whole: help, exit statuses, errors in one line, progress, and what is on which stream."""

import argparse
import re
import subprocess
import sys

import pytest

from unmask.cli.main import command_parser, main
from unmask.cli.verbs import VERBS
from unmask.support import __version__
from unmask.training.runs import display

from .conftest import COMMAND, run_process


def test_only_results_are_on_standard_output(main_line):
    _, outputs = main_line
    assert all(output.out == "" for name, output in outputs.items() if name != "info")


@pytest.mark.parametrize(
    "asked",
    [
        ("predict", "--model", "{line}/tuned", "--data", "{line}/train.tsv"),
        ("evaluate", "--model", "{line}/tuned", "--data", "{line}/train.tsv"),
        ("evaluate", "--model", "{line}/run", "--data", "{text}"),
        ("features", "--model", "{line}/run", "--data", "{line}/train.tsv", "--layers", "-1", "--out", "{out}"),
    ],
    ids=["predict", "evaluate a task", "evaluate on text", "features"],
)
def test_long_work_reports_its_progress(line, text_file, tmp_path, monkeypatch, capsys, asked):
    monkeypatch.setattr(display, "LINE_SECONDS", -1)
    for quiet in ([], ["--quiet"]):
        out = tmp_path / f"out{len(quiet)}"
        assert main([word.format(line=line, text=text_file, out=out) for word in asked] + quiet) == 0
        errors = capsys.readouterr().err
        found = re.search(r"^[\d,]+ of [\d,]+ tokens  0 s left  [\d,]+ tokens/s$", errors, re.MULTILINE)
        assert bool(found) != bool(quiet)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["pretrain", "--help"], ["finetune", "--help"], ["recipes", "show", "-h"]],
)
def test_help_is_quick_and_needs_no_torch(arguments):
    few = "'torch' not in sys.modules and len(sys.modules) < 300"
    program = f"from unmask.cli.main import main\ntry: main({arguments})\nfinally: assert {few}"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{program}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: unmask" if arguments != ["--version"] else f"unmask {__version__}")


def parsers(parser):
    """Yield a parser and those of its actions."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


@pytest.mark.parametrize("verb", sorted({words.split()[0] for words in VERBS}))
def test_every_option_and_argument_has_a_help_text(verb):
    (verbs,) = (action for action in command_parser(verb)._actions if isinstance(action, argparse._SubParsersAction))
    for each in parsers(verbs.choices[verb]):
        assert each.description
        for action in each._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction), action


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "VERB"),
        (["pretain"], "pretrain"),
        (["pretrain", "bert-tiny", "--corpus", "c"], "--out"),
        (["finetune", "guessing", "--model", "m", "--train", "t", "--out", "r"], "invalid choice"),
        (["fill", "--model", "m", "[MASK]", "--top", "many"], "invalid int value"),
    ],
)
def test_what_the_parser_refuses(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_process_ends_with_one_line_and_status_2():
    """Nothing but one line on standard error; and a reader that closes the pipe early is not an error."""
    output, errors = run_process("fill", "--model", "bert-base-uncased", "a [MASK]", status=2)
    assert output == ""
    assert errors == (
        "unmask: no directory 'bert-base-uncased'; a model on the Hugging Face Hub is written NAMESPACE/NAME, "
        "and only a path ./NAME\n"
    )
    piped = subprocess.run(f"{' '.join(COMMAND)} completion bash | true", shell=True, capture_output=True, text=True)
    assert piped.stderr == ""


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "unmask: interrupted\n"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 2, "unmask: a.txt: No such file or directory\n"),
        (OSError(28, "No space left on device"), 1, "unmask: No space left on device\n"),
        (
            OSError(28, "No space left on device", "a.txt"),
            1,
            "unmask: a.txt: No space left on device; free some space, then give the same command again\n",
        ),
        (
            OSError(28, "No space left on device", "a.txt", None, "b.txt"),
            1,
            "unmask: b.txt: No space left on device; free some space, then give the same command again\n",
        ),
    ],
    ids=["interrupt", "wrong path", "full disk", "full disk, file", "full disk, copy"],
)
def test_the_exit_status_tells_user_errors_from_others(monkeypatch, capsys, error, status, message):
    def fail():
        raise error

    monkeypatch.setattr("unmask.workflows.library.list_recipes", fail)
    assert main(["recipes", "list"]) == status
    assert capsys.readouterr() == ("", message)


def test_a_deleted_folder_is_an_error_of_ours(tmp_path):
    """Without a current folder, torch's libraries end the program while they are loaded."""
    folder = tmp_path / "gone"
    folder.mkdir()
    code = f"import os, sys; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})"
    code += "; from unmask.cli.main import main; sys.exit(main(['recipes', 'list']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "unmask: the current folder was deleted; change to one that exists: cd FOLDER\n"
