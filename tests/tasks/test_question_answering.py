"""Answers: settings, the search over windows, the threshold, the head's loss, and a model that learns to answer."""

import json
import re

import msgspec
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from unmask.batches.batch import collate
from unmask.cli.main import main
from unmask.errors import UserError
from unmask.finetuning.examples import HOLD_OUT_SEED
from unmask.finetuning.finetune import finetune
from unmask.inference.predictor import load
from unmask.labelled.squad_file import Answer, Question
from unmask.metrics import question_answering as metrics
from unmask.model import load_model
from unmask.objectives.learner import Learner
from unmask.recipe import read_recipe
from unmask.settings import parse_overrides, write
from unmask.tasks.mistake import Mark
from unmask.tasks.question_answering import (
    Answered,
    QuestionAnswering,
    QuestionAnsweringHead,
    Span,
    best_spans,
    best_threshold,
)
from unmask.tokenizers.train import train_tokenizer
from unmask.tokenizers.unigram import train_unigram
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")


def question(id, text, passage, answer=None, **more):
    answers = (Answer(answer, passage.index(answer)),) if answer else ()
    return Question(id, text, passage, answers, not answer, "f.json", f"question {id}", **more)


# settings


@pytest.mark.parametrize(
    ("length", "stride", "limit", "answer"), [(384, 128, 64, 30), (512, 128, 64, 30), (128, 42, 21, 10), (12, 4, 2, 1)]
)
def test_short_windows_have_short_strides_questions_and_answers(length, stride, limit, answer):
    task = QuestionAnswering(length=length)
    assert (task.stride, task.question, task.answer) == (stride, limit, answer)
    assert QuestionAnswering(length=length, stride=3).stride == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 128, "question": 64, "stride": 52}, "windows with 61 tokens of a passage, 52 apart, do not hold"),
        ({"length": 64, "stride": 60}, "do not hold every answer of 5 tokens: enlarge length, or take smaller stride"),
        ({"length": 3}, "windows with -1 tokens"),
        ({"stride": -1}, "stride must be at least 1"),
        ({"answer": -2}, "answer must be at least 1"),
        ({"best": 0}, "best must be at least 1"),
    ],
)
def test_settings_that_would_lose_answers_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        QuestionAnswering(**values)


def test_no_answer_is_allowed_where_training_has_such_questions():
    some, none = question("a", "a?", "b c", "b"), question("b", "a?", "b c")
    task = QuestionAnswering()
    assert task.settle([some], ()).no_answer is False
    assert task.settle([some, none], ()).no_answer is True
    assert QuestionAnswering(no_answer=True).settle([some], ()).no_answer is True
    with pytest.raises(UserError, match=r"f\.json: question b has no answer, but task\.no_answer is false"):
        QuestionAnswering(no_answer=False).settle([some, none], ())
    with pytest.raises(UserError, match=r"task\.threshold has no effect: every question has an answer"):
        QuestionAnswering(threshold=0.5).settle([some], ())


def test_training_needs_answers_that_stand_in_their_passages():
    task = QuestionAnswering()
    some = question("a", "a?", "b c", "b")
    nowhere = Question("b", "a?", "b c", (Answer("x", None),), False, "f.json", "question b")
    with pytest.raises(UserError, match=r"f\.json: question b: the answer 'x' occurs nowhere in its passage; mend or"):
        task.label_names([some, nowhere])
    with pytest.raises(UserError, match="none of the 1 questions has an answer"):
        task.label_names([question("b", "a?", "b c")])
    one_of_two = Question("c", "a?", "b c", (Answer("x", None), Answer("b", 0)))
    assert task.label_names([some, one_of_two]) == ()


def test_a_tenth_of_the_passages_is_held_out():
    examples = [question(f"{i}-{j}", "a?", f"b {i}", "b") for i in range(40) for j in range(1 + i % 3)]
    task = QuestionAnswering(no_answer=True)
    train, held = task.hold_out(examples, seed=0)
    assert sorted(one.id for one in train + held) == sorted(one.id for one in examples)
    assert len({one.passage for one in held}) == 4
    assert not {one.passage for one in held} & {one.passage for one in train}
    assert task.hold_out(examples, seed=0) == (train, held)
    assert task.hold_out(examples, seed=1) != (train, held)
    with pytest.raises(UserError, match=r"3 passages are too few to hold a tenth out; pass --dev FILE, and --set task"):
        task.hold_out(examples[:5], seed=0)
    assert task.tunes
    for other in (QuestionAnswering(no_answer=False), QuestionAnswering(no_answer=True, threshold=0.0)):
        assert not other.tunes


