"""`unmask pretrain` as a user types it: on a corpus, on text, from a model; restarts after a crash; and user errors."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from unmask.cli.main import main
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.training.runs.display import Display
from unmask.workflows.pretraining import restarts
from unmask.workflows.pretraining.default import SIZES

from .conftest import TINY, name_case, run_fork, sets


def test_pretrain(main_line):
    folder, outputs = main_line
    errors = outputs["pretrain"].err
    assert "3 steps of " in errors
    assert "step 3 of 3, " in errors
    assert errors.endswith(f"model: {folder / 'run' / 'model'}\n")


def test_pretrain_on_text_then_adapt(line, text_file, tmp_path, capsys):
    errors = run_fork("pretrain", "bert-tiny", "--text", text_file, *sets(TINY), "--out", tmp_path / "run").err
    assert "training the tokenizer" in errors
    assert len((tmp_path / "run" / "model" / "vocab.txt").read_text().splitlines()) == 150
    settings = ["layout.kind=document_sentences", "objective.next_sentence=false", "layout.length=48", "budget.steps=2"]
    options = (
        *("--init", line / "run", *sets(settings)),
        *("--out", tmp_path / "adapted", "--precision", "float32", "--quiet"),
    )
    assert run_fork("pretrain", "bert-mini", "--text", text_file, *options).err == ""
    assert json.loads((tmp_path / "adapted" / "model" / "config.json").read_text())["hidden_size"] == 32
    assert run_fork("pretrain", "bert-mini", "--text", text_file, *options, "--resume").err == ""
    assert main(list(map(str, ["pretrain", "bert-mini", "--text", line / "train.tsv", *options, "--resume"]))) == 2
    assert (
        f"train.tsv: is not the text that this run was started on, {text_file}; resume with" in capsys.readouterr().err
    )


def test_pretrain_without_a_recipe(text_file, tmp_path):
    """The recipe is chosen once: a run that is resumed keeps its own, on whichever machine."""
    shape = [text for text in TINY if "positions" not in text and "budget" not in text]
    given = ("--text", text_file, *sets([*shape, "budget.steps=2"]), "--precision", "float32")
    errors = run_fork("pretrain", *given, "--out", tmp_path / "run").err
    first = next(text for text in errors.splitlines() if text.startswith("recipe: "))
    name = first.split()[1]
    assert name in SIZES
    assert "(1 layer, width 32, 2 heads, " in first
    assert first.endswith("; for more or less time: --set budget.minutes=N")
    recipe = read_recipe(tmp_path / "run" / "recipe.toml")
    assert (recipe.name, recipe.tokenizer.vocabulary, recipe.tokenizer.lowercase) == (name, 150, False)
    assert run_fork("pretrain", *given, "--out", tmp_path / "run", "--quiet", "--resume").err == ""
    again = run_fork("pretrain", *given, "--out", tmp_path / "run", "--resume").err
    assert "recipe: " not in again
    adapted = (
        "--init",
        tmp_path / "run",
        "--text",
        text_file,
        "--set",
        "budget.steps=1",
        "--out",
        tmp_path / "adapted",
    )
    run_fork("pretrain", *adapted, "--quiet")
    assert read_recipe(tmp_path / "adapted" / "recipe.toml").name == "adapt"


def test_pretrain_without_a_recipe_on_a_corpus_with_a_search(line, tmp_path):
    shape = [text for text in TINY if "positions" not in text and "tokenizer" not in text]
    given = ("pretrain", "--corpus", line / "corpus", *sets(shape), "--search", "--out", tmp_path / "run")
    errors = run_fork(*given, "--set", "budget.steps=24").err
    assert "chosen: " in errors
    found = read_recipe(tmp_path / "run" / "recipe.toml")
    errors = run_fork(*given, "--set", "budget.steps=21", "--resume").err
    assert "trying" not in errors
    assert read_recipe(tmp_path / "run" / "recipe.toml") == found


def test_pretrain_with_an_extended_vocabulary_and_fewer_layers(line, tmp_path):
    (tmp_path / "text.txt").write_text("The hepatitis near the sea. The house.\n\n" * 40, encoding="utf8")
    shape = sets(["encoder.layers=2", *(text for text in TINY if text.startswith("encoder.") and "layers" not in text)])
    layout = ["layout.kind=document_sentences", "objective.next_sentence=false", "layout.length=48"]
    rest = (*sets([*layout, "batch.tokens=512", "budget.steps=2"]), "--precision", "float32")
    base = tmp_path / "base"
    run_fork("pretrain", "bert-tiny", "--corpus", line / "corpus", *shape, *rest, "--out", base, "--quiet")
    given = ("bert-tiny", "--text", tmp_path / "text.txt", "--init", base, "--extend", "4", "--layers", "1", *rest)
    errors = run_fork("pretrain", *given, "--out", tmp_path / "run").err
    for expected in (
        "extending the tokenizer",
        "the text has only 1 new token to learn, not 4",
        "vocabulary extended by 1 token; its row is the mean of its old tokens' rows",
        f"the new body has layer 1 of the 2 layers of {base}",
    ):
        assert f"{expected}\n" in errors
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert (config["vocab_size"], config["num_hidden_layers"]) == (171, 1)
    assert run_fork("pretrain", *given, "--out", tmp_path / "run", "--quiet", "--resume").err == ""


@pytest.mark.parametrize(
    ("statuses", "most", "expected"),
    [
        ((1, -9, 0), 3, 0),
        ((1, 1), 1, 1),
        ((-9,), 0, 137),
        ((2,), 3, 2),
        ((143,), 3, 143),
    ],
    ids=["two crashes", "one restart is not enough", "killed", "a user error is final", "a signal is final"],
)
def test_a_crash_is_followed_by_a_restart(tmp_path, monkeypatch, capsys, statuses, most, expected):
    """The child process is this program, which ends with the given statuses one after the other."""
    child = tmp_path / "child.py"
    child.write_text(
        "import os, sys\n"
        f"status = {statuses}[int(os.environ['{restarts.ATTEMPT}'])]\n"
        "os.kill(os.getpid(), -status) if status < 0 else sys.exit(status)\n"
    )
    popen = restarts.subprocess.Popen
    commands = []

    def start(command, **options):
        commands.append(command)
        return popen([sys.executable, str(child)], **options)

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(restarts.subprocess, "Popen", start)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        given = ["pretrain", "bert-tiny"]
        with pytest.raises(restarts.ProcessEnded) if expected else contextlib.nullcontext() as ended:
            restarts.supervise(given, most, Display().say)
        assert (ended.value.status if ended else 0) == expected
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert commands == [[sys.executable, "-P", "-m", "unmask", *given]] * len(statuses)
    left = [int(text.rpartition(": ")[2]) for text in capsys.readouterr().err.splitlines()]
    crashes = [status for status in statuses if status not in restarts.FINAL]
    assert left == [most - attempt for attempt in range(len(crashes))]


def test_E1_a_supervised_process_runs_no_code_of_the_current_folder(planted, tmp_path):
    """The outer process is a script, like the command `unmask`, which does not have the current folder on its path."""
    (tmp_path / "command.py").write_text("import sys\nfrom unmask.cli.main import main\nsys.exit(main())\n")
    asked = ["pretrain", "bert-tiny", "--corpus", "nowhere", "--restarts", "1", "--out", "run"]
    command = [sys.executable, tmp_path / "command.py", *asked]
    done = subprocess.run(command, cwd=planted, capture_output=True, text=True, timeout=120)
    assert done.stderr.startswith("unmask: nowhere/manifest.json: cannot be read")
    assert done.returncode == 2


def test_several_processes_are_not_supervised(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="restarts works with a single process only; use --max-restarts of torchrun"):
        restarts.supervise([], 1, print)


@pytest.mark.parametrize("name", [restarts.ATTEMPT, "TORCHELASTIC_RESTART_COUNT"])
def test_a_restarted_process_resumes_if_there_is_a_checkpoint(tmp_path, monkeypatch, name):
    monkeypatch.delenv(name, raising=False)
    assert not restarts.restarted()
    monkeypatch.setenv(name, "0")
    assert not restarts.restarted()
    monkeypatch.setenv(name, "1")
    assert restarts.restarted()
    assert not restarts.started(tmp_path)
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    assert restarts.started(tmp_path)


CORPUS = ("--corpus", "{line}/corpus")
LAYERS = ("--set", "encoder.layers=1")
ONE = ("--layers", "1", "--set", "layout.length=48")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pretrain", "bert-tinny", *CORPUS, "--out", "{here}/r"), "did you mean 'bert-tiny'?"),
        (("pretrain", "bert-tiny", "--corpus", "{here}/no", "--out", "{here}/r"), "is this the directory of a corpus?"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{line}/run"), "not empty; choose another --out"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--resume"), "there is no run to resume"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{line}/train.tsv/r"), "cannot be written"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--set", "budget.step=1"), "did you mean 'steps'?"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--init", "{here}/no"), "no directory '"),
        (
            ("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--strict"),
            "--strict has no effect on a corpus that is already built; omit it",
        ),
        (("pretrain", "bert-tiny", "--text", "{here}/text.txt", "--out", "{line}"), "not empty"),
        (("pretrain", "--text", "{here}/no", "--out", "{here}/r"), "no: does not exist"),
        (("pretrain", *CORPUS, "--out", "{here}/r", "--set", "encoder.layer=1"), "did you mean 'layers'?"),
        (("pretrain", *CORPUS, "--out", "{here}/r", "--resume"), "there is no run to resume"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--layers", "1"), "--layers has no effect without"),
        (
            ("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--init", "{line}/run", *ONE),
            "--layers 1 is not smaller than the number of layers of",
        ),
        (
            ("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--init", "{line}/run", "--extend", "5"),
            "--extend has no effect on a corpus that is already built; extend its tokenizer with unmask tokenizer",
        ),
        (
            (*("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r"), "--init", "{line}/run", *LAYERS),
            "--set encoder.layers=1 has no effect: --init determines the encoder; pass --layers N for fewer layers",
        ),
        (("pretrain", "bert-tiny", "--text", "{here}/no", "--out", "{here}/r"), "no: does not exist"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)


def test_E2_several_processes_that_cannot_meet_are_refused(refused, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    arguments = ("pretrain", "bert-tiny", "--text", "{line}/train.tsv", "--out", "{here}/r")
    refused(arguments, "the environment sets RANK and WORLD_SIZE, but not MASTER_PORT; start it with torchrun")
