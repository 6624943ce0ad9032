"""Completion: what shells offer is what the parsers accept; torch is not imported."""

import os
import shutil
import subprocess
import sys

import pytest

from unmask.cli.main import main, parse
from unmask.cli.verbs import VERBS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_all_commands_and_options_are_offered(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for words in VERBS for word in words.split())
    assert all(text in script for text in ("over", "steps", "mps", "token-classification", "max-batch-tokens"))
    assert parse(["completion", shell]).shell == shell


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("unmask fine", {"finetune"}),
        ("unmask corpus ", {"build", "mix", "info", "sample", "diff", "report"}),
        ("unmask runs plot --ov", {"--over"}),
        ("unmask runs plot --over ", {"steps", "tokens", "minutes"}),
        ("unmask finetune class", {"classification"}),
        ("unmask finetune classification --device c", {"cpu", "cuda"}),
        ("unmask evaluate --model x --err", {"--errors"}),
        ("unmask evaluate --model my-", {"my-model"}),
        ("unmask evaluate --model my-model --data data.ts", {"data.tsv"}),
        ("unmask multitask data.t", {"data.toml", "data.tsv"}),
        ("unmask corpus build data.tsv data.to", {"data.toml"}),
        ("unmask predict --field data.", set()),
    ],
)
def test_bash_offers_what_fits(line, offered, capsys, tmp_path, monkeypatch):
    """Names of files were not offered: bash offers them by itself only for a program without completion."""
    (tmp_path / "my-model").mkdir()
    for name in ("data.tsv", "data.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    main(["completion", "bash"])
    words = line.split(" ")
    program = (
        f"{capsys.readouterr().out}\nCOMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}\n"
        '_shtab_unmask unmask "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program + '\nprintf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) - {"-h", "--help"} == offered


def test_torch_is_not_imported():
    program = (
        "import sys; from unmask.cli.main import main; main(['completion', 'bash']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
