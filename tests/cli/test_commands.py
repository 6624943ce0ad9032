"""The whole line as a user types it, and every mistake that a user makes."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys

import pytest

from unmask.cli.main import main
from unmask.recipe import read_recipe, recipe_text, shipped
from unmask.runs import display
from unmask.settings import parse_overrides
from unmask.version import __version__

COMMAND = [sys.executable, "-m", "unmask"]
TINY = [
    *("encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"),
    *("layout.length=48", "batch.tokens=512", "budget.steps=3", "tokenizer.vocabulary=150"),
]


def run(*arguments, status=0, given=None):
    """Run a command line in a process of its own; return what it wrote on standard output and error."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture(scope="module")
def line(tmp_path_factory, text_file):
    """The main line, each command once; the folder where everything lies, and what was said."""
    here = tmp_path_factory.mktemp("line")
    tiny = sets(setting for setting in TINY if "tokenizer" not in setting)
    said = {}
    said["tokenizer"] = run("tokenizer", "train", text_file, "--vocab-size", 170, "--out", here / "tokenizer")
    said["build"] = run("corpus", "build", text_file, "--tokenizer", here / "tokenizer", "--out", here / "corpus")
    said["info"] = run("corpus", "info", here / "corpus")
    said["pretrain"] = run("pretrain", "bert-tiny", "--corpus", here / "corpus", *tiny, "--out", here / "run")
    examples = [
        f"{word} near the {noun}\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for noun in ["sea"] * 15
    ]
    (here / "train.tsv").write_text("\n".join(["text\tlabel", *examples]))
    said["finetune"] = run(
        *(
            "finetune",
            "classification",
            "--model",
            here / "run",
            "--train",
            here / "train.tsv",
            "--out",
            here / "tuned",
        ),
        *sets(["budget.steps=3"]),
    )
    return here, said


def test_what_the_commands_say(line, text_file):
    here, said = line
    assert all(output == "" for name, (output, _) in said.items() if name != "info"), "only results are on stdout"
    assert f"pieces: {here / 'tokenizer'}" in said["tokenizer"][1]
    assert "documents: blank-line" in said["build"][1]
    assert ", 1 shard\n" in said["info"][0]
    assert said["info"][0].startswith("train: 11")
    assert f"sources: {text_file}" in said["info"][0]
    assert "3 steps of " in said["pretrain"][1]
    assert "step 3 of 3, " in said["pretrain"][1]
    assert said["pretrain"][1].endswith(f"model: {here / 'run' / 'model'}\n")
    assert "labels: no, yes" in said["finetune"][1]
    assert "newly initialized, as " in said["finetune"][1], "the new head is reported"


def test_pretrain_on_text_then_adapt(line, text_file, tmp_path, capsys):
    here, _ = line
    _, said = run("pretrain", "bert-tiny", "--text", text_file, *sets(TINY), "--out", tmp_path / "run")
    assert "training the tokenizer" in said
    assert len((tmp_path / "run" / "model" / "vocab.txt").read_text().splitlines()) == 150
    settings = ["layout.kind=document_sentences", "objective.next_sentence=false", "layout.length=48", "budget.steps=2"]
    options = (
        "--init",
        here / "run",
        *sets(settings),
        "--out",
        tmp_path / "adapted",
        "--precision",
        "float32",
        "--quiet",
    )
    assert run("pretrain", "bert-mini", "--text", text_file, *options)[1] == ""
    assert json.loads((tmp_path / "adapted" / "model" / "config.json").read_text())["hidden_size"] == 32
    assert run("pretrain", "bert-mini", "--text", text_file, *options, "--resume")[1] == ""
    assert main(list(map(str, ["pretrain", "bert-mini", "--text", here / "train.tsv", *options, "--resume"]))) == 2
    assert f"was started on the text of {text_file}; resume with" in capsys.readouterr().err


SCORES = {"accuracy", "f1", "f1_macro", "matthews_correlation"}