def test_what_nothing_can_be_learnt_from_is_said(tokenizer):
    task = QuestionAnswering(length=64, no_answer=False)
    framed = task.frame(tokenizer, [question("a", "a?", "the dog")], (), gold=True)
    assert framed.samples == []
    (note,) = framed.notes
    assert "they have no answer, and the model always gives one: 1" in note


def test_columns_and_formats_are_for_rows(tmp_path):
    for idle in ({"columns": {"text": "0"}}, {"columns": {}, "kind": "tsv"}):
        with pytest.raises(UserError, match="--columns and --format have no effect"):
            QuestionAnswering().read([tmp_path], **idle)


# search


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 200), st.integers(0, 10**6))
@settings(deadline=None)
def test_the_best_spans_are_found(tokens, longest, number, seed):
    starts, ends = np.random.default_rng(seed).normal(size=(2, tokens)).astype(np.float32)
    every = [(starts[i] + ends[j], i, j) for i in range(tokens) for j in range(i, min(tokens, i + longest))]
    expected = sorted(every, reverse=True)[:number]
    assert sorted(best_spans(starts, ends, longest, number), reverse=True) == expected


def test_no_tokens_no_spans():
    assert best_spans(np.zeros(0), np.zeros(0), 5, 5) == []


def brute_force(task, example, windows, logits):
    """All spans of all windows, the best score of each text first."""
    scores = {}
    for window, values in zip(windows, logits, strict=True):
        values = values[task.no_answer :]
        for i in range(len(values)):
            for j in range(i, min(len(values), i + task.answer)):
                text = example.passage[window[i][0] : window[j][1]]
                scores[text] = max(scores.get(text, -np.inf), float(values[i, 0] + values[j, 1]))
    return scores


@pytest.mark.parametrize("no_answer", [False, True])
def test_windows_are_compared_by_their_logits(tokenizer, no_answer):
    task = QuestionAnswering(length=24, question=4, stride=6, answer=5, no_answer=no_answer, best=7)
    passage = (
        "the dog sees the cat near the sea . the poem follows the river , the cat finds the garden in the old town"
    )
    examples = [question("a", "dog", passage), question("b", "the cat", passage[:40])]
    framed = task.frame(tokenizer, examples, (), gold=False)
    rng = np.random.default_rng(0)
    logits = [rng.normal(size=(len(it.positions["passage"]), 2)).astype(np.float32) for it in framed.samples]
    found = framed.read(logits)
    assert [(one.id, one.question) for one in found] == [("a", "dog"), ("b", "the cat")]
    taken = 0
    for example, answered in zip(examples, found, strict=True):
        words = len(tokenizer.encode(example.question)) + 2
        offsets, number = tokenizer.encode_offsets(example.passage)[1], 0
        windows, begin = [], 0
        while True:
            windows.append(offsets[begin : begin + 24 - words - 1])
            number += 1
            if begin + 24 - words - 1 >= len(offsets):
                break
            begin += 6
        own = logits[taken : taken + number]
        taken += number
        scores = brute_force(task, example, windows, own)
        best = sorted(scores, key=lambda text: -scores[text])[:7]
        spans = [span for span in answered.nbest if span.answer]
        assert [span.answer for span in spans] == best
        assert all(example.passage[span.start : span.end] == span.answer for span in spans)
        null = min(float(values[0].sum()) for values in own)
        expected = torch.tensor([scores[text] for text in best] + [null] * no_answer, dtype=torch.float64).softmax(0)
        probabilities = {span.answer: span.probability for span in answered.nbest}
        assert [probabilities[text] for text in best + [""] * no_answer] == pytest.approx(expected.tolist())
        assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
        assert answered.answer == answered.nbest[0].answer
        assert answered.margin == pytest.approx(null - scores[best[0]] if no_answer else 0)
    assert taken == len(logits)


@pytest.mark.parametrize(("threshold", "answer"), [(None, ""), (0.0, ""), (2.9, ""), (3.1, "dog")])
def test_no_answer_must_exceed_the_best_by_the_threshold(tokenizer, threshold, answer):
    task = QuestionAnswering(length=64, no_answer=True, threshold=threshold)
    framed = task.frame(tokenizer, [question("a", "the", "the dog sees the cat")], (), gold=False)
    values = np.zeros((len(framed.samples[0].positions["passage"]), 2), np.float32)
    place = tokenizer.encode_offsets("the dog sees the cat")[1].index((4, 7))
    values[1 + place], values[0] = 2.0, 3.5  # 4 for "dog", 7 for no answer
    (found,) = framed.read([values])
    assert found.answer == answer
    assert (found.start, found.end) == ((4, 7) if answer else (None, None))
    assert found.margin == pytest.approx(3)
    assert found.probability == next(span.probability for span in found.nbest if span.answer == answer)


