"""A model that answers questions gives the same in transformers, whoever wrote it: windows, logits, gradients.

Their tokenizer cuts the windows a second time (its stride is the overlap of two windows), and BertForQuestionAnswering
gives logits and gradients. Its own loss runs over question and padding too, so the loss is reckoned here, on its logits
at the places where an answer may start or end. The gradients of what moves all tokens alike are 0 in theory.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import safetensors.torch
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
from unmask.batches.batch import collate
from unmask.checkpoints import huggingface
from unmask.encoders.transformer import Transformer
from unmask.labelled.squad_file import Answer, Question
from unmask.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.tasks import passage_windows
from unmask.tasks.question_answering import QuestionAnswering, QuestionAnsweringHead
from unmask.tokenizers.bpe import train_bpe

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
def scale(model):
    """Make every parameter count."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
        else:
            parameter.mul_(4)
    return model.eval()


def their_model(tokenizer, family="Bert"):
    body = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if family == "Bert":
        return scale(
            BertForQuestionAnswering(BertConfig(vocab_size=tokenizer.size, max_position_embeddings=64, **body))
        )
    config = RobertaConfig(vocab_size=tokenizer.size, max_position_embeddings=66, type_vocab_size=1, **body)
    return scale(RobertaForQuestionAnswering(config))


def from_theirs(theirs, tokenizer, directory):
    """Our learner with their weights, by way of their directory."""
    theirs.save_pretrained(directory)
    tokenizer.save(directory)
    model = load_model(directory)
    head = QuestionAnsweringHead(model.encoder.head)
    assert not model.take("question_answering", head)
    return Learner(model.encoder, {"question_answering": head}).eval()


def from_ours(learner, tokenizer, directory, task):
    """Their model with our weights, by way of our directory."""
    heads = {"question_answering": learner.parts["question_answering"].state_dict()}
    save_model(directory, Model(learner.encoder, tokenizer, heads, (), task), "card")
    theirs, report = AutoModelForQuestionAnswering.from_pretrained(directory, output_loading_info=True)
    assert isinstance(theirs, BertForQuestionAnswering)
    assert not any(report.values()), report
    return theirs.eval()


def run_theirs(theirs, samples, directory):
    """Logits at the places of the passages, the loss on them, and gradients by our names."""
    ids, segments, mask = (torch.zeros(len(samples), max(map(len, samples)), dtype=torch.int64) for _ in range(3))
    hidden = torch.full((*ids.shape, 2), -torch.inf)
    for row, sample in enumerate(samples):
        ids[row, : len(sample)] = torch.from_numpy(sample.ids)
        segments[row, : len(sample)] = torch.from_numpy(sample.segments)
        mask[row, : len(sample)] = 1
        hidden[row, sample.positions["passage"]] = 0
    out = theirs(ids, attention_mask=mask, token_type_ids=segments)
    logits = torch.stack([out.start_logits, out.end_logits], 2)
    gold = torch.tensor([sample.labels["question_answering"].tolist() for sample in samples])
    loss = sum(cross_entropy((logits + hidden)[:, :, which], gold[:, which]) for which in (0, 1)) / 2
    theirs.zero_grad()
    loss.backward()
    directory.mkdir()  # gradients read like weights have our names
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    safetensors.torch.save_file(gradients, directory / "model.safetensors")
    theirs.config.save_pretrained(directory)
    read = huggingface.read(directory)
    found = {f"encoder.{name}": value for name, value in read.encoder.items()}
    found |= {f"objectives.{head}.{name}": value for head, part in read.heads.items() for name, value in part.items()}
    return logits[hidden == 0].view(-1, 2).detach(), loss.detach(), found


def assert_parity(learner, theirs, samples, directory):
    samples = sorted((learner.prepare(sample) for sample in samples), key=len)
    expected, their_loss, their_gradients = run_theirs(theirs, samples, directory)
    batch = collate(samples)
    part = learner.parts["question_answering"]
    logits = part.predict(learner.encoder, learner.encoder(batch.tokens), batch).detach()
    worst = (logits - expected).abs().max()
    assert worst <= 1e-5 * max(1, expected.abs().max()), f"logits: {worst}"
    assert logits.std(0).min() > 0.1, "tokens are told apart"
    learner.zero_grad()
    loss = learner(batch)["question_answering"].sum / len(samples)
    assert abs(loss.detach() - their_loss) <= 1e-5 * their_loss, f"loss: {loss.detach()} for {their_loss}"
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in learner.named_parameters() if parameter.grad is not None}
    assert gradients.keys() == their_gradients.keys()
    largest = max(value.norm() for value in their_gradients.values())
    for name, value in their_gradients.items():
        if name in ("encoder.blocks.1.feed_forward_norm.bias", "objectives.question_answering.out.bias"):
            assert max(value.norm(), gradients[name].norm()) <= 1e-5 * largest, f"gradient of {name}: not 0"
        else:
            worst = (gradients[name] - value).norm() / value.norm()
            assert worst <= 1e-4, f"gradient of {name}: {worst}"


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
    scale(learner)
    theirs = from_ours(learner, tokenizer, tmp_path / "ours", TASKS[kind])
    assert load_model(tmp_path / "ours").task == TASKS[kind]
    assert_parity(
        learner, theirs, TASKS[kind].frame(tokenizer, EXAMPLES, (), gold=True).samples, tmp_path / "gradients"
    )


