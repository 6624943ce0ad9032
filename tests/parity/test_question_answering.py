"""Parity of question answering with transformers: windows, logits, losses and gradients.

Directories are written by us and by transformers. Its tokenizer computes the windows independently (its stride is the
overlap of two windows), and BertForQuestionAnswering the logits and gradients. Its own loss covers question and padding
too, so the loss is computed here, from its logits at the positions where an answer may start or end. The gradients of
parameters that shift the logits of all tokens equally are 0 in theory.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BertConfig,
    BertForQuestionAnswering,
    RobertaConfig,
    RobertaForQuestionAnswering,
)

import unmask
from unmask.data.batches.batch import collate
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.tokenizers.bpe import train_bpe
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.transformer import Transformer
from unmask.objectives.learner import Learner
from unmask.tasks import passage_windows
from unmask.tasks.answer_head import AnswerHead
from unmask.tasks.passage_windows import Candidates
from unmask.tasks.question_answering import QuestionAnswering

from .conftest import (
    assert_same_gradients,
    change_tokens,
    gradients_by_our_names,
    load_theirs,
    our_gradients,
    pad,
)

PASSAGES = [
    "The dog sees the cat near the sea. The poem follows the river, and the cat finds the garden in the old town. " * 3,
    "The teacher paints the bridge before noon.",
    "The doctor opens the letter under a tree after the rain.",
]
ASKED = [("Who sees the cat?", 0, "dog"), ("What is found?", 0, "the garden"), ("Who paints?", 1, "The teacher")]
EXAMPLES = [
    *(Question(str(n), text, PASSAGES[p], (Answer(a, PASSAGES[p].index(a)),)) for n, (text, p, a) in enumerate(ASKED)),
    Question("none", "Where is the market?", PASSAGES[2], impossible=True),
]
TASKS = {
    name: QuestionAnswering(length=32, question=12, stride=8, answer=4, no_answer=name == "or none")
    for name in ("always", "or none")
}


@torch.no_grad()
def perturb(model):
    """Scale weight matrices and shift vectors at random, so that every parameter affects the outputs."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
        else:
            parameter.mul_(4)
    return model.eval()


def their_model(tokenizer, family="Bert"):
    body = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family == "Bert":
        return perturb(
            BertForQuestionAnswering(BertConfig(vocab_size=tokenizer.size, max_position_embeddings=64, **body))
        )
    config = RobertaConfig(vocab_size=tokenizer.size, max_position_embeddings=66, type_vocab_size=1, **body)
    return perturb(RobertaForQuestionAnswering(config))


def from_theirs(theirs, tokenizer, directory):
    """Return our learner with the weights of transformers' model, read from the directory that it writes."""
    theirs.save_pretrained(directory)
    tokenizer.save(directory)
    model = load_model(directory)
    head = AnswerHead(model.encoder.head)
    assert not model.take("question_answering", head)
    return Learner(model.encoder, {"question_answering": head}).eval()


def from_ours(learner, tokenizer, directory, task):
    """Return transformers' model with our weights, loaded from the directory that we write."""
    heads = {"question_answering": learner.parts["question_answering"].state_dict()}
    save_model(directory, Model(learner.encoder, tokenizer, heads, (), task), "card")
    theirs = load_theirs(AutoModelForQuestionAnswering, directory)
    assert isinstance(theirs, BertForQuestionAnswering)
    return theirs


def run_theirs(theirs, samples, directory):
    """Return the logits at the positions of the passages, their loss, and gradients by our names."""
    ids, segments, mask = pad(samples)
    excluded = torch.full((*ids.shape, 2), -torch.inf)
    for row, sample in enumerate(samples):
        excluded[row, sample.positions["passage"]] = 0
    out = theirs(ids, attention_mask=mask, token_type_ids=segments)
    logits = torch.stack([out.start_logits, out.end_logits], 2)
    gold = torch.tensor([sample.labels["question_answering"].tolist() for sample in samples])
    loss = sum(cross_entropy((logits + excluded)[:, :, which], gold[:, which]) for which in (0, 1)) / 2
    theirs.zero_grad()
    loss.backward()
    return logits[excluded == 0].view(-1, 2).detach(), loss.detach(), gradients_by_our_names(theirs, directory)


def assert_parity(learner, theirs, samples, directory):
    samples = sorted((learner.prepare(sample) for sample in samples), key=len)
    expected, their_loss, their_gradients = run_theirs(theirs, samples, directory)
    batch = collate(samples)
    part = learner.parts["question_answering"]
    logits = part.predict(learner.encoder, learner.encoder(batch.tokens), batch).detach()
    worst = (logits - expected).abs().max()
    assert worst <= 1e-5 * max(1, expected.abs().max()), f"logits: {worst}"
    assert logits.std(0).min() > 0.1, "logits differ between the tokens"
    learner.zero_grad()
    loss = learner(batch)["question_answering"].sum / len(samples)
    assert abs(loss.detach() - their_loss) <= 1e-5 * their_loss, f"loss: {loss.detach()} for {their_loss}"
    loss.backward()
    zero = ("encoder.blocks.1.feed_forward_norm.bias", "objectives.question_answering.out.bias")
    assert_same_gradients(our_gradients(learner), their_gradients, zero=zero)


