"""Completion: what shells offer is what the parsers accept; torch is not imported."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from unmask.cli.completion import commands
from unmask.cli.main import VERBS, command_parser, main, parse


@pytest.fixture(scope="module")
def found():
    return {command.path: command for command in commands(command_parser(all_verbs=True))}


def test_all_commands_and_options_are_found(found):
    assert set(found[""].words) == set(VERBS)
    assert {"corpus build", "tokenizer train", "runs plot"} <= set(found)
    assert found["finetune"].options["--device"][1] == ("auto", "cpu", "cuda", "mps")
    assert "classification" in found["finetune"].words
    assert parse(["completion", "fish"]).shell == "fish"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("unmask fine", {"finetune"}),
        ("unmask corpus ", {"build", "info", "--help"}),
        ("unmask runs plot --ov", {"--over"}),
        ("unmask runs plot --over ", {"steps", "tokens", "minutes"}),
        ("unmask finetune class", {"classification"}),
        ("unmask finetune classification --device c", {"cpu", "cuda"}),
        ("unmask evaluate --model x --err", {"--errors"}),
        ("unmask nothing ", set()),
    ],
)
def test_bash_offers_what_fits(line, offered, capsys, tmp_path):
    main(["completion", "bash"])
    words = line.split(" ")
    program = (
        f"{capsys.readouterr().out}\nCOMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}\n_unmask"
    )
    done = subprocess.run(
        ["bash", "-c", program + '\nprintf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == offered


def test_zsh_and_fish(capsys):
    main(["completion", "zsh"])
    assert capsys.readouterr().out.startswith("#compdef unmask\n")
    main(["completion", "fish"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("complete -c unmask ") for line in lines)
    devices = "seen_subcommand_from finetune.* -l device -x -a 'auto cpu cuda mps'"
    assert any(re.search(devices, line) for line in lines)


def test_torch_is_not_imported():
    program = (
        "import sys; from unmask.cli.main import main; main(['completion', 'bash']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
