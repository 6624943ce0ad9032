"""Directories of transformers' question answering models give the same answers.

BERT and RoBERTa are covered by parity/test_question_answering.py.
"""

import pytest
import torch
import transformers

from unmask.data.tokenizers.unigram import train_unigram
from unmask.inference.load import load
from unmask.tasks.question_answering import QuestionAnswering

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
    """Return candidate texts with unnormalized P_start * P_end, the best first, and the number of windows."""
    words = reader(asked, add_special_tokens=False)["input_ids"]
    assert len(words) <= task.question, "transformers does not truncate questions"
    capacity = task.length - 3 - len(words)
    inputs = reader(
        *(asked, passage),
        truncation="only_second",
        max_length=task.length,
        stride=capacity - task.stride,  # in transformers, the overlap of two windows
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found = {}
    for number, offsets in enumerate(inputs["offset_mapping"]):
        fed = {name: torch.tensor([inputs[name][number]]) for name in reader.model_input_names}
        with torch.no_grad():
            out = theirs(**fed)
        starts, ends = (logits[0].double().exp() for logits in (out.start_logits, out.end_logits))
        inside = [index for index, part in enumerate(inputs.sequence_ids(number)) if part == 1]
        for first in inside:
            for last in inside:
                if first <= last < first + task.answer:
                    text = passage[offsets[first][0] : offsets[last][1]]
                    found[text] = max(found.get(text, 0), float(starts[first] * ends[last]))
    return sorted(((probability, text) for text, probability in found.items()), reverse=True), len(
        inputs["offset_mapping"]
    )


@pytest.mark.parametrize("family", THEIRS)
def test_a_directory_of_transformers_gives_the_same_answers(family, tokenizer, documents, tmp_path):
    """The tokenizer is saved by transformers' own class."""
    words = train_unigram(documents, size=200) if family == "Albert" else tokenizer
    words.save(tmp_path / "words")
    reader = getattr(transformers, f"{family}Tokenizer").from_pretrained(tmp_path / "words", model_max_length=64)
    kind = getattr(transformers, f"{family}ForQuestionAnswering")
    theirs = kind(kind.config_class(vocab_size=words.size, **THEIRS[family])).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # so that no two answers have almost the same score
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
        best, second, *_ = shares = [probability / expected[0][0] for probability, _ in expected[:8]]
        assert second < 0.999 * best, "by more than rounding errors"
        assert [span.probability / found.probability for span in found.nbest[:8]] == pytest.approx(shares, rel=1e-3)
        theirs_of = {text: probability / expected[0][0] for probability, text in expected}  # ties come in any order
        assert [theirs_of[span.answer] for span in found.nbest[:8]] == pytest.approx(shares, rel=1e-3)
    assert min(windows) == 1 < max(windows)