def test_no_answer_begins_or_ends_with_a_space(documents):
    """In a byte-level vocabulary spaces may be pieces of their own."""
    tokenizer, passage = train_tokenizer("bpe", documents, size=350, lowercase=False), "  dog  dog\xa0cat\u3000 "
    task = QuestionAnswering(length=64, answer=30)
    framed = task.frame(tokenizer, [question("a", "the", passage)], (), gold=False)
    rng = np.random.default_rng(0)
    (found,) = framed.read([rng.normal(size=(len(framed.samples[0].positions["passage"]), 2)).astype(np.float32)])
    said = [span.answer for span in found.nbest]
    assert {"dog", "cat", "dog  dog"} < set(said)
    assert all(text == text.strip() for text in said)
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("no_answer", [False, True])
def test_a_passage_without_tokens_has_no_answer(tokenizer, no_answer):
    task = QuestionAnswering(length=64, no_answer=no_answer)
    framed = task.frame(tokenizer, [Question("a", "dog", "\u200b\u0301")], (), gold=False)
    (sample,) = framed.samples
    (found,) = framed.read([np.zeros((len(sample.positions["passage"]), 2), np.float32)])
    assert (found.answer, found.start, found.end) == ("", None, None)


# threshold


def answered(text, margin):
    """What a model says whose best answer is this, with this margin of "no answer"."""
    none = 1 / (1 + np.exp(-margin))
    return Answered("q", "a?", text, 0, 1, 1 - none, (Span(text, 0, 1, 1 - none), Span("", None, None, none)))


def total_f1(examples, predictions, threshold):
    said = ["" if one.margin > threshold else one.nbest[0].answer for one in predictions]
    gold = [tuple(answer.text for answer in one.answers) for one in examples]
    return metrics.example_scores(gold, said, "SQuAD")[:, 1].sum()


@pytest.mark.parametrize("seed", range(20))
def test_the_threshold_is_the_best_one(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 40))
    examples, predictions = [], []
    for _ in range(number):
        gold = str(rng.choice(["x", "x y", "z"])) if rng.random() < 0.6 else None
        examples.append(question("a", "a?", "x y z", gold))
        margin = float(np.round(rng.normal(loc=-1 if gold else 1), 1))  # with ties
        predictions.append(answered(str(rng.choice(["x", "y", "z"])), margin))
    threshold = best_threshold(examples, predictions)
    tried = [total_f1(examples, predictions, value) for value in np.arange(-8, 8, 0.05) + 0.025]
    assert total_f1(examples, predictions, threshold) == pytest.approx(max(tried))
    task = QuestionAnswering(no_answer=True).tune(examples, predictions)
    assert (task.threshold, task.no_answer) == (threshold, True)


def test_of_equally_good_thresholds_the_nearest_to_0_is_taken():
    examples = [question("a", "a?", "x y", "x"), question("b", "a?", "x y")]
    assert best_threshold(examples, [answered("x", -3.0), answered("x", 2.0)]) == pytest.approx(-0.5)
    assert best_threshold(examples[:1], [answered("x", -3.0)]) == pytest.approx(-2.0)
    assert best_threshold(examples[1:], [answered("x", -3.0)]) == pytest.approx(-4.0)


# head


def windows_of(tokenizer, no_answer):
    text = "the dog sees the cat near the sea . the poem follows the river . the cat finds the garden"
    examples = [
        question("a", "who sees", text, "dog"),
        question("b", "a", text, "the cat near"),
        question("c", "the", text[:30], "cat"),
    ]
    task = QuestionAnswering(length=24, question=4, stride=6, answer=5, no_answer=no_answer)
    return task.frame(tokenizer, [*examples, question("d", "b", text)] if no_answer else examples, (), gold=True)


