"""CoQA end to end: kinds of answers, a history that decides, the command line, official files, mistakes."""

import json

import msgspec
import pytest

import unmask
from unmask.cli.main import main
from unmask.data.labelled.dialogue_files import CoqaQuestion, Turn, read_coqa
from unmask.data.labelled.question_files import Answer
from unmask.support.errors import UserError
from unmask.tasks.answer_head import KIND, KINDS, KindAnswered
from unmask.tasks.dialogues import Coqa
from unmask.tasks.passage_windows import LABEL

PASSAGE = "the dog sees the cat near the sea . the poem follows the river . the cat finds the garden"


def question(text, kind, span=None, *turns, references=("x",)):
    answers = (Answer(span, PASSAGE.index(span)),) if span else ()
    return CoqaQuestion(
        *("q 1", text, PASSAGE, answers, kind == "unknown", "f.json", "place"),
        dialogue="q",
        history=turns,
        turn=1,
        references=references,
        kind=kind,
    )


def test_windows_have_the_kind_of_what_they_contain(tokenizer):
    task = Coqa(length=18, question=4, stride=6, answer=4)
    examples = [question("who", "span", "the dog"), question("the", "yes", "the garden"), question("a", "unknown")]
    kinds = []
    for example in examples:
        samples = task.frame(tokenizer, [example], (), gold=True).samples
        kinds.append([KINDS[int(sample.labels[KIND][0])] for sample in samples])
        inside = [bool(sample.labels[LABEL].any()) for sample in samples]
        assert inside == [kind in ("span", "yes") for kind in kinds[-1]]
    first, second, third = kinds
    assert first == ["span", *["none"] * (len(first) - 1)]
    assert second == [*["none"] * (len(second) - 1), "yes"]
    assert third == ["none"] * len(third)
    assert min(map(len, kinds)) > 1


def test_answers_that_occur_nowhere_are_not_trained_on(tokenizer):
    examples = [question("who", "span"), question("who", "span", "the dog")]
    framed = Coqa(length=64).frame(tokenizer, examples, (), gold=True)
    assert len(framed.samples) == 1
    assert framed.notes == ("questions left out of the loss because no gold answer occurs in the passage: 1",)
    with pytest.raises(UserError, match=r"f\.json: none of the 1 questions has an answer"):
        Coqa().label_names(examples[:1])


NAMES = ["dog", "cat", "teacher", "doctor", "poem", "bridge"]


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Eight stories; the second answer depends on the first one, which is in the history alone."""
    data = []
    for number in range(8):
        first, second = NAMES[number % 6], NAMES[(number * 5 + 1) % 6]
        place, other = ("sea", "tree") if number % 2 else ("tree", "sea")
        text = f"the {first} is near the {place} . the {second} is near the {other} ."
        who, where = (first, place) if number % 3 else (second, other)

        def answer(free, rationale, text=text):
            start = text.find(rationale) if rationale else -1
            return {
                "input_text": free,
                "span_text": rationale,
                "span_start": start,
                "span_end": start + len(rationale) if rationale else -1,
            }

        rationale = f"the {who} is near the {where}"
        closed = "yes" if where == "sea" else "no"
        answers = [answer(who, rationale), answer(closed, rationale), answer("unknown", "")]
        asked = ["who is near", "the sea", "after the rain"]
        data.append(
            {
                "id": f"s{number}",
                "source": "cnn" if number % 2 else "reddit",
                "story": text,
                "questions": [{"input_text": one, "turn_id": n} for n, one in enumerate(asked, 1)],
                "answers": [{**one, "turn_id": n} for n, one in enumerate(answers, 1)],
            }
        )
    path = tmp_path_factory.mktemp("coqa") / "train.json"
    path.write_text(json.dumps({"data": data}))
    return path


@pytest.fixture(scope="module")
def trained(fine_tuned, stories, tmp_path_factory):
    sets = ("budget.steps=95", "task.length=64", "task.history.turns=1")
    return fine_tuned("coqa", stories, tmp_path_factory.mktemp("coqa") / "run", *sets)


def test_stories_are_memorized(trained, stories):
    result = json.loads((trained / "dev.json").read_text())
    assert (result["task"], result["scorer"], result["examples"]) == ("coqa", "CoQA", 24)
    assert result["metrics"]["f1"] > 80
    assert list(result["by_domain"]) == ["reddit", "news", "in_domain", "out_domain"]
    model, examples = unmask.load(trained, device="cpu"), read_coqa([stories])
    answers = model.run(examples)
    for example, known in zip(examples[:3], answers, strict=False):
        history = [(turn.question, turn.answer) for turn in example.history]
        assert model.answer(example.question, example.passage, history).answer == known.answer


def test_the_command_line(trained, stories, tmp_path, capsys):
    out, page = tmp_path / "predicted.json", tmp_path / "errors.html"
    assert main(["predict", "--model", str(trained), "--data", str(stories), "--out", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [list(row) for row in rows] == [["id", "turn_id", "answer"]] * 24
    assert (rows[4]["id"], rows[4]["turn_id"]) == ("s1", 2)
    assert main(["evaluate", "--model", str(trained), "--data", str(stories), "--errors", str(page)]) == 0
    assert "  in_domain " in capsys.readouterr().out
    assert page.exists()
    asked = ["predict", "--model", str(trained), "--question", "the sea", "--passage", "the dog is near the sea ."]
    assert main([*asked, "--history", "who is near", "dog"]) == 0
    assert capsys.readouterr().out.count("\t") == 2


def test_mistakes_are_answers_that_equal_no_gold_answer():
    examples = [question("who", "span", "the dog", Turn("what", "the sea"), references=("dog", "a dog"))] * 2
    base = {"id": "q 1", "question": "who", "start": None, "end": None, "kind": "yes", "kinds": {}, "nbest": ()}
    found = [KindAnswered(**base, answer="yes", probability=0.6), KindAnswered(**base, answer="Dog", probability=0.9)]
    (mistake,) = Coqa().mistakes(examples, found, ())
    assert (mistake.gold, mistake.predicted, mistake.passages[0].text) == ("dog | a dog", "yes", "what — the sea")
    with pytest.raises(UserError, match="predictions of coqa cannot serve as labels"):
        Coqa().labelled(examples, found)
    assert msgspec.json.decode(msgspec.json.encode(found[0]))["kind"] == "yes"
