"""Question answering end to end: training, the command line, the threshold, messages."""

import json
import re

import msgspec
import pytest

from unmask.cli.main import main
from unmask.data.labelled.question_files import Answer, Question
from unmask.inference.calls import predict
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.tasks.extraction import Span
from unmask.tasks.question_answering import QuestionAnswering, best_threshold
from unmask.training.machine import choose_machine
from unmask.workflows.finetuning.examples import HOLD_OUT_SEED
from unmask.workflows.finetuning.finetune import finetune

from .conftest import hold_out

CPU = choose_machine("cpu", "float32")


def squad(path, examples):
    """Write questions to a file, one paragraph each."""
    paragraphs = [
        {
            "context": one.passage,
            "qas": [
                {
                    "id": one.id,
                    "question": one.question,
                    "answers": [{"text": answer.text, "answer_start": answer.start} for answer in one.answers],
                    "is_impossible": one.impossible,
                }
            ],
        }
        for one in examples
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False))
    return path


def seen(documents, count):
    """Return questions about the first sentence of a passage: who is seen? Passages are longer than a window."""
    made = []
    for number, text in enumerate(documents[:count]):
        word = re.match(r"The \w+ \w+ the (\w+)", text)
        made.append(Question(str(number), f"what {text.split()[1]}", text, (Answer(word[1], word.start(1)),)))
    return made


def tune(recipe_file, tokenizer_directory, train, out, *settings, **options):
    return finetune(
        "question-answering",
        f"random:{recipe_file}",
        [train],
        out,
        tokenizer=tokenizer_directory,
        settings=parse_overrides(["dropout=0.0", *settings]),
        device="cpu",
        precision="float32",
        **options,
    )


@pytest.fixture(scope="module")
def trained(recipe_file, tokenizer_directory, documents, tmp_path_factory):
    """A model that has memorized ten questions, and the file."""
    here = tmp_path_factory.mktemp("trained")
    train = squad(here / "train.json", seen(documents, 10))
    sets = ("budget.steps=100", "optimizer.learning_rate=5e-3", "batch.sequences=10", "task.length=48")
    tune(recipe_file, tokenizer_directory, train, here / "run", *sets, dev=[train], quiet=True)
    return here / "run", train


def test_files_with_the_same_ids_are_not_predicted_together(trained, documents, tmp_path):
    other, out = squad(tmp_path / "other.json", seen(documents, 11)[1:]), tmp_path / "out.json"
    with pytest.raises(UserError, match=r"the id '1' is also that of a question of .*train\.json"):
        predict(trained[0], [trained[1], other], out=out, device="cpu", quiet=True)
    assert not out.exists()
    assert len(predict(trained[0], [trained[1], other], device="cpu", quiet=True)) == 20


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((None, "b"), "None is not a string"),
        (("a", 5), "5 is not a string"),
        (("a", " "), "the question or the passage is empty"),
    ],
)
def test_invalid_questions_are_refused(trained, asked, message):
    with pytest.raises(UserError, match=message):
        load(trained[0], device="cpu").answer(*asked)


def test_a_few_questions_are_memorized(trained, documents):
    run, _ = trained
    result = json.loads((run / "dev.json").read_text())
    assert (result["task"], result["examples"], result["scorer"]) == ("question-answering", 10, "SQuAD")
    assert result["metrics"] == {"exact_match": 100, "f1": 100}
    example = seen(documents, 10)[3]
    answer = load(run, device="cpu").answer(example.question, example.passage)
    assert (answer.answer, answer.start) == (example.answers[0].text, example.answers[0].start)
    assert answer.nbest[0] == Span(answer.answer, answer.start, answer.end, answer.probability)
    assert load_model(run).task == QuestionAnswering(length=48, no_answer=False)
    assert "--question" in (run / "report.md").read_text()