@pytest.mark.parametrize("no_answer", [False, True])
def test_the_loss_is_that_of_each_window_alone(tokenizer, recipe, no_answer):
    encoder, head = recipe.encoder.build(tokenizer.size), QuestionAnsweringHead(recipe.encoder.head)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    learner = Learner(encoder, {"question_answering": head}).eval()
    samples = [learner.prepare(sample) for sample in windows_of(tokenizer, no_answer).samples]
    assert len({len(sample) for sample in samples}) > 1
    assert any(not sample.labels["question_answering"].any() for sample in samples) == no_answer
    expected, right = 0.0, 0
    for sample in samples:
        last = encoder(collate([sample]).tokens).last
        logits = (last @ head.out.weight.T + head.out.bias)[sample.positions["passage"]]
        gold = np.searchsorted(sample.positions["passage"], sample.labels["question_answering"])
        losses = [cross_entropy(logits[None, :, i], torch.tensor([gold[i]])) for i in (0, 1)]
        expected += float(sum(losses).detach()) / 2
        right += logits.argmax(0).tolist() == gold.tolist()
    batch = collate(samples)
    part = learner(batch)["question_answering"]
    assert batch.counts == {"question_answering": len(samples)}
    assert float(part.sum.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(part.metrics["accuracy"]) == right
    assert not part.metrics["accuracy"].requires_grad
    assert part.sum.dtype == learner.bfloat16()(batch)["question_answering"].sum.dtype == torch.float32


# directories of transformers; BERT's and RoBERTa's are in parity/test_question_answering.py

BODY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NARROW = {**BODY, "embedding_size": 16, "max_position_embeddings": 64}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}
THEIRS = {"Albert": NARROW, "Electra": NARROW, "DistilBert": DISTIL}
LONG = "The dog sees the cat near the sea. The poem follows the river, and the cat finds the garden. " * 4
ASKED = [
    ("the dog sees", LONG),
    ("letter?", "The  doctor\topens ``the naïve letter'' under a tree."),
    ("who", "The teacher paints Ångström's bridge before noon."),
]


def spans_of_theirs(theirs, reader, asked, passage, task):
    """The texts that may be an answer, the best first, with P_start * P_end but for a factor; and how many windows."""
    words = reader(asked, add_special_tokens=False)["input_ids"]
    assert len(words) <= task.question, "questions are not cut there"
    room = task.length - 3 - len(words)
    inputs = reader(
        *(asked, passage),
        truncation="only_second",
        max_length=task.length,
        stride=room - task.stride,  # theirs is what two windows share
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found = {}
    for number, places in enumerate(inputs["offset_mapping"]):
        fed = {name: torch.tensor([inputs[name][number]]) for name in reader.model_input_names}
        with torch.no_grad():
            out = theirs(**fed)
        starts, ends = (logits[0].double().exp() for logits in (out.start_logits, out.end_logits))
        inside = [place for place, part in enumerate(inputs.sequence_ids(number)) if part == 1]
        for first in inside:
            for last in inside:
                if first <= last < first + task.answer:
                    text = passage[places[first][0] : places[last][1]]
                    found[text] = max(found.get(text, 0), float(starts[first] * ends[last]))
    return sorted(((chance, text) for text, chance in found.items()), reverse=True), len(inputs["offset_mapping"])


@pytest.mark.parametrize("family", THEIRS)
def test_a_directory_of_theirs_answers_as_there(family, tokenizer, documents, tmp_path):
    """With their class of tokenizer, as it saves itself."""
    words = train_unigram(documents, size=200) if family == "Albert" else tokenizer
    words.save(tmp_path / "words")
    reader = getattr(transformers, f"{family}Tokenizer").from_pretrained(tmp_path / "words", model_max_length=64)
    kind = getattr(transformers, f"{family}ForQuestionAnswering")
    theirs = kind(kind.config_class(vocab_size=words.size, **THEIRS[family])).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # so that no two answers are nearly as good
            parameter.mul_(4) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter), alpha=0.2)
    for one in (theirs, reader):
        one.save_pretrained(tmp_path / "theirs")
    pipeline, windows = load(tmp_path / "theirs", device="cpu"), []
    assert pipeline.task == QuestionAnswering(length=64)
    for asked, passage in ASKED:
        expected, number = spans_of_theirs(theirs, reader, asked, passage, pipeline.task)
        windows.append(number)
        found = pipeline.answer(asked, passage)
        assert (found.answer, passage[found.start : found.end]) == (expected[0][1], found.answer)
        best, second, *_ = shares = [chance / expected[0][0] for chance, _ in expected[:8]]
        assert second < 0.999 * best, "beyond rounding"
        assert [span.probability / found.probability for span in found.nbest[:8]] == pytest.approx(shares, rel=1e-3)
        theirs_of = {text: chance / expected[0][0] for chance, text in expected}  # of two as good, either comes first
        assert [theirs_of[span.answer] for span in found.nbest[:8]] == pytest.approx(shares, rel=1e-3)
    assert min(windows) == 1 < max(windows)