@pytest.mark.parametrize("kind", TASKS)
def test_parity_of_their_directory(kind, tokenizer, tmp_path):
    theirs = their_model(tokenizer)
    learner = from_theirs(theirs, tokenizer, tmp_path / "theirs")
    samples = TASKS[kind].frame(tokenizer, EXAMPLES, (), gold=True).samples
    assert len({len(sample) for sample in samples}) > 1
    assert_parity(learner, theirs, samples, tmp_path / "gradients")


@pytest.mark.parametrize("kind", TASKS)
def test_parity_of_our_directory(kind, tokenizer, tmp_path):
    learner = from_theirs(their_model(tokenizer), tokenizer, tmp_path / "shape")
    perturb(learner)
    theirs = from_ours(learner, tokenizer, tmp_path / "ours", TASKS[kind])
    assert load_model(tmp_path / "ours").task == TASKS[kind]
    assert_parity(
        learner, theirs, TASKS[kind].frame(tokenizer, EXAMPLES, (), gold=True).samples, tmp_path / "gradients"
    )


def their_windows(directory, example, task, tokenizer):
    """Return the windows of one question as transformers' tokenizer computes them; its stride is the overlap."""
    capacity = task.length - 3 - len(tokenizer.encode(example.question))
    return AutoTokenizer.from_pretrained(directory)(
        example.question,
        example.passage,
        truncation="only_second",
        max_length=task.length,
        stride=capacity - task.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def assert_same_windows(directory, tokenizer, task):
    for example in EXAMPLES:
        inputs = their_windows(directory, example, task, tokenizer)
        samples = task.frame(tokenizer, [example], (), gold=False).samples
        assert [sample.ids.tolist() for sample in samples] == inputs["input_ids"]
        assert [sample.segments.tolist() for sample in samples] == inputs["token_type_ids"]
        for number, sample in enumerate(samples):
            second = [position for position, part in enumerate(inputs.sequence_ids(number)) if part == 1]
            assert sample.positions["passage"].tolist() == [0] * bool(task.no_answer) + second


@pytest.mark.parametrize("kind", TASKS)
def test_windows_are_those_of_transformers(kind, tokenizer, tokenizer_directory):
    assert_same_windows(tokenizer_directory, tokenizer, TASKS[kind])


@pytest.mark.parametrize("kind", TASKS)
def test_answers_are_the_best_spans_of_their_logits(kind, tokenizer, tmp_path):
    learner = from_theirs(their_model(tokenizer), tokenizer, tmp_path / "shape")
    theirs = from_ours(learner, tokenizer, tmp_path / "ours", TASKS[kind])
    task, pipeline = TASKS[kind], unmask.load(tmp_path / "ours", device="cpu")
    for example in EXAMPLES:
        inputs = their_windows(tmp_path / "ours", example, task, tokenizer)
        best, null = (-torch.inf, ""), torch.inf
        for number, ids in enumerate(inputs["input_ids"]):
            with torch.no_grad():
                out = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([inputs["token_type_ids"][number]]))
            starts, ends = out.start_logits[0], out.end_logits[0]
            null = min(null, float(starts[0] + ends[0]))
            offsets, parts = inputs["offset_mapping"][number], inputs.sequence_ids(number)
            for i, part in enumerate(parts):
                for j in range(i, min(len(ids) - 1, i + task.answer)):
                    if part == 1:
                        text = example.passage[offsets[i][0] : offsets[j][1]]
                        best = max(best, (float(starts[i] + ends[j]), text))
        found = pipeline.answer(example.question, example.passage)
        assert next(span.answer for span in found.nbest if span.answer) == best[1]
        assert found.answer == ("" if task.no_answer and null > best[0] else best[1])
        if task.no_answer:
            assert found.margin == pytest.approx(null - best[0], abs=1e-3)