def test_evaluate_a_classifier(line):
    here, _ = line
    output, said = run("evaluate", "--model", here / "tuned", "--data", here / "train.tsv", "--json")
    assert (output.count("\n"), said) == (1, "")
    result = json.loads(output)
    assert result.keys() >= {"task", "metrics", "intervals", "examples", "seconds"}
    assert (result["task"], result["examples"]) == ("classification", 30)
    assert result["metrics"].keys() == result["intervals"].keys() == SCORES
    assert result["metrics"]["accuracy"] == pytest.approx(50, abs=50)
    assert result["metrics"]["accuracy"] == 100 * sum(result["confusion"][i][i] for i in (0, 1)) / 30
    assert all(low <= result["metrics"][name] <= high for name, (low, high) in result["intervals"].items())


def test_several_seeds(line, tmp_path):
    here, _ = line
    tune = ("finetune", "classification", "--model", here / "run", "--train", here / "train.tsv")
    options = ("--seeds", 2, *sets(["budget.steps=2"]), "--out", tmp_path / "runs")
    output, said = run(*tune, *options)
    assert output == ""
    assert said.endswith((tmp_path / "runs/report.md").read_text() + "\n")
    assert "| **mean** | " in said
    assert {path.name for path in (tmp_path / "runs").glob("seed-*")} == {"seed-0", "seed-1"}
    assert json.loads(run("evaluate", "--model", tmp_path / "runs", "--data", here / "train.tsv", "--json")[0])
    shown, _ = run("runs", "show", tmp_path / "runs")
    assert shown.startswith(f"{tmp_path / 'runs'}: fine-tuning, 2 seeds\n\ndev data ")
    assert [line.split()[0] for line in shown.splitlines()[3:7]] == ["seed-0", "seed-1", "mean", "standard"]
    _, said = run("runs", "plot", tmp_path / "runs", "--out", tmp_path / "seeds.png")
    assert said == f"picture: {tmp_path / 'seeds.png'}\n"


def test_evaluate_an_encoder_on_text(line, text_file):
    here, _ = line
    output, said = run("evaluate", "--model", here / "run", "--data", text_file, "--json")
    assert (output.count("\n"), said) == (1, "")
    result = json.loads(output)
    assert result["task"] == "pretraining"
    objectives = {f"{name}_{kind}" for name in ("masked_lm", "next_sentence") for kind in ("loss", "accuracy")}
    assert result["metrics"].keys() == objectives | {"loss"}
    assert 0 <= result["metrics"]["masked_lm_accuracy"] <= 1
    assert 4 < result["metrics"]["masked_lm_loss"] < 6, "near the logarithm of the vocabulary: nats"
    plain, _ = run("evaluate", "--model", here / "run", "--data", "-", given="One. Two.")
    assert plain.startswith("pretraining: 1 examples")
    assert "masked_lm_loss" in plain


@pytest.mark.parametrize(
    "asked",
    [
        ("predict", "--model", "{here}/tuned", "--data", "{here}/train.tsv"),
        ("evaluate", "--model", "{here}/tuned", "--data", "{here}/train.tsv"),
        ("evaluate", "--model", "{here}/run", "--data", "{text}"),
        ("features", "--model", "{here}/run", "--data", "{here}/train.tsv", "--layers", "-1", "--out", "{out}"),
    ],
    ids=["predict", "evaluate a task", "evaluate on text", "features"],
)
def test_long_work_says_how_far_it_is(line, text_file, tmp_path, monkeypatch, capsys, asked):
    here, _ = line
    monkeypatch.setattr(display, "LINE_SECONDS", -1)
    for quiet in ([], ["--quiet"]):
        out = tmp_path / f"out{len(quiet)}"
        assert main([word.format(here=here, text=text_file, out=out) for word in asked] + quiet) == 0
        said = capsys.readouterr().err
        assert bool(re.search(r"^[\d,]+ of [\d,]+ tokens  0 s left  [\d,]+ tokens/s$", said, re.MULTILINE)) != bool(
            quiet
        )