# the whole way


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    small = [
        "encoder.layers=2",
        "encoder.width=48",
        "encoder.heads=2",
        "encoder.feed_forward=96",
        "encoder.positions=64",
    ]
    path.write_text(write(read_recipe("bert-tiny", parse_overrides([*small, "layout.length=48"]))))
    return path


def squad(path, examples):
    """Write questions as a file, a paragraph for each."""
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


def seen(documents, number):
    """Who is seen? What the first sentence of a passage says; passages are longer than a window."""
    made = []
    for place, text in enumerate(documents[:number]):
        word = re.match(r"The \w+ \w+ the (\w+)", text)
        made.append(Question(str(place), f"what {text.split()[1]}", text, (Answer(word[1], word.start(1)),)))
    return made


def tune(recipe_file, tokenizer_directory, train, out, *settings, **options):
    return finetune(
        "question-answering",
        f"random:{recipe_file}",
        [train],
        out,
        tokenizer=tokenizer_directory,
        settings=parse_overrides(["dropout=0.0", *settings]),
        machine=CPU,
        **options,
    )


@pytest.fixture(scope="module")
def learnt(recipe_file, tokenizer_directory, documents, tmp_path_factory):
    """A model that has learnt ten questions by heart, and the file."""
    here = tmp_path_factory.mktemp("learnt")
    train = squad(here / "train.json", seen(documents, 10))
    sets = ("budget.steps=150", "optimizer.learning_rate=5e-3", "batch.sequences=10", "task.length=48")
    tune(recipe_file, tokenizer_directory, train, here / "run", *sets, dev=[train], quiet=True)
    return here / "run", train


@pytest.mark.parametrize(
    ("asked", "message"),
    [((None, "b"), "None is not a string"), (("a", 5), "5 is not a string"), (("a", " "), "or the passage is empty")],
)
def test_what_is_no_question_is_refused(learnt, asked, message):
    with pytest.raises(UserError, match=message):
        load(learnt[0], device="cpu").answer(*asked)


def test_a_few_questions_are_learnt_by_heart(learnt, documents):
    run, _ = learnt
    result = json.loads((run / "dev.json").read_text())
    assert (result["task"], result["examples"], result["scorer"]) == ("question-answering", 10, "SQuAD")
    assert result["metrics"] == {"exact_match": 100, "f1": 100}
    example = seen(documents, 10)[3]
    answer = load(run, device="cpu").answer(example.question, example.passage)
    assert (answer.answer, answer.start) == (example.answers[0].text, example.answers[0].start)
    assert answer.nbest[0] == Span(answer.answer, answer.start, answer.end, answer.probability)
    assert load_model(run).task == QuestionAnswering(length=48, no_answer=False)
    assert "--question" in (run / "report.md").read_text()