def spans_of_theirs(theirs, directory, example, task, tokenizer):
    """Return possible answers with P_start * P_end, up to a factor that is the same in all windows, and their number.

    Answers of transformers may start or end with a token that is a space only; these are omitted, as ours may not.
    """
    inputs = their_windows(directory, example, task, tokenizer)
    found = {}
    for number, ids in enumerate(inputs["input_ids"]):
        segments = {name: torch.tensor([inputs[name][number]]) for name in inputs if name == "token_type_ids"}
        with torch.no_grad():
            out = theirs(torch.tensor([ids]), **segments)
        starts, ends = (logits[0].double().exp() for logits in (out.start_logits, out.end_logits))
        inside = [position for position, part in enumerate(inputs.sequence_ids(number)) if part == 1]
        for i in inside:
            for j in inside:
                if i <= j and j - i + 1 <= task.answer:
                    offsets = inputs["offset_mapping"][number]
                    text = example.passage[offsets[i][0] : offsets[j][1]]
                    found[text] = max(found.get(text, 0), float(starts[i] * ends[j]))
    texts = [text for text in found if text and text == text.strip()]
    return sorted(((found[text], text) for text in texts), reverse=True), len(inputs["input_ids"])


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_a_directory_of_transformers_is_used_unchanged(family, tokenizer, documents, tmp_path):
    chosen = tokenizer if family == "Bert" else train_bpe(documents, size=350)
    chosen.save(tmp_path / "words", length=64)
    theirs = their_model(chosen, family)
    theirs.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(tmp_path / "words").save_pretrained(tmp_path / "theirs")
    pipeline, windows = unmask.load(tmp_path / "theirs", device="cpu"), set()
    assert pipeline.task == QuestionAnswering(length=64)
    for example in EXAMPLES:
        expected, number = spans_of_theirs(theirs, tmp_path / "theirs", example, pipeline.task, chosen)
        windows.add(number)
        found = pipeline.answer(example.question, example.passage)
        assert (found.answer, found.probability) == (expected[0][1], found.nbest[0].probability)
        assert example.passage[found.start : found.end] == found.answer
        assert [span.answer for span in found.nbest[:8]] == [text for _, text in expected[:8]]
        shares = [span.probability / found.probability for span in found.nbest[:8]]
        assert shares == pytest.approx([probability / expected[0][0] for probability, _ in expected[:8]], rel=1e-3)
        assert len(set(shares)) == 8, "no two are equal"
    assert min(windows) == 1 < max(windows)


def swap_start_and_end(learner):
    out = learner.parts["question_answering"].out
    out.weight.data, out.bias.data = out.weight.data.flip(0), out.bias.data.flip(0)


def softmax_over(monkeypatch, value):
    """Plant a fault: include tokens that cannot be an answer in the softmax."""
    table = Candidates.table
    monkeypatch.setattr(Candidates, "table", lambda self, values: table(self, values).nan_to_num(neginf=value))


def detach_body(monkeypatch):
    forward = Transformer.forward

    def detached(self, *given):
        encoded = forward(self, *given)
        return replace(encoded, last=encoded.last.detach() + 0 * encoded.last)

    monkeypatch.setattr(Transformer, "forward", detached)


FAULTS = {  # the fault planted in our model, and the output that the comparison must report
    "start for end": (lambda ours, patch: swap_start_and_end(ours), "logits"),
    "head's bias": (lambda ours, patch: ours.parts["question_answering"].out.bias.data.zero_(), "logits"),
    "segments dropped": (
        lambda ours, patch: change_tokens(patch, lambda tokens: {"segments": torch.zeros_like(tokens.segments)}),
        "logits",
    ),
    "softmax over question and padding": (lambda ours, patch: softmax_over(patch, 0.0), "loss"),
    "body not tuned": (lambda ours, patch: detach_body(patch), "gradient of encoder"),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_parity_notices_a_planted_fault(fault, tokenizer, tmp_path, monkeypatch):
    theirs = their_model(tokenizer)
    learner = from_theirs(theirs, tokenizer, tmp_path / "theirs")
    samples = TASKS["or none"].frame(tokenizer, EXAMPLES, (), gold=True).samples
    plant, complaint = FAULTS.get(fault, (lambda ours, patch: None, ""))
    plant(learner, monkeypatch)
    with pytest.raises(AssertionError, match=f"^{complaint}.*: ") if fault else nullcontext():
        assert_parity(learner, theirs, samples, tmp_path / "gradients")


@pytest.mark.parametrize("fault", ["stride", "question cut"])
def test_the_comparison_of_windows_notices_a_planted_fault(fault, tokenizer, tokenizer_directory, monkeypatch):
    if fault == "stride":
        starts = passage_windows.window_starts
        monkeypatch.setattr(
            passage_windows, "window_starts", lambda tokens, size, stride: starts(tokens, size, stride - 1)
        )
    else:
        window = passage_windows._window
        monkeypatch.setattr(
            passage_windows,
            "_window",
            lambda frame, number, question, *rest: window(frame, number, question[1:], *rest),
        )
    with pytest.raises(AssertionError):
        assert_same_windows(tokenizer_directory, tokenizer, TASKS["always"])
