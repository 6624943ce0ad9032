"""QuAC end to end: a history that decides, dialogue acts, no answer, the command line, official files, mistakes."""

import json

import numpy as np
import pytest

import unmask
from unmask.cli.main import main
from unmask.data.labelled.dialogue_files import QuacQuestion, Turn, read_quac
from unmask.data.labelled.question_files import Answer
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.tasks.answer_head import UNTRAINED
from unmask.tasks.dialogues import Quac, QuacAnswered
from unmask.tasks.extraction import Span
from unmask.tasks.history import History
from unmask.tasks.passage_windows import LABEL

PASSAGE = "the dog sees the cat near the sea . the poem follows the river . the cat finds the garden"


def question(text, answer, *turns, name="q", yesno="x", followup="m", references=None):
    answers = (Answer(answer, PASSAGE.index(answer)),) if answer else ()
    texts = references or (answer or "CANNOTANSWER",)
    return QuacQuestion(
        *(name, text, PASSAGE, answers, not answer, "f.json", f"question {name}"),
        dialogue="d",
        history=turns,
        references=texts,
        yesno=yesno,
        followup=followup,
    )


# Settings and samples


def test_questions_with_a_history_may_be_longer():
    assert (Quac().question, Quac(length=96).question, Quac(length=96, question=9).question) == (128, 32, 9)
    assert Quac().settle([question("who", "the dog"), question("who", None)], ()).no_answer is True


def test_acts_are_trained_where_the_answer_is(tokenizer):
    task = Quac(length=24, question=4, stride=6, answer=5, no_answer=True)
    examples = [question("who", "the garden", yesno="y", followup="n"), question("who", None, yesno="x", followup="y")]
    framed = task.frame(tokenizer, examples, (), gold=True)
    labels = [
        (bool(sample.labels[LABEL].any()), *(int(sample.labels[name][0]) for name in ("yesno", "followup")))
        for sample in framed.samples
    ]
    half = len(labels) // 2
    assert set(labels[:half]) == {(False, UNTRAINED, UNTRAINED), (True, 0, 1)}
    assert set(labels[half:]) == {(False, 2, 0)}


def read(tokenizer, task, example, *windows):
    """Return the prediction for logits of windows, each given as {token: logit}, [CLS] first, and acts."""
    framed = task.frame(tokenizer, [example], (), gold=False)
    assert len(framed.samples) == len(windows)
    logits = []
    for sample, (tokens, yesno, followup) in zip(framed.samples, windows, strict=True):
        values = np.zeros((len(sample.positions["passage"]), 8), np.float32)
        for token, value in tokens.items():
            values[token, :2] = value
        values[:, 2 + "ynx".index(yesno)] = values[:, 5 + "ynm".index(followup)] = 3
        logits.append(values)
    return framed.read(logits)[0]


def test_acts_are_those_of_the_window_of_the_answer(tokenizer):
    task = Quac(length=24, question=4, stride=6, answer=5, no_answer=True)
    example = question("who", "the garden")
    number = len(task.frame(tokenizer, [example], (), gold=False).samples)
    others = [({0: 0.5}, "x", "m")] * (number - 2)
    found = read(tokenizer, task, example, ({2: 3.0, 0: 4.0}, "n", "n"), *others, ({1: 5.0, 0: 1.0}, "y", "y"))
    assert (found.yesno, found.followup, found.start is None) == ("y", "y", False)
    found = read(
        tokenizer,
        task,
        example,
        ({2: 0.5, 0: 4.0}, "n", "n"),
        *[({0: 4}, "x", "m")] * (number - 2),
        ({0: 3.0}, "y", "y"),
    )
    assert (found.answer, found.yesno, found.followup) == ("", "y", "y"), "the lowest score of no answer decides"


def test_the_threshold_is_the_best_for_the_metric_of_quac():
    examples = [
        question("a", "the dog"),
        question("b", None),
        question("c", "sea", references=("sea", "river", "poem")),
    ]

    def found(margin):
        none = 1 / (1 + np.exp(-margin))
        spans = (
            Span("the dog", 0, 7, 1 - none),
            Span("", None, None, none),
        )
        return QuacAnswered("q", "a", "the dog", 0, 7, 1 - none, spans, yesno="x", followup="m")

    # humans agree on nothing in the last question, which does not count
    assert Quac(no_answer=True).tune(examples, [found(-3.0), found(2.0), found(-9.0)]).threshold == pytest.approx(-0.5)


# Runs