def their_windows(directory, example, task, tokenizer):
    """The windows of one question, cut by transformers alone; its stride is the overlap."""
    room = task.length - 3 - len(tokenizer.encode(example.question))
    return AutoTokenizer.from_pretrained(directory)(
        example.question,
        example.passage,
        truncation="only_second",
        max_length=task.length,
        stride=room - task.stride,
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
            second = [place for place, part in enumerate(inputs.sequence_ids(number)) if part == 1]
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
            places, parts = inputs["offset_mapping"][number], inputs.sequence_ids(number)
            for i, part in enumerate(parts):
                for j in range(i, min(len(ids) - 1, i + task.answer)):
                    if part == 1:
                        text = example.passage[places[i][0] : places[j][1]]
                        best = max(best, (float(starts[i] + ends[j]), text))
        found = pipeline.answer(example.question, example.passage)
        assert next(span.answer for span in found.nbest if span.answer) == best[1]
        assert found.answer == ("" if task.no_answer and null > best[0] else best[1])
        if task.no_answer:
            assert found.margin == pytest.approx(null - best[0], abs=1e-3)


def spans_of_theirs(theirs, directory, example, task, tokenizer):
    """The texts that may be an answer, and P_start * P_end of each but for a factor that is the same in all windows.

    Theirs may begin or end with a piece that is a space alone; ours may not, and are the others.
    """
    inputs = their_windows(directory, example, task, tokenizer)
    found = {}
    for number, ids in enumerate(inputs["input_ids"]):
        segments = {name: torch.tensor([inputs[name][number]]) for name in inputs if name == "token_type_ids"}
        with torch.no_grad():
            out = theirs(torch.tensor([ids]), **segments)
        starts, ends = (logits[0].double().exp() for logits in (out.start_logits, out.end_logits))
        inside = [place for place, part in enumerate(inputs.sequence_ids(number)) if part == 1]
        for i in inside:
            for j in inside:
                if i <= j and j - i + 1 <= task.answer:
                    places = inputs["offset_mapping"][number]
                    text = example.passage[places[i][0] : places[j][1]]
                    found[text] = max(found.get(text, 0), float(starts[i] * ends[j]))
    texts = [text for text in found if text and text == text.strip()]
    return sorted(((found[text], text) for text in texts), reverse=True), len(inputs["input_ids"])


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_a_directory_of_theirs_answers_as_it_stands(family, tokenizer, documents, tmp_path):
    words = tokenizer if family == "Bert" else train_bpe(documents, size=350)
    words.save(tmp_path / "words", length=64)
    theirs = their_model(words, family)
    theirs.save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(tmp_path / "words").save_pretrained(tmp_path / "theirs")
    pipeline, windows = unmask.load(tmp_path / "theirs", device="cpu"), set()
    assert pipeline.task == QuestionAnswering(length=64)
    for example in EXAMPLES:
        expected, number = spans_of_theirs(theirs, tmp_path / "theirs", example, pipeline.task, words)
        windows.add(number)
        found = pipeline.answer(example.question, example.passage)
        assert (found.answer, found.probability) == (expected[0][1], found.nbest[0].probability)
        assert example.passage[found.start : found.end] == found.answer
        assert [span.answer for span in found.nbest[:8]] == [text for _, text in expected[:8]]
        shares = [span.probability / found.probability for span in found.nbest[:8]]
        assert shares == pytest.approx([chance / expected[0][0] for chance, _ in expected[:8]], rel=1e-3)
        assert len(set(shares)) == 8, "and no two are equal"
    assert min(windows) == 1 < max(windows)


def change_tokens(monkeypatch, change):
    forward = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", lambda self, tokens: forward(self, replace(tokens, **change(tokens))))


def swap_start_and_end(learner):
    out = learner.parts["question_answering"].out
    out.weight.data, out.bias.data = out.weight.data.flip(0), out.bias.data.flip(0)


def softmax_over(monkeypatch, value):
    """Let tokens that can be no answer take part in the softmax."""
    table = QuestionAnsweringHead._table

    def changed(self, *rest):
        return table(self, *rest).nan_to_num(neginf=value)

    monkeypatch.setattr(QuestionAnsweringHead, "_table", changed)


def detach_body(monkeypatch):
    forward = Transformer.forward

    def detached(self, *given):
        encoded = forward(self, *given)
        return replace(encoded, last=encoded.last.detach() + 0 * encoded.last)

    monkeypatch.setattr(Transformer, "forward", detached)


FAULTS = {  # what is planted in ours, and what the comparison must complain of
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