def test_the_command_line_answers(trained, tmp_path, capsys, documents):
    run, train = trained
    example = seen(documents, 10)[2]
    asked = ["predict", "--model", str(run), "--question", example.question, "--passage", example.passage]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["id", "question", "answer", "start", "end", "probability", "nbest"]
    assert list(found["nbest"][0]) == ["answer", "start", "end", "probability"]
    assert found["answer"] == example.answers[0].text
    assert main(asked) == 0
    assert capsys.readouterr().out == f"{found['answer']}\t{found['probability']:.3f}\t{example.question}\n"

    bare = json.loads(train.read_text())
    for paragraph in bare["data"][0]["paragraphs"]:
        for one in paragraph["qas"]:
            del one["answers"]
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    out = tmp_path / "predicted.json"
    assert main(["predict", "--model", str(run), "--data", str(tmp_path / "bare.json"), "--out", str(out)]) == 0
    expected = {one.id: one.answers[0].text for one in seen(documents, 10)}
    assert json.loads(out.read_text()) == expected
    nbest = json.loads((tmp_path / "predicted.json.nbest.json").read_text())
    assert {id: spans[0]["answer"] for id, spans in nbest.items()} == expected
    assert sum(span["probability"] for span in nbest["0"]) == pytest.approx(1)

    assert main(["evaluate", "--model", str(run), "--data", str(train), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result.keys() >= {"task", "metrics", "intervals", "examples", "seconds", "scorer"}
    assert result["metrics"]["f1"] == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--question", "who?"], "--question and --passage must be given together"),
        (
            ["a text", "--question", "who?", "--passage", "x"],
            "give exactly one of: TEXT, --question with --passage, --data FILE",
        ),
        (["--question", "who?", "--passage", " "], "the question or the passage is empty; give both"),
        (["--question", "who?", "--passage", "x", "--text-b", "y"], "--text-b has no effect without TEXT"),
        (
            ["--question", "who?", "--passage", "x", "--columns", "text=0"],
            "--columns has no effect without --data",
        ),
        (["a text"], "for question answering; query it with unmask predict --model MODEL --question"),
    ],
)
def test_errors_of_the_command_line(trained, capsys, options, message):
    assert main(["predict", "--model", str(trained[0]), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_truncated_question_is_reported(trained, capsys):
    long = "the dog " * 10
    assert main(["predict", "--model", str(trained[0]), "--question", long, "--passage", "the cat"]) == 0
    assert capsys.readouterr().err == "questions truncated to 8 tokens: 1\n"


def test_random_weights_take_the_vocabulary_of_a_run(trained, recipe_file):
    from_run = load_model(f"random:{recipe_file}", tokenizer=trained[0])
    assert from_run.tokenizer.sha256 == load_model(trained[0]).tokenizer.sha256


def test_other_models_answer_no_questions(recipe_file, tokenizer_directory):
    model = load_model(f"random:{recipe_file}", tokenizer=tokenizer_directory)
    with pytest.raises(
        UserError,
        match=r"this model was not fine-tuned for question answering; fine-tune it: unmask.finetune..question",
    ):
        Predictor(model, CPU).answer("who?", "the dog")


def test_repaired_and_left_out_examples_are_reported(
    trained, documents, tmp_path, capsys, recipe_file, tokenizer_directory
):
    run, _ = trained
    examples = seen(documents, 12)
    wrong = [msgspec.structs.replace(one, answers=(Answer(one.answers[0].text, 0),)) for one in examples[:2]]
    train = squad(tmp_path / "train.json", [*wrong, *examples[2:]])
    tune(recipe_file, tokenizer_directory, train, tmp_path / "run", "budget.steps=1", "task.length=24", dev=[train])
    output = capsys.readouterr().err
    assert "were moved to their nearest occurrence: 2 of 12 (the first: " in output
    assert output.count("answers that are not at their offset") == 2, "of the training file, and of the dev file"
    assert re.search(
        r"^windows left out of the loss because they do not contain the answer: \d+$", output, re.MULTILINE
    )
    assert main(["evaluate", "--model", str(run), "--data", str(train)]) == 0
    output = capsys.readouterr()
    assert "were moved to their nearest occurrence: 2 of 12 (the first: " in output.err
    assert "by the rules of SQuAD" in output.out


def test_a_threshold_is_found_on_training_passages_set_aside(
    recipe_file, tokenizer_directory, documents, tmp_path, capsys
):
    examples = seen(documents, 40)
    examples[1::2] = [Question(one.id, "poem", one.passage, impossible=True) for one in examples[1::2]]
    train, dev = squad(tmp_path / "train.json", examples), squad(tmp_path / "dev.json", seen(documents[40:], 5))
    common = ("budget.steps=20", "optimizer.learning_rate=3e-3", "batch.sequences=16", "task.length=48")
    model = tune(recipe_file, tokenizer_directory, train, tmp_path / "run", *common, dev=[dev])
    output = capsys.readouterr().err
    task = load_model(model).task
    assert task.no_answer is True
    assert task.threshold is not None
    assert re.search(r"tuned on 4 training examples set aside for it: threshold -?[\d.]+", output)
    # the finished model's answers to the examples set aside give the same threshold again
    _, aside = hold_out(QuestionAnswering(no_answer=True), examples, HOLD_OUT_SEED)
    pipeline = load(model, device="cpu")
    assert best_threshold(aside, pipeline.run(aside)) == pytest.approx(task.threshold, abs=1e-4)
    assert main(["evaluate", "--model", str(model), "--data", str(train), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    mean = sum(scores["f1"] for scores in result["by_kind"].values()) / 2
    assert result["metrics"]["f1"] == pytest.approx(mean), "half of the questions are of each kind"
    assert main(["evaluate", "--model", str(model), "--data", str(train)]) == 0
    assert "  unanswerable               exact_match " in capsys.readouterr().out
    given = tune(recipe_file, tokenizer_directory, train, tmp_path / "given", *common, "task.threshold=1.5", dev=[dev])
    assert load_model(given).task.threshold == 1.5
    assert "set aside" not in capsys.readouterr().err
