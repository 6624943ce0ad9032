"""docs/dialogues.md: its commands and blocks run, and models that have learned its examples answer them rightly."""

import json
import re
import shlex
from pathlib import Path

import pytest

from unmask.cli.main import main
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides, write

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "dialogues.md").read_text(encoding="utf8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHELL = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
PASSAGE = re.search(r'^P="(.*)"$', SHELL, re.MULTILINE)[1]
COMMANDS = [shlex.split(line.replace("$P", PASSAGE))[1:] for line in SHELL.splitlines() if line.startswith("unmask ")]
TURNS = [
    ("Who designed the tower?", "Ada Bell"),
    ("When was it built?", "1901"),
    ("What else did she build?", "a bridge near the sea"),
]
TOWER = [["The tower", ["The tower was designed by Ada Bell.", " It is 40 m high."]]]
WOMAN = [["Ada Bell", ["Ada Bell was an architect.", " She was born in Leeds."]]]


def commands(verb, name):
    """Return the commands of the page with a verb that name a task or a model."""
    return [command for command in COMMANDS if command[0] == verb and name in command]


def quac():
    """The dialogue of the page, and one that has its last question after another turn, where it has no answer."""

    def turn(name, question, answer):
        span = {"text": answer, "answer_start": f"{PASSAGE} CANNOTANSWER".index(answer)}
        more = {"yesno": "x", "followup": "m", "answers": [span], "orig_answer": span}
        return {"id": f"{name}_q#{question}", "question": question, **more}

    first = [turn("a", *pair) for pair in TURNS]
    second = [turn("b", *TURNS[0]), turn("b", TURNS[2][0], "CANNOTANSWER")]
    paragraphs = [
        {"id": name, "context": f"{PASSAGE} CANNOTANSWER", "qas": turns}
        for name, turns in (("a", first), ("b", second))
    ]
    return {"data": [{"title": "t", "paragraphs": paragraphs}]}


def coqa():
    """One story with a question."""
    span = {"span_start": 0, "span_end": 35, "span_text": PASSAGE[:35]}
    answers = [{"input_text": "Ada Bell", "turn_id": 1, **span}]
    asked = [{"input_text": TURNS[0][0], "turn_id": 1}]
    return {"data": [{"id": "s", "source": "cnn", "story": PASSAGE, "questions": asked, "answers": answers}]}


def hotpotqa():
    """The question of the page, and the same about other paragraphs, of which the second decides."""
    question, other = "Where was the architect of the tower born?", "Bo Orr"
    people = [[other, [f"{other} was an architect.", " He was born in York."]]]
    made = [(TOWER + WOMAN, "Leeds", "Ada Bell"), (TOWER + people, "York", other)]
    return [
        {"_id": f"q{number}", "question": question, "answer": answer, "type": "bridge", "context": context}
        | {"supporting_facts": [["The tower", 0], [title, 1]]}
        for number, (context, answer, title) in enumerate(made)
    ]


def race(folder):
    """The question of the page as an article in RACE's format."""
    folder.mkdir(parents=True)
    record = {"id": "high1.txt", "article": "Eve lives in Rome.", "options": [["In Rome.", "In Paris."]] * 2}
    record |= {"questions": ["Where does Eve live?", "Where is Eve?"], "answers": ["A", "A"]}
    (folder / "1.txt").write_text(json.dumps(record))


@pytest.fixture(scope="module")
def folder(recipe_file, tmp_path_factory):
    """A folder with the files that the page names, and a recipe for longer windows."""
    here = tmp_path_factory.mktemp("page")
    (here / "long.toml").write_text(write(read_recipe(recipe_file, parse_overrides(["encoder.positions=256"]))))
    files = {"train_v0.2": quac, "val_v0.2": quac, "coqa-train-v1.0": coqa, "coqa-dev-v1.0": coqa}
    for name, content in {**files, "hotpot_train_v1.1": hotpotqa}.items():
        (here / f"{name}.json").write_text(json.dumps(content()))
    for part in ("train", "dev"):
        race(here / "RACE" / part)
    return here


@pytest.fixture(scope="module")
def trained(fine_tuned, folder):
    """Fine-tunes the models of the page on its own examples, in the folder."""
    made = set()

    def train(kind, name, file, steps):
        if name not in made:
            sets = (f"budget.steps={steps}", "task.length=192", "task.threshold=0")
            sets = sets[:2] if kind == "multiple-choice" else sets
            fine_tuned(kind, folder / file, folder / name, *sets, recipe=folder / "long.toml")
            made.add(name)

    return train


@pytest.mark.parametrize("kind", ["quac", "coqa", "hotpotqa", "multiple-choice"])
def test_every_task_is_fine_tuned_as_the_page_says(kind, folder, tokenizer_directory, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    (command,) = commands("finetune", kind)
    assert command[2:4] == ["--model", "CHECKPOINT"]
    command[3:4] = ["random:long.toml", "--tokenizer", str(tokenizer_directory)]
    command[command.index("--out") + 1] = str(tmp_path / "run")
    dev = [] if "--dev" in command else ["--dev", command[command.index("--train") + 1], "--set", "task.threshold=0"]
    threshold = ["--set", "task.threshold=0"] * (kind == "quac")
    assert main([*command, *dev, *threshold, "--set", "budget.steps=2", "--set", "task.length=192", "--quiet"]) == 0
    assert (tmp_path / "run" / "dev.json").exists()


def test_the_dialogue_of_three_turns(trained, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    trained("quac", "my-quac", "train_v0.2.json", 80)
    asked = [command for command in commands("predict", "my-quac") if "--question" in command]
    for number, (command, (question, answer)) in enumerate(zip(asked, TURNS, strict=True)):
        history = command[command.index("--history") + 1 :] if number else []
        assert history == [text for turn in TURNS[:number] for text in turn]
        capsys.readouterr()
        assert main(command) == 0
        assert capsys.readouterr().out.startswith(f"{answer}\t"), question
    names = {"passage": PASSAGE}
    exec(compile(BLOCKS[0], "dialogues.md, a dialogue", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [f"{question} {answer} x m" for question, answer in TURNS]
    assert names["history"] == TURNS
    assert names["model"].answer(TURNS[2][0], PASSAGE, TURNS[:1]).answer == "", "the history decides"
    (evaluated,) = commands("evaluate", "my-quac")
    (predicted,) = [command for command in commands("predict", "my-quac") if "--data" in command]
    assert main(evaluated) == main(predicted) == 0
    assert Path("errors.html").exists() and len(Path("predicted.jsonl").read_text().splitlines()) == 2


def test_the_question_that_needs_two_paragraphs(trained, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    trained("hotpotqa", "my-hotpotqa", "hotpot_train_v1.1.json", 90)
    (command,) = commands("predict", "my-hotpotqa")
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("Leeds\t")
    *lines, last = BLOCKS[1].strip().splitlines()
    names = {}
    exec(compile("\n".join(["import unmask", *lines]), "dialogues.md, several passages", "exec"), names)
    support = [("The tower", 0, "The tower was designed by Ada Bell."), ("Ada Bell", 1, "She was born in Leeds.")]
    assert eval(last, names) == ("Leeds", support)


def test_choices(trained, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    trained("multiple-choice", "my-race", "RACE/train", 2)
    (command,) = commands("predict", "my-race")
    assert main(command) == 0
    assert re.match(r"[01]\t0\.\d+\tIn (Rome|Paris)\.\n", capsys.readouterr().out)
    names = {}
    *lines, last = BLOCKS[2].strip().splitlines()
    exec(compile("\n".join(["import unmask", *lines]), "dialogues.md, choices", "exec"), names)
    text, probabilities = eval(last, names)
    assert text in ("In Rome.", "In Paris.") and sum(probabilities) == pytest.approx(1)