def test_the_command_line_answers(learnt, tmp_path, capsys, documents):
    run, train = learnt
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
    out = tmp_path / "said.json"
    assert main(["predict", "--model", str(run), "--data", str(tmp_path / "bare.json"), "--out", str(out)]) == 0
    expected = {one.id: one.answers[0].text for one in seen(documents, 10)}
    assert json.loads(out.read_text()) == expected
    nbest = json.loads((tmp_path / "said.json.nbest.json").read_text())
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
        (["a text", "--question", "who?", "--passage", "x"], "give exactly one of: texts, --question with"),
        (["--question", "who?", "--passage", " "], "the question or the passage is empty; give both"),
        (["--question", "who?", "--passage", "x", "--text-b", "y"], "--text-b has no effect without TEXT"),
        (["--question", "who?", "--passage", "x", "--columns", "text=0"], "--columns and --format have no effect"),
        (["a text"], "this model is for question answering; ask it with --question"),
    ],
)
def test_mistakes_of_the_command_line(learnt, capsys, options, message):
    assert main(["predict", "--model", str(learnt[0]), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_question_that_is_cut_is_said(learnt, capsys):
    long = "the dog " * 10
    assert main(["predict", "--model", str(learnt[0]), "--question", long, "--passage", "the cat"]) == 0
    assert capsys.readouterr().err == "questions cut after 8 tokens: 1\n"


def test_random_weights_take_the_vocabulary_of_a_run(learnt, recipe_file):
    from_run = load_model(f"random:{recipe_file}", tokenizer=learnt[0])
    assert from_run.tokenizer.sha256 == load_model(learnt[0]).tokenizer.sha256


def test_other_models_answer_no_questions(recipe_file, tokenizer_directory):
    from unmask.inference.predictor import Predictor

    model = load_model(f"random:{recipe_file}", tokenizer=tokenizer_directory)
    with pytest.raises(
        UserError, match="not fine-tuned for question answering; fine-tune it: unmask finetune question-answering"
    ):
        Predictor(model, CPU).answer("who?", "the dog")


def test_what_is_mended_and_left_out_is_said(learnt, documents, tmp_path, capsys, recipe_file, tokenizer_directory):
    run, _ = learnt
    examples = seen(documents, 12)
    wrong = [msgspec.structs.replace(one, answers=(Answer(one.answers[0].text, 0),)) for one in examples[:2]]
    train = squad(tmp_path / "train.json", [*wrong, *examples[2:]])
    tune(recipe_file, tokenizer_directory, train, tmp_path / "run", "budget.steps=1", "task.length=24", dev=[train])
    said = capsys.readouterr().err
    assert "were moved to their nearest occurrence: 2 of 12 (the first: " in said
    assert said.count("answers that are not at their offset") == 2, "of the training file, and of the dev file"
    assert re.search(r"^windows left out of the loss, as the answer is not in them: \d+$", said, re.MULTILINE)
    assert main(["evaluate", "--model", str(run), "--data", str(train)]) == 0
    output = capsys.readouterr()
    assert "were moved to their nearest occurrence: 2 of 12 (the first: " in output.err
    assert "scored by the rules of SQuAD" in output.out


def test_a_threshold_is_found_on_training_passages_set_aside(
    recipe_file, tokenizer_directory, documents, tmp_path, capsys
):
    examples = seen(documents, 40)
    examples[1::2] = [Question(one.id, "poem", one.passage, impossible=True) for one in examples[1::2]]
    train, dev = squad(tmp_path / "train.json", examples), squad(tmp_path / "dev.json", seen(documents[40:], 5))
    common = ("budget.steps=20", "optimizer.learning_rate=3e-3", "batch.sequences=16", "task.length=48")
    model = tune(recipe_file, tokenizer_directory, train, tmp_path / "run", *common, dev=[dev])
    said = capsys.readouterr().err
    task = load_model(model).task
    assert task.no_answer is True
    assert task.threshold is not None
    assert re.search(r"found on 4 training examples set aside for it: threshold -?[\d.]+", said)
    # what was set aside, answered by the finished model, gives the same threshold again
    _, aside = QuestionAnswering(no_answer=True).hold_out(examples, HOLD_OUT_SEED)
    pipeline = load(model, device="cpu")
    assert best_threshold(aside, pipeline.run(aside)) == pytest.approx(task.threshold, abs=1e-4)
    assert main(["evaluate", "--model", str(model), "--data", str(train), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    apart = sum(scores["f1"] for scores in result["by_kind"].values()) / 2
    assert result["metrics"]["f1"] == pytest.approx(apart), "half of them are of each kind"
    assert main(["evaluate", "--model", str(model), "--data", str(train)]) == 0
    assert "  unanswerable             exact_match " in capsys.readouterr().out
    given = tune(recipe_file, tokenizer_directory, train, tmp_path / "given", *common, "task.threshold=1.5", dev=[dev])
    assert load_model(given).task.threshold == 1.5
    assert "set aside" not in capsys.readouterr().err


def test_mistakes_are_marked_in_the_passage():
    text = "the dog sees the cat"
    examples = [question(str(number), "what?", text, "cat") for number in range(3)]
    spans = [("cat", 17, 20, 0.9), ("dog", 4, 7, 0.4), ("the dog", 0, 7, 0.8)]
    said = [Answered(one.id, one.question, *span, ()) for one, span in zip(examples, spans, strict=True)]
    worst, second = QuestionAnswering().mistakes(examples, said, ())
    assert (worst.predicted, worst.gold, worst.score, second.predicted) == ("the dog", "cat", 0.8, "dog")
    asked, passage = worst.passages
    assert (asked.name, asked.text, passage.text) == ("question", "what?", text)
    assert passage.gold == (Mark(17, 20),)
    assert passage.predicted == (Mark(0, 7),)
    none = Answered("0", "what?", "", None, None, 0.7, ())
    (mistake,) = QuestionAnswering(no_answer=True).mistakes(examples[:1], [none], ())
    assert (mistake.predicted, mistake.passages[1].predicted) == ("no answer", ())
