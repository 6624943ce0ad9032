"""HotpotQA end to end: sentences in windows, support, the threshold, the command line, official files, mistakes."""

import json

import numpy as np
import pytest

import unmask
from unmask.cli.main import main
from unmask.data.labelled.hotpotqa_file import HotpotQuestion, join_paragraphs, read_hotpotqa
from unmask.data.labelled.question_files import Answer
from unmask.metrics.question_answering import support_f1
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.tasks.answer_head import KIND, KINDS, SENTENCES, SHARE, SUPPORT
from unmask.tasks.hotpotqa import HotpotAnswered, Hotpotqa, Support
from unmask.tasks.mistakes import worst_first

PARAGRAPHS = [
    ("dog", ["the dog sees the cat .", " the dog likes the poem ."]),
    ("cat", ["the cat likes the sea .", " the cat finds the garden in the old town ."]),
]
PASSAGE, PLACES, _ = join_paragraphs(PARAGRAPHS)


def question(answer, support, span=None, name="q"):
    answers = (Answer(span, PASSAGE.index(span)),) if span else ()
    return HotpotQuestion(
        *(name, "where is the cat", PASSAGE, answers, span is None, "f.json", name),
        sentences=PLACES,
        answer=answer,
        support=tuple(support),
    )


def test_sentences_are_found_by_their_first_token(tokenizer):
    task = Hotpotqa(length=28, question=4, stride=6, answer=5, threshold=0)
    examples = [question("yes", [("cat", 0)]), question("the garden", [("dog", 0), ("cat", 1)], "the garden")]
    framed = task.frame(tokenizer, examples, (), gold=True)
    number, seen = len(framed.samples) // 2, [set(), set()]
    words = {sample.key: tokenizer.decode(sample.ids.tolist()) for sample in framed.samples}
    assert number > 2
    for index, sample in enumerate(framed.samples):
        example, positions, support = index // number, sample.positions[SENTENCES], sample.labels[SUPPORT]
        assert set(positions) <= set(sample.positions["passage"][1:])
        assert sample.labels[SHARE].sum() == pytest.approx(1 if len(positions) else 0)
        starts = [tokenizer.decode(sample.ids[at : at + 4].tolist()) for at in positions]
        seen[example] |= {(text, int(value)) for text, value in zip(starts, support, strict=True)}
        kind = KINDS[int(sample.labels[KIND][0])]
        assert kind == (("yes" if support.any() else "none") if not example else kind)
        assert ("garden" in words[sample.key] and kind == "span") or kind != "span"
    facts = [("the dog sees the", 0), ("the dog likes the", 0), ("the cat likes the", 1), ("the cat finds the", 0)]
    assert {(text, value) for text, value in seen[0] if text in dict(facts)} == set(facts)
    assert ("the dog sees the", 1) in seen[1]


def test_a_sentence_has_its_highest_logit_of_all_windows(tokenizer):
    task = Hotpotqa(length=28, question=4, stride=6, answer=5, threshold=1.5)
    framed = task.frame(tokenizer, [question("", ())], (), gold=False)
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(len(one.positions["passage"]), 7)) for one in framed.samples]
    for values in logits:
        values[:, 6] = -9.0
    gold = task.frame(tokenizer, [question("yes", [])], (), gold=True)  # for the positions of sentences
    best = {}
    for number, sample in enumerate(gold.samples):
        rows = np.searchsorted(sample.positions["passage"][1:], sample.positions[SENTENCES]) + 1
        for row, at in zip(rows, sample.positions[SENTENCES], strict=True):
            text = tokenizer.decode(sample.ids[at : at + 4].tolist())
            logits[number][row, 6] = rng.normal() * 3
            best[text] = max(best.get(text, -np.inf), logits[number][row, 6])
    (found,) = framed.read(logits)
    assert len(found.sentences) == 4
    scores = {(one.title, one.sentence): one.probability for one in found.sentences}
    assert scores["dog", 0] == pytest.approx(1 / (1 + np.exp(-best["the dog sees the"])))
    assert [one.probability for one in found.sentences] == sorted(scores.values(), reverse=True)
    chosen = {fact for fact, probability in scores.items() if probability > 1 / (1 + np.exp(-1.5))}
    assert {(one.title, one.sentence) for one in found.support} == chosen
    texts = dict(PARAGRAPHS)
    for one in found.sentences:
        assert found.passage[one.start : one.end] == texts[one.title][one.sentence].strip()


