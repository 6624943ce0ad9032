"""`unmask distill` on text and on examples, and options that contradict each other."""

import pytest

from unmask.model.model import load_model

from .conftest import run, sets

STEPS = ("budget.steps=2",)


def test_a_student_on_raw_text_is_evaluated_like_any_encoder(line, text_file, tmp_path):
    more = sets([*STEPS, "layout.length=48", "batch.tokens=512"])
    arguments = ("distill", "distilbert-mini", "--teacher", line / "run", "--text", text_file, "--layers", 1, *more)
    found = run(*arguments, "--out", tmp_path / "student")
    assert "the student has 1 layer, width 32, 2 heads and" in found.err
    assert "it begins with the embeddings and layer 1 of" in found.err
    assert load_model(tmp_path / "student").tokenizer.sha256 == load_model(line / "run").tokenizer.sha256
    assert "masked_lm_accuracy" in run("evaluate", "--model", tmp_path / "student", "--data", text_file).out
    again = run(*arguments, "--out", tmp_path / "student", "--resume", "--set", "budget.steps=3")
    assert "resumed at step 2 of" in again.err


def test_a_student_of_a_task_predicts(line, tmp_path):
    (tmp_path / "more.txt").write_text("a dog near the river\na cat near the garden\n" * 8)
    found = run(
        *("distill", "tinybert-mini", "--teacher", line / "tuned", "--train", line / "train.tsv", "--layers", 1),
        *("--unlabelled", tmp_path / "more.txt", *sets(STEPS), "--out", tmp_path / "student"),
    )
    assert "layer_matching: 1 step of" in found.err and "soft_targets: 1 step of" in found.err
    assert "43 training examples, 3 evaluation examples" in found.err
    assert run("predict", "--model", tmp_path / "student", "a dog near the sea").out.split("\t")[0] in ("yes", "no")


REFUSED = [
    (["--text", "a.txt", "--train", "b.tsv"], "--text and --train cannot be combined; remove one of them"),
    (["--corpus", "a", "--text", "b"], "--corpus and --text cannot be combined"),
    (["--corpus", "a", "--dev", "b.tsv"], "--dev has no effect on text; omit it"),
    (["--text", "a.txt", "--augment", "2"], "--augment has no effect on text"),
    (["--train", "a.tsv", "--strict"], "--strict has no effect without --text; omit it"),
    ([], "there is nothing to learn from; pass --train, --unlabelled, --corpus or --text"),
    (["--train", "a.tsv", "--layers", "1", "--set", "encoder.width=8"], "no effect: --layers determines the encoder"),
    (["--train", "a.tsv", "--init", "m", "--set", "encoder.width=8"], "no effect: --init determines the encoder"),
    (["--train", "a.tsv", "--set", "tokenizer.kind=bpe"], "no effect: the student has the teacher's tokenizer"),
    (["--corpus", "{line}/corpus", "--set", "budget.steps=1"], "the layout's length 128 exceeds the 64 positions of"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_mistakes_are_one_line(refused, arguments, message):
    refused(["distill", "tinybert-mini", "--teacher", "{line}/tuned", *arguments, "--out", "{here}/run"], message)


def test_a_recipe_with_a_teacher_needs_one(refused, text_file):
    given = ["pretrain", "distilbert-mini", "--text", str(text_file), "--out", "{here}/run"]
    refused(given, "objective.soft_targets learns from a teacher; use it with unmask distill RECIPE --teacher MODEL")
    given = ["distill", "bert-tiny", "--teacher", "{line}/run", "--text", str(text_file), "--out", "{here}/run"]
    refused(given, "no objective of the recipe bert-tiny learns from a teacher; use a recipe such as distilbert-mini")
