"""XLNet's question answering head beside XLNetForQuestionAnswering: loss, gradients, beams, directories.

transformers calls probabilities "log_probs"; those of the beams are compared with the exponentials of ours. Its loss is
the mean over windows of one length, so each window is computed alone.
"""

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import collate
from unmask.data.labelled.question_files import Answer, Question
from unmask.families.checkpoints import huggingface
from unmask.objectives.learner import Learner
from unmask.tasks.answer_beams import AnswerBeams, AnswerBeamsHead
from unmask.tasks.passage_windows import LABEL

from .conftest import assert_same_gradients, gradients_by_our_names, our_gradients, scale

PASSAGE = "The dog sees the cat near the sea. The poem follows the river, and the cat finds the garden. " * 2
EXAMPLES = [
    Question("0", "Who sees the cat?", PASSAGE, (Answer("dog", PASSAGE.index("dog")),)),
    Question("1", "What is found?", PASSAGE, (Answer("the garden", PASSAGE.index("the garden")),)),
    Question("2", "Where is the market?", PASSAGE, impossible=True),
]


@pytest.fixture
def theirs(tokenizer):
    torch.manual_seed(0)
    config = transformers.XLNetConfig(vocab_size=tokenizer.size, d_model=32, n_layer=2, n_head=2, d_inner=64)
    return scale(transformers.XLNetForQuestionAnswering(config), 5)


def from_theirs(theirs, directory):
    theirs.save_pretrained(directory)
    found = huggingface.read(directory)
    encoder, head = found.settings.build(found.vocabulary), AnswerBeamsHead(found.settings.head)
    encoder.load_state_dict(found.encoder, strict=False)
    head.load_state_dict(found.heads["answer_beams"])
    return Learner(encoder, {"answer_beams": head}).eval()


def windows_of(tokenizer, monkeypatch, *, no_answer):
    monkeypatch.setattr(tokenizer, "summary", "last")
    task = AnswerBeams(length=32, question=10, stride=8, answer=4, no_answer=no_answer)
    return task.frame(tokenizer, EXAMPLES, (), gold=True).samples


def inputs_of(sample):
    allowed = np.isin(np.arange(len(sample)), sample.positions["passage"])
    return {
        "input_ids": torch.tensor(sample.ids)[None],
        "token_type_ids": torch.tensor(sample.segments)[None],
        "p_mask": torch.tensor(~allowed).float()[None],
        "cls_index": torch.tensor(sample.positions["summary"]),
    }


def gold_of(sample):
    start, end = (torch.tensor([position]) for position in sample.labels[LABEL])
    none = torch.tensor([float(start == sample.positions["summary"][0])])
    return {"start_positions": start, "end_positions": end, "is_impossible": none}


@pytest.mark.parametrize("no_answer", [False, True])
def test_loss_and_gradients(theirs, tokenizer, tmp_path, monkeypatch, no_answer):
    learner = from_theirs(theirs, tmp_path / "theirs")
    samples = windows_of(tokenizer, monkeypatch, no_answer=no_answer)
    batch = collate([learner.prepare(sample) for sample in samples])
    ours = learner(batch)["answer_beams"].sum
    expected = sum(theirs(**inputs_of(sample), **gold_of(sample)).loss for sample in samples)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    ours.backward()
    expected.backward()
    found = gradients_by_our_names(theirs, tmp_path / "gradients", learner.parts)
    shifts = ["objectives.answer_beams.start.bias", "objectives.answer_beams.end_out.bias"]  # of all tokens alike
    assert_same_gradients(our_gradients(learner), found, slack=1e-5, zero=shifts)


def test_beams_of_starts_and_ends_and_the_classifier(theirs, tokenizer, tmp_path, monkeypatch):
    learner = from_theirs(theirs, tmp_path / "theirs")
    samples = windows_of(tokenizer, monkeypatch, no_answer=False)
    batch = collate([learner.prepare(sample) for sample in samples])
    with torch.no_grad():
        values = learner.parts["answer_beams"].predict(learner.encoder, learner.encoder(batch.tokens), batch)
        found = dict(
            zip(
                batch.keys, values.split([len(samples[key].positions["passage"]) for _, key in batch.keys]), strict=True
            )
        )
        for sample in samples:
            ours, out, at = found[sample.key], theirs(**inputs_of(sample)), sample.positions["passage"]
            starts = [int(np.flatnonzero(at == position)[0]) for position in out.start_top_index[0]]
            torch.testing.assert_close(ours[starts, 0].exp(), out.start_top_log_probs[0])
            torch.testing.assert_close(ours[:, 1], out.cls_logits.expand(len(at)))
            probabilities, indices = (x[0].view(5, 5) for x in (out.end_top_log_probs, out.end_top_index))
            for beam, start in enumerate(starts):  # theirs are listed by end, then by start
                for rank in range(5):
                    end = int(np.flatnonzero(at == int(indices[rank, beam]))[0])
                    if end >= start:
                        torch.testing.assert_close(ours[end, 2 + beam].exp(), probabilities[rank, beam])
                assert ours[:start, 2 + beam].isinf().all()


def test_our_directory_is_read_by_transformers(theirs, tokenizer, tmp_path, monkeypatch):
    learner = from_theirs(theirs, tmp_path / "theirs")
    heads = {"answer_beams": learner.parts["answer_beams"].state_dict()}
    huggingface.write(tmp_path / "ours", learner.encoder, heads)
    again, report = transformers.XLNetForQuestionAnswering.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    (sample, *_) = windows_of(tokenizer, monkeypatch, no_answer=True)
    for ours, expected in zip(again.eval()(**inputs_of(sample))[:5], theirs(**inputs_of(sample))[:5], strict=True):
        torch.testing.assert_close(ours, expected)