NAMES = ["dog", "cat", "teacher", "doctor", "poem", "bridge"]


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory):
    """Eight dialogues: the second question can be answered only with the first one, as two sentences compete."""
    data = []
    for number in range(8):
        first, second = NAMES[number % 6], NAMES[(number * 5 + 1) % 6]
        place, other = ("sea", "tree") if number % 2 else ("tree", "sea")
        context = f"the {first} is near the {place} . the {second} is near the {other} . CANNOTANSWER"

        def turn(index, text, answer, yesno, followup, context=context, number=number):
            spans = [{"text": answer, "answer_start": context.index(answer)}]
            return {
                **{"id": f"d{number}_q#{index}", "question": text, "answers": spans, "orig_answer": spans[0]},
                **{"yesno": yesno, "followup": followup},
            }

        who, where = (first, place) if number % 3 else (second, other)
        turns = [
            turn(0, "who is near", who, "x", "y"),
            turn(1, "where", where, "y" if place == "sea" else "n", "m"),
            turn(2, "after the rain", "CANNOTANSWER", "x", "n"),
        ]
        data.append({"title": "t", "paragraphs": [{"id": f"d{number}", "context": context, "qas": turns}]})
    path = tmp_path_factory.mktemp("quac") / "train.json"
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.fixture(scope="module")
def trained(fine_tuned, dialogues, tmp_path_factory):
    sets = ("budget.steps=95", "task.length=64", "task.threshold=0", "task.history.turns=1")
    return fine_tuned("quac", dialogues, tmp_path_factory.mktemp("quac") / "run", *sets)


def test_dialogues_are_memorized(trained, dialogues):
    result = json.loads((trained / "dev.json").read_text())
    assert (result["task"], result["scorer"], result["examples"]) == ("quac", "QuAC", 24)
    assert result["metrics"]["f1"] > 80
    assert result["metrics"]["followup"] > 80
    assert result["metrics"]["unanswerable"] > 80
    assert load_model(trained).task.history == History(turns=1)
    examples = read_quac([dialogues])
    model = unmask.load(trained, device="cpu")
    turns = [example.history for example in examples]
    answers = model.run(examples)
    for example, history, known in zip(examples[:3], turns, answers, strict=False):
        found = model.answer(example.question, example.passage, [(turn.question, turn.answer) for turn in history])
        assert (found.answer, found.yesno, found.followup) == (known.answer, known.yesno, known.followup)
    with pytest.raises(UserError, match="models of quac read one passage"):
        model.answer("who", ["a", "b"])


def test_the_command_line(trained, dialogues, tmp_path, capsys):
    example = read_quac([dialogues])[1]
    asked = ["predict", "--model", str(trained), "--question", example.question, "--passage", example.passage]
    history = [text for turn in example.history for text in (turn.question, turn.answer)]
    assert main([*asked, "--history", *history, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found)[-2:] == ["yesno", "followup"]
    out = tmp_path / "predicted.jsonl"
    assert main(["predict", "--model", str(trained), "--data", str(dialogues), "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 8
    assert lines[0]["qid"] == ["d0_q#0", "d0_q#1", "d0_q#2"]
    assert list(lines[0]) == ["qid", "best_span_str", "yesno", "followup"]
    assert "CANNOTANSWER" in lines[0]["best_span_str"]
    nbest = json.loads((tmp_path / "predicted.jsonl.nbest.json").read_text())
    assert nbest["d0_q#0"][0].keys() == {"answer", "start", "end", "probability"}
    page = tmp_path / "errors.html"
    capsys.readouterr()
    assert main(["evaluate", "--model", str(trained), "--data", str(dialogues), "--errors", str(page), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"].keys() == result["intervals"].keys()
    assert page.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--history", "who"], "--history needs an answer after each question"),
        (["--history", " ", "dog"], "a question in the history is empty"),
    ],
)
def test_errors_of_the_command_line(trained, capsys, options, message):
    assert main(["predict", "--model", str(trained), "--question", "who", "--passage", "the dog", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_history_needs_a_question(capsys):
    assert main(["predict", "--model", "none", "a text", "--history", "who", "dog"]) == 2
    assert "--history has no effect without --question and --passage" in capsys.readouterr().err


def test_long_histories_are_reported(trained, capsys):
    asked = ["predict", "--model", str(trained), "--question", "who", "--passage", "the dog"]
    assert main([*asked, "--history", "the dog " * 20, "the cat"]) == 0
    assert capsys.readouterr().err == "earlier turns left out because they exceed 21 tokens: 1\n"


# Mistakes and labels


def test_mistakes_are_answers_worse_than_those_of_humans():
    examples = [question("a", "the cat", Turn("who", "the dog", 0, 7), name="1"), question("b", None, name="2")]
    wrong = QuacAnswered("1", "a", "the dog", 0, 7, 0.7, (), yesno="x", followup="m")
    right = QuacAnswered("2", "b", "", None, None, 0.9, (), yesno="x", followup="m")
    (mistake,) = Quac(no_answer=True).mistakes(examples, [wrong, right], ())
    assert (mistake.gold, mistake.predicted, mistake.score) == ("the cat", "the dog", 0.7)
    assert [text.name for text in mistake.passages] == ["before", "question", "passage"]
    assert mistake.passages[0].text == "who — the dog"


def test_predictions_serve_as_labels():
    examples = [question("a", "the cat"), question("b", "the sea")]
    found = [
        QuacAnswered("q", "a", "the dog", 0, 7, 0.7, (), yesno="y", followup="n"),
        QuacAnswered("q", "b", "", None, None, 0.9, (), yesno="x", followup="m"),
    ]
    first, second = Quac(no_answer=True).labelled(examples, found)
    assert (first.references, first.answers, first.yesno) == (("the dog",), (Answer("the dog", 0),), "y")
    assert (second.references, second.impossible, second.followup) == (("CANNOTANSWER",), True, "m")
