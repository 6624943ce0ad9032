"""The command line in odd environments: closed and full streams, pipes, names and texts that are not what they seem."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import unmask.cli
from unmask.cli.main import main
from unmask.training.runs.directory import RunDirectory

from .. import forking
from .conftest import COMMAND, TINY, sets


def shell(line):
    """Run a line of bash in which $unmask is the program."""
    environment = os.environ | {"unmask": " ".join(COMMAND), "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, timeout=120)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        (
            "$unmask completion bash > /dev/full",
            1,
            "unmask: standard output: No space left on device\n",
        ),
        ("$unmask completion bash >&-", 1, "unmask: standard output: Bad file descriptor\n"),
        ("$unmask completion bash 2>&- >/dev/null", 0, ""),
        ("$unmask completion bash <&- >/dev/null", 0, ""),
        ("$unmask recipes show bert-tiny --x 2>/dev/full", 2, ""),
    ],
)
def test_E10_closed_and_full_streams(line, status, message):
    done = shell(line)
    assert done.returncode == status
    assert done.stderr.decode() in (message, message.replace("standard output: ", ""))  # named where it is flushed last


def test_E10_standard_input_is_closed(tokenizer_directory, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["tokenizer", "encode", "--tokenizer", str(tokenizer_directory), "--data", "-"]) == 2
    assert capsys.readouterr().err == "unmask: standard input is closed\n"


def test_E10_text_from_a_pipe(text_file, tokenizer_directory, tmp_path, monkeypatch):
    with os.popen(f"cat {text_file}") as pipe:  # what `<(cat FILE)` of bash passes
        given = [f"/dev/fd/{pipe.fileno()}", "--tokenizer", tokenizer_directory, "--out", tmp_path / "corpus"]
        assert main(list(map(str, ["corpus", "build", *given]))) == 0
    given = [*sets(TINY), "--set", "budget.steps=1", "--set", "tokenizer.vocabulary=300", "--out", tmp_path / "run"]
    with os.popen(f"cat {text_file}") as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        assert main(list(map(str, ["pretrain", "bert-tiny", "--text", "-", *given]))) == 0
    assert (tmp_path / "run" / "model").is_dir()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_E10_a_pipe_as_a_file_of_a_model_does_not_hang(small, tmp_path, capsys, name):
    for file in (small / "model").iterdir():
        if file.name not in (name, "checksums.json", "vocab.txt"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    os.mkfifo(tmp_path / name)
    assert main(["fill", "--model", str(tmp_path), "[MASK]"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_E10_control_characters_are_escaped(line, capsys):
    assert main(["fill", "--model", "nowhere\nunmask: all is well\x1b[2J", "[MASK]"]) == 2
    assert capsys.readouterr().err.startswith(r"unmask: no directory 'nowhere\nunmask: all is well\x1b[2J'; ")
    assert main(["fill", "--model", str(line / "run"), "the [MASK]\x1b[2J"]) == 0
    assert capsys.readouterr().out.startswith("the [MASK]\\x1b[2J\n")


def test_E10_an_output_that_is_ascii(line, monkeypatch):
    words = ["fill", "--model", str(line / "run"), "é [MASK]", "--top", "1"]
    printed = []
    for options in ([], ["--json"]):
        with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as output:
            monkeypatch.setattr("sys.stdout", output)
            assert main([*words, *options]) == 0
            output.flush()
            printed.append(output.buffer.getvalue().decode("ascii"))
    assert printed[0].startswith("\\xe9 [MASK]\n")
    assert json.loads(printed[1])["text"] == "é [MASK]"


def test_E10_an_interrupt_while_modules_are_imported(monkeypatch, capsys):
    """An import in C may turn KeyboardInterrupt into another error."""

    def importing():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("numpy could not be imported") from None

    monkeypatch.setattr("unmask.workflows.library.list_recipes", importing)
    assert main(["recipes", "list"]) == 130
    assert capsys.readouterr().err == "unmask: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_E10_SIGHUP_saves_the_run(line, tmp_path):
    many = ("--set", "budget.steps=100000", "--out", tmp_path / "run")
    given = ["pretrain", "bert-tiny", "--corpus", line / "corpus", *sets(TINY[:-2]), *many]
    process = forking.start(["-m", "unmask", *given])
    metrics, limit = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 60
    while not (metrics.exists() and b'"train"' in metrics.read_bytes()) and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 129
    assert b"stopped and saved at step" in errors


def test_E4_names_that_are_not_utf8_are_refused_at_once(text_file, tokenizer_directory, tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.txt")
    with open(name, "w") as file:  # noqa: PTH123
        file.write(text_file.read_text())
    given = [*COMMAND, "corpus", "build", name, "--tokenizer", str(tokenizer_directory), "--out", str(tmp_path / "c")]
    done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr.startswith("unmask: '") and "is a lone surrogate, not a valid character; pass UTF-8" in done.stderr
    )
    assert not (tmp_path / "c.partial").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "bert-tiny", "--corpus", "c", "--out", "r", "--restarts", "-1"], "-1: not a whole number"),
        (["pretrain", "bert-tiny", "--corpus", "c", "--out", "r", "--workers", "-1"], "-1: not a whole number"),
        (["pretrain", "bert-tiny", "--corpus", "c", "--out", "r", "--workers", "9" * 5000], "invalid int value"),
        (["corpus", "build", "a.txt", "--tokenizer", "t", "--out", "c", "--workers", "1000000"], "from 1 to 999"),
    ],
)
def test_E9_numbers_of_the_command_line(capsys, arguments, message):
    try:
        status = main(arguments)
    except SystemExit as ended:  # what is no number at all is refused by the parser
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["encoder.width=1000000"], "an encoder"),
        (["encoder.layers=1000000000"], "layers must be at most 1000"),
        (["encoder.width=4611686018427387904"], "width must be at most 16,777,216"),
        (["encoder.width=16777216", "encoder.feed_forward=16777216"], "an encoder"),
        (["batch.tokens=1000000000000000000"], "a step of 1,000,000,000,000,000,000 tokens needs at least"),
        ([f"batch.tokens={'9' * 5000}"], "batch.tokens must be a whole number"),
        ([f"layout={'[' * 5000}"], "layout must be"),
    ],
)
def test_E9_C5_sizes_beyond_the_machine_are_refused_at_once(line, tmp_path, capsys, settings, message):
    given = ["pretrain", "bert-tiny", "--corpus", line / "corpus", *sets([*TINY[:-2], "budget.steps=1", *settings])]
    assert main([*map(str, given), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


def test_E9_a_vocabulary_of_a_trillion_tokens(text_file, tmp_path, capsys):
    given = ["tokenizer", "train", str(text_file), "--vocab-size", "1000000000000", "--out", str(tmp_path / "t")]
    assert main(given) == 2
    assert "a vocabulary of 1,000,000,000,000 tokens is larger than 10,000,000" in capsys.readouterr().err


def test_E9_a_recipe_that_is_nested_deeply(tmp_path, capsys):
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 5000}{']' * 5000}")
    (tmp_path / "long.toml").write_text(f"a = {'9' * 5000}")
    for name in ("deep.toml", "long.toml"):
        assert main(["recipes", "diff", "bert-tiny", str(tmp_path / name)]) == 2
        assert f"{name}: not valid TOML" in capsys.readouterr().err


def test_E7_an_input_is_not_overwritten_by_another_name(line, tmp_path, capsys):
    data = tmp_path / "data.tsv"
    data.write_bytes((line / "train.tsv").read_bytes())
    (tmp_path / "link.html").symlink_to(data)
    os.link(data, tmp_path / "hard.jsonl")
    tuned = ["--model", str(line / "tuned"), "--data", str(data)]
    assert main(["evaluate", *tuned, "--errors", str(tmp_path / "link.html")]) == 2
    assert main(["predict", *tuned, "--out", str(tmp_path / "hard.jsonl")]) == 2
    assert capsys.readouterr().err.count("is the same file as --data; name another file") == 2


def test_E8_T18_no_other_process_gets_the_directory_between_corpus_and_training(text_file, tmp_path):
    """A second process looks at the lock again and again while the first goes from the corpus to its training."""
    out, refusals, ended = tmp_path / "run", [], threading.Event()
    given = ["pretrain", "bert-tiny", "--text", text_file, *sets(TINY), "--out", out]

    def ask():
        while not (out / "recipe.toml").exists() and not ended.is_set():
            refusals.append(RunDirectory(out).is_in_use() if (out / "text" / "corpus").exists() else None)
            time.sleep(0.001)

    process = forking.start(["-m", "unmask", *given])
    asking = threading.Thread(target=ask)
    asking.start()
    _, errors = process.communicate(timeout=120)
    ended.set()
    asking.join()
    assert process.returncode == 0, errors
    seen = [refusal for refusal in refusals if refusal is not None]
    assert seen and all(seen)


@pytest.mark.parametrize("width", [100_000, 2**63])
def test_E9_the_width_of_a_downstream_model(line, tmp_path, capsys, width):
    given = ["finetune", "classification", "--model", line / "run", "--train", line / "train.tsv", "--frozen"]
    more = ["--downstream", "rnn", "--set", f"downstream.width={width}", "--out", tmp_path / "run", "--quiet"]
    assert main([*map(str, given), *map(str, more)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_E9_a_lone_surrogate_in_a_configuration(small, tmp_path, capsys):
    model = shutil.copytree(small / "model", tmp_path / "model")
    (model / "checksums.json").unlink()
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace("{", '{"note": "\\ud800",', 1))
    assert main(["fill", "--model", str(model), "[MASK]"]) == 2
    assert "config.json: a text contains a lone surrogate" in capsys.readouterr().err


def test_E9_memory_that_runs_out_anywhere_is_one_line(monkeypatch, capsys):
    def short():
        raise MemoryError

    monkeypatch.setattr("unmask.workflows.library.list_recipes", short)
    assert main(["recipes", "list"]) == 1
    assert capsys.readouterr().err == "unmask: out of memory; choose smaller sizes, or a machine with more memory\n"


def test_E10_every_command_prints_through_the_functions_that_escape():
    for path in Path(unmask.cli.__file__).parent.glob("*.py"):
        direct = re.findall(r"(?<![\w.])print\(", path.read_text(encoding="utf8"))
        assert len(direct) == {"main.py": 1, "verbs.py": 1}.get(path.name, 0), path.name


@pytest.mark.filterwarnings("default")
def test_C10_a_model_that_everybody_can_change_is_reported(line, tmp_path, capsys):
    model = shutil.copytree(line / "run" / "model", tmp_path / "model")
    assert main(["fill", "--model", str(model), "[MASK]"]) == 0
    assert capsys.readouterr().err == ""
    (model / "config.json").chmod(0o666)
    assert main(["fill", "--model", str(model), "[MASK]"]) == 0
    warning = f"unmask: warning: {model}/config.json: everybody on this machine can change it\n"
    assert capsys.readouterr().err == warning