def test_predict(line):
    here, _ = line
    model = ("predict", "--model", here / "tuned")
    output, said = run(*model, "dog near the sea", "cat", "--json")
    assert said == ""
    predictions = [json.loads(text) for text in output.splitlines()]
    assert [list(one) for one in predictions] == [["text", "label", "scores"]] * 2
    assert [one["text"] for one in predictions] == ["dog near the sea", "cat"]
    for one in predictions:
        assert list(one["scores"]) == ["no", "yes"]
        assert sum(one["scores"].values()) == pytest.approx(1)
        assert one["label"] == max(one["scores"], key=one["scores"].get)
    # from a file, and from standard input, into a file
    output, _ = run(*model, "--data", here / "train.tsv")
    assert len(output.splitlines()) == 30
    label, chance, text = output.splitlines()[0].split("\t")
    assert (label in ("no", "yes"), 0.5 <= float(chance) <= 1, text) == (True, True, "dog near the sea")
    out = here / "predictions.jsonl"
    output, said = run(
        *model,
        "--data",
        "-",
        "--format",
        "csv",
        "--columns",
        "text=1",
        "--out",
        out,
        given="1,dog near the sea\n2,cat\n",
    )
    assert (output, said) == ("", f"2 predictions: {out}\n")
    for one, other in zip(map(json.loads, out.read_text().splitlines()), predictions, strict=True):
        assert (one["text"], one["label"]) == (other["text"], other["label"])
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)


def test_fill(line):
    here, _ = line
    texts = ["The [MASK] sees the [MASK].", "Ünï 😀 [MASK]"]
    output, said = run("fill", "--model", here / "run", *texts, "--top", 3, "--json")
    assert said == ""
    fillings = [json.loads(text) for text in output.splitlines()]
    assert [one["text"] for one in fillings] == texts
    assert [[mask["position"] for mask in one["masks"]] for one in fillings] == [[4, 20], [6]]
    vocabulary = set((here / "run" / "model" / "vocab.txt").read_text().splitlines())
    for mask in (mask for one in fillings for mask in one["masks"]):
        probabilities = [candidate["probability"] for candidate in mask["candidates"]]
        assert len(probabilities) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) < 1
        assert {candidate["piece"] for candidate in mask["candidates"]} <= vocabulary
    output, _ = run("fill", "--model", here / "run", texts[0])
    assert output.startswith(f"{texts[0]}\n  at 4: ")


def test_threads_do_not_spin_for_long_unless_told_to(monkeypatch, capsys):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert main(["recipes", "list"]) == 0
    assert os.environ["GOMP_SPINCOUNT"] == "10000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert main(["recipes", "list"]) == 0
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def test_recipes(capsys):
    assert main(["recipes", "list"]) == 0
    assert [text.split()[0] for text in capsys.readouterr().out.splitlines()] == shipped()
    assert main(["recipes", "show", "bert-tiny"]) == 0
    assert capsys.readouterr().out == recipe_text("bert-tiny")[0]
    assert main(["recipes", "diff", "bert-tiny", "bert-mini"]) == 0
    changed = capsys.readouterr().out.splitlines()
    assert "-encoder.layers=2" in changed
    assert "+encoder.layers=4" in changed
    assert not any("dropout" in text for text in changed)
    assert main(["recipes", "diff", "bert-tiny", "bert-tiny"]) == 0
    assert capsys.readouterr().out == ""


PAIRS = "layout.kind layout.second layout.short_probability layout.single_probability"
DIFFERENCES = {
    "roberta": "tokenizer.kind tokenizer.lowercase encoder.kind encoder.segments encoder.epsilon encoder.offset"
    f" {PAIRS} objective.next_sentence",
    "spanbert": f"{PAIRS} masking.kind masking.p masking.longest objective.next_sentence objective.span_boundary",
    "albert": "tokenizer.kind encoder.kind encoder.embedding encoder.shared layout.second masking.kind masking.longest"
    " objective.next_sentence objective.sentence_order",
    "electra": "encoder.kind encoder.embedding layout.second layout.short_probability layout.single_probability"
    " masking.rate masking.final_rate masking.replace"
    " objective.masked_lm objective.next_sentence objective.replaced_token optimizer.learning_rate",
    "gpt": "optimizer.epsilon encoder.kind encoder.feed_forward encoder.segments encoder.activation encoder.epsilon"
    f" {PAIRS} masking.kind masking.rate masking.final_rate masking.replace"
    " objective.masked_lm objective.next_sentence objective.causal_lm",
}
"""What the family's models of one size differ in from BERT; an objective is one key, and so is what replaces."""