def answered(probabilities, answer="yes", probability=0.9):
    sentences = tuple(
        Support(one.title, one.number, one.start, one.end, p) for one, p in zip(PLACES, probabilities, strict=True)
    )
    return HotpotAnswered(
        **{"id": "q", "question": "?", "answer": answer, "start": None, "end": None, "probability": probability},
        **{"kind": "yes", "kinds": {}, "nbest": (), "passage": PASSAGE, "sentences": sentences},
        support=tuple(one for one in sentences if one.probability > 0.5),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_has_the_best_support(seed):
    rng = np.random.default_rng(seed)
    examples, found = [], []
    for _ in range(6):
        truth = rng.random(4) < 0.5
        examples.append(question("yes", [one.fact for one, right in zip(PLACES, truth, strict=True) if right]))
        found.append(answered((1 / (1 + np.exp(-rng.normal(truth * 2.0 - 2, 1.0)))).tolist()))

    def total(threshold):
        cut = 1 / (1 + np.exp(-threshold))
        return sum(
            support_f1(one.support, [(it.title, it.sentence) for it in guess.sentences if it.probability > cut])
            for one, guess in zip(examples, found, strict=True)
        )

    task = Hotpotqa().tune(examples, found)
    assert total(task.threshold) == pytest.approx(max(map(total, np.arange(-8, 8, 0.02))))
    assert (Hotpotqa().tunes, task.tunes) == (True, False)


def test_questions_of_a_program():
    task = Hotpotqa()
    titled = task.pose("where?", {"Rome": "Rome is a city. Eve lives there.", "Eve": "Eve is a doctor."})
    assert titled.passage == "Rome: Rome is a city. Eve lives there.\nEve: Eve is a doctor."
    assert [one.fact for one in titled.sentences] == [("Rome", 0), ("Rome", 1), ("Eve", 0)]
    plain = task.pose("where?", ["Rome is a city.", "Eve is a doctor."])
    assert (plain.passage, plain.sentences[1].fact) == ("Rome is a city.\nEve is a doctor.", ("2", 0))
    assert task.pose("where?", "Rome is a city.").passage == "Rome is a city."
    for passages, message in (([], "there is no passage"), (["a", " "], "the question or the passage is empty")):
        with pytest.raises(UserError, match=message):
            task.pose("where?", passages)
    with pytest.raises(UserError, match="models of hotpotqa read no history"):
        task.pose("where?", ["a"], [("who?", "Eve")])
    with pytest.raises(UserError, match="none of the 1 answers can be learned"):
        task.label_names([HotpotQuestion("q", "?", "a", file="f")])


NAMES = ["dog", "cat", "teacher", "doctor", "poem", "bridge"]


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Twelve questions: one paragraph tells who sees whom, the other where that one is; some ask for yes or no."""
    made = []
    for number in range(12):
        first, second, third = (NAMES[(number + step) % 6] for step in (0, 1, 3))
        place, other = ("sea", "tree") if number % 2 else ("tree", "sea")
        context = [
            [first, [f"the {first} sees the {second} .", f" the {first} likes the rain ."]],
            ["town", [f"the {second} is near the {place} .", f" the {third} is near the {other} ."]],
        ]
        facts = [[first, 0], ["town", 0]]
        record = {"_id": f"q{number}", "context": context, "supporting_facts": facts}
        if number % 3:
            made.append(record | {"question": f"where is what the {first} sees", "answer": place, "type": "bridge"})
        else:
            closed = "yes" if place == "sea" else "no"
            made.append(record | {"question": f"the {first} sees near the sea", "answer": closed, "type": "comparison"})
    path = tmp_path_factory.mktemp("hotpotqa") / "train.json"
    path.write_text(json.dumps(made))
    return path


@pytest.fixture(scope="module")
def trained(fine_tuned, questions, tmp_path_factory):
    sets = ("budget.steps=100", "task.length=64", "task.question=16", "task.threshold=0")
    return fine_tuned("hotpotqa", questions, tmp_path_factory.mktemp("hotpotqa") / "run", *sets)


def test_questions_are_memorized(trained, questions):
    result = json.loads((trained / "dev.json").read_text())
    assert (result["task"], result["scorer"], result["examples"]) == ("hotpotqa", "HotpotQA", 12)
    assert result["metrics"]["joint_f1"] > 80
    assert list(result["by_type"]) == ["bridge", "comparison"]
    assert load_model(trained).task.threshold == 0
    example = read_hotpotqa([questions])[1]
    model = unmask.load(trained, device="cpu")
    (known,) = model.run([example])
    paragraphs = json.loads(questions.read_text())[1]["context"]
    found = model.answer(example.question, {title: "".join(texts) for title, texts in paragraphs})
    assert (found.answer, found.support) == (known.answer, known.support)


def test_the_command_line(trained, questions, tmp_path, capsys):
    out, page = tmp_path / "predicted.json", tmp_path / "errors.html"
    assert main(["predict", "--model", str(trained), "--data", str(questions), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert (list(found), list(found["answer"])[:2], len(found["sp"])) == (["answer", "sp"], ["q0", "q1"], 12)
    assert all(isinstance(title, str) and isinstance(number, int) for title, number in found["sp"]["q1"])
    assert main(["evaluate", "--model", str(trained), "--data", str(questions), "--errors", str(page)]) == 0
    assert "joint_exact_match" in capsys.readouterr().out
    assert page.exists()
    asked = ["predict", "--model", str(trained), "--question", "where is what the dog sees"]
    passages = ["--passage", "the dog sees the cat .", "the cat is near the sea ."]
    assert main([*asked, *passages, "--title", "dog", "town", "--json"]) == 0
    assert {one["title"] for one in json.loads(capsys.readouterr().out)["sentences"]} == {"dog", "town"}
    assert main([*asked, *passages, "--title", "dog"]) == 2
    assert "1 distinct titles of 2 passages" in capsys.readouterr().err


def test_mistakes_are_wrong_answers_and_wrong_support():
    examples = [question("yes", [("cat", 0)])] * 3
    right, support, answer = [0.1, 0.1, 0.9, 0.1], [0.9, 0.1, 0.9, 0.1], [0.1, 0.1, 0.9, 0.1]
    found = [answered(right), answered(support), answered(answer, "no", 0.95)]
    worst, second = worst_first(Hotpotqa().mistakes(examples, found, ()))
    assert (worst.gold, worst.predicted) == ("yes (cat 0)", "no (cat 0)")
    assert second.predicted == "yes (cat 0, dog 0)"