@pytest.mark.parametrize("family", DIFFERENCES)
def test_two_models_differ_in_what_their_papers_changed_and_in_nothing_else(family, capsys):
    """At one size and with the same settings for small machines; GPT's epsilon of the optimiser is its own, and so is
    ELECTRA's learning rate, of which its discriminator bears less (docs/family.md)."""
    assert main(["recipes", "diff", "bert-mini", f"{family}-mini"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- bert-mini", f"+++ {family}-mini"]
    assert all(re.fullmatch(r"[-+][a-z_.]+=\S+", text) for text in lines[2:])
    keys = {text[1:].split("=")[0] for text in lines[2:]}
    assert {".".join(key.split(".")[:2]) for key in keys} == {"name", *DIFFERENCES[family].split()}


@pytest.mark.parametrize("start", shipped())
def test_a_difference_makes_one_recipe_of_the_other(start, capsys):
    for end in shipped():
        assert main(["recipes", "diff", start, end]) == 0
        changed = [text[1:] for text in capsys.readouterr().out.splitlines()[2:] if text.startswith("+")]
        assert read_recipe(start, parse_overrides(changed)) == read_recipe(end)


def test_runs(line, tmp_path, capsys):
    here, _ = line
    assert main(["runs", "list", str(here), str(here / "run")]) == 0
    output, said = capsys.readouterr()
    heading, run, tuned = output.splitlines()
    assert (heading.split()[0], said) == ("run", "")
    for text, path, words in (
        (run, here / "run", "bert-tiny  pretraining  finished  3"),
        (tuned, here / "tuned", "classification  fine-tuning  finished  3"),
    ):
        assert text.startswith(f"{path} ")
        assert " ".join(words.split()) in " ".join(text.split())
        assert " loss " in text
        assert "_accuracy " in text
    assert main(["runs", "show", str(here / "run")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{here / 'run'}: bert-tiny, pretraining, finished\n")
    assert f"unmask pretrain bert-tiny --corpus {here / 'corpus'}" in shown
    assert "masked_lm_accuracy" in shown
    picture = tmp_path / "runs.png"
    for over in ("steps", "tokens", "minutes"):
        assert (
            main(["runs", "plot", str(here / "run"), str(here / "tuned"), "--over", over, "--out", str(picture)]) == 0
        )
        assert capsys.readouterr() == ("", f"picture: {picture}\n")
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()


def test_runs_that_cannot_be_read_are_left_out_and_counted(line, tmp_path, capsys):
    shutil.copytree(line[0] / "run", tmp_path / "whole")
    shutil.copytree(line[0] / "run", tmp_path / "damaged")
    (tmp_path / "damaged" / "recipe.toml").write_text("name =")
    assert main(["runs", "list", str(tmp_path)]) == 0
    output, said = capsys.readouterr()
    assert [text.split()[0] for text in output.splitlines()] == ["run", str(tmp_path / "whole")]
    count, damaged = said.splitlines()
    assert count == "left out, as they cannot be read: 1"
    assert f"{tmp_path / 'damaged' / 'recipe.toml'}: the file is damaged" in damaged


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["pretrain", "--help"], ["finetune", "--help"], ["recipes", "show", "-h"]],
)
def test_help_is_quick_and_needs_no_torch(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = f"from unmask.cli.main import main\ntry: main({arguments})\nfinally: assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{program}"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: unmask" if arguments != ["--version"] else f"unmask {__version__}")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


# Mistakes, in this process: the same `main` that the program calls.

MODEL = ("--model", "{line}/tuned")
CORPUS = ("--corpus", "{line}/corpus")
FILES = ("--train", "{line}/train.tsv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tokenizer", "train", "{here}/missing.txt", "--out", "{here}/t"), "missing.txt"),
        (("tokenizer", "train", "{line}/train.tsv", "--out", "{line}"), "the directory is not empty"),
        (("tokenizer", "train", "{line}/train.tsv", "--out", "{line}/train.tsv"), "Not a directory"),
        (("tokenizer", "train", "{line}/train.tsv", "--vocab-size", "5", "--out", "{here}/t"), "needs at least"),
        (("tokenizer", "train", "{here}/empty.txt", "--out", "{here}/t"), "no text"),
        (("corpus", "build", "{line}/train.tsv", "--tokenizer", "{here}/no", "--out", "{here}/c"), "no: "),
        (
            ("corpus", "build", "{here}/empty.txt", "--tokenizer", "{line}/run", "--out", "{here}/c"),
            "no text to train on",
        ),
        (
            ("corpus", "build", "{line}/train.tsv", "--tokenizer", "{line}/run", "--workers", "0", "--out", "{here}/c"),
            "pass --workers 1 or more",
        ),
        (("corpus", "info", "{here}"), "is this the folder of a corpus?"),
        (("corpus", "info", "{here}/flipped"), "flipped/train-00000.tokens.npy: is damaged: its sha256 differs"),
        (("pretrain", "bert-tinny", *CORPUS, "--out", "{here}/r"), "did you mean 'bert-tiny'?"),
        (("pretrain", "bert-tiny", "--corpus", "{here}/no", "--out", "{here}/r"), "is this the folder of a corpus?"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{line}/run"), "not empty; choose another --out"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--resume"), "no run is here to resume"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{line}/train.tsv/r"), "cannot be written"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--set", "budget.step=1"), "did you mean 'steps'?"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--init", "{here}/no"), "no directory is called"),
        (("pretrain", "bert-tiny", *CORPUS, "--out", "{here}/r", "--strict"), "have no effect on a corpus"),
        (("pretrain", "bert-tiny", "--text", "{line}/train.tsv", "--out", "{line}"), "not empty"),
        (("pretrain", "bert-tiny", "--text", "-", "--out", "{here}/r"), "standard input can be read only once"),
        (("pretrain", "bert-tiny", "--text", "{here}/no", "--out", "{here}/r"), "no: does not exist"),
        (
            ("finetune", "classification", "--model", "google/bert-x", *FILES, "--out", "{here}/r"),
            "hf download google/bert-x",
        ),
        (("finetune", "classification", "--model", "bert-tiny", *FILES, "--out", "{here}/r"), "write random:bert-tiny"),
        (
            ("finetune", "classification", "--model", "random:bert-tiny", *FILES, "--out", "{here}/r"),
            "pass --tokenizer",
        ),
        (
            ("finetune", "classification", "--model", "{here}", *FILES, "--out", "{here}/r"),
            "neither a run with a finished",
        ),
        (
            ("finetune", "classification", *MODEL, *FILES, "--tokenizer", "{line}/tokenizer", "--out", "{here}/r"),
            "has no effect",
        ),
        (
            ("finetune", "classification", *MODEL, "--train", "{here}/no.tsv", "--out", "{here}/r"),
            "no.tsv: cannot be read",
        ),
        (("finetune", "classification", *MODEL, "--train", "{line}/run", "--out", "{here}/r"), "pass --format"),
        (("finetune", "classification", *MODEL, "--train", "{here}/empty.txt", "--out", "{here}/r"), "no examples"),
        (
            ("finetune", "classification", *MODEL, *FILES, "--columns", "label=stars", "--out", "{here}/r"),
            "train.tsv:1: no column called stars",
        ),
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv"), "bad.tsv:2: unknown label 'maybe'; the model knows no, yes"),
        (
            ("evaluate", *MODEL, "--data", "{line}/train.tsv", "--strict"),
            "no effect: the model is fine-tuned for a task",
        ),
        (
            ("evaluate", "--model", "{line}/run", "--data", "{line}/train.tsv", "--columns", "text=0"),
            "no effect: the model",
        ),
        (("predict", *MODEL), "give texts, --question and --passage, or --data FILE, one of the three"),
        (
            ("predict", *MODEL, "a", "--data", "{line}/train.tsv"),
            "give texts, --question and --passage, or --data FILE, one of the three",
        ),
        (("predict", *MODEL, "a", "--columns", "text=0"), "no effect without --data"),
        (
            ("predict", *MODEL, "a", "--out", "{here}/no/file"),
            "no: there is no such folder; make it, or name another --out",
        ),
        (("predict", *MODEL, "a", "--out", "{here}/a.jsonl.gz"), "a.jsonl.gz: predictions are written as they are"),
        (("predict", *MODEL, "bad \udcff"), "character 5 of the text is no character (a lone surrogate); give UTF-8"),
        (("fill", "--model", "{line}/run", "\udcff [MASK]"), "a lone surrogate"),
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv", "--format", "conll"), "--format conll has no columns of"),
        (("predict", "--model", "{line}/run", "a"), "fine-tuned for no task; train one: unmask finetune"),
        (("fill", *MODEL, "The [MASK]."), "no masked-LM head"),
        (("fill", "--model", "{line}/run", "No mask here."), "no mask in 'No mask here.'"),
        (("fill", "--model", "{line}/run", "The [MASK].", "--top", "0"), "pass --top 1 or more"),
        (("fill", "--model", "{line}/run", "dog " * 70 + "[MASK]"), "the model reads 64; shorten it"),
        (("recipes", "show", "bert-tinny"), "did you mean 'bert-tiny'?"),
        (("runs", "list", "{here}"), "or below; name the --out of a run"),
        (("runs", "list", "{here}/no"), "no: no such folder"),
        (("runs", "show", "{line}"), "no run is here"),
        (("runs", "plot", "{line}/run", "{here}", "--out", "{here}/p.png"), "no run is here"),
        (("runs", "plot", "{line}/run", "--out", "{here}/p.jpg"), "p.jpg: a picture is written as PNG"),
        (("runs", "plot", "{line}/run", "--metric", "los", "--out", "{here}/p.png"), "did you mean 'loss'?"),
        (
            ("runs", "plot", "{line}/run", "{line}/tuned", "--metric", "masked_lm_loss", "--out", "{here}/p.png"),
            "tuned: no metric 'masked_lm_loss'",
        ),
        (("runs", "plot", "{line}/run", "--out", "{line}/train.tsv/p.png"), "train.tsv"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_users_mistake_is_one_line_and_status_2(line, tmp_path, capsys, arguments, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.tsv").write_text("text\tlabel\nsomething\tmaybe\n")
    shutil.copytree(line[0] / "corpus", tmp_path / "flipped")
    with (tmp_path / "flipped" / "train-00000.tokens.npy").open("r+b") as file:
        file.seek(200)
        file.write(b"!")
    arguments = [word.format(line=line[0], here=tmp_path) for word in arguments]
    quiet = ["--quiet"] if arguments[:2] in (["tokenizer", "train"], ["corpus", "build"]) else []
    assert main([*arguments, *quiet]) == 2
    output, said = capsys.readouterr()
    assert output == ""
    lines = [text for text in said.splitlines() if text.startswith("unmask: ")]
    assert said.splitlines()[-1:] == lines
    assert message in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "VERB"),
        (["pretain"], "pretrain"),
        (["pretrain", "bert-tiny", "--out", "r"], "one of the arguments --corpus --text is required"),
        (["pretrain", "bert-tiny", "--corpus", "c", "--text", "t", "--out", "r"], "not allowed with argument --corpus"),
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


def test_mistakes_in_the_program_itself(tmp_path):
    """The same in a process: nothing but one line, status 2; and a reader that leaves is no error."""
    output, said = run("fill", "--model", "bert-base-uncased", "a [MASK]", status=2)
    assert output == ""
    assert said == (
        "unmask: no directory is called 'bert-base-uncased'; if it is a model on the Hugging Face hub, fetch it with: "
        "hf download bert-base-uncased --local-dir bert-base-uncased\n"
    )
    piped = subprocess.run(
        f"{' '.join(COMMAND)} recipes show bert-tiny | true", shell=True, capture_output=True, text=True
    )
    assert piped.stderr == ""


def test_standard_input(tmp_path, text_file):
    text = text_file.read_text()
    run(
        "tokenizer", "train", "-", "--vocab-size", 170, "--documents", "blank-line", "--out", tmp_path / "t", given=text
    )
    _, said = run("corpus", "build", "-", "--tokenizer", tmp_path / "t", "--out", tmp_path / "c", given=text)
    assert "train: 11" in said
