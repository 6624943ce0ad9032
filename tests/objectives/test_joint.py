"""Gradients of losses over a whole step that is split into micro-batches: those of the step as one batch."""

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.labelled.labelled_file import Row
from unmask.objectives.learner import Learner, joint_gradients
from unmask.support.settings import parse_overrides, write
from unmask.tasks.embedding import Embedding
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.finetuning.finetune import finetune


def make_rows(rng, documents, number, negatives):
    """Return pairs of sentences, some of which are in several, with at least one and up to so many negatives, or none.

    The first row has most of them.
    """
    sentences = [sentence for text in documents[:12] for sentence in text.split(". ")]
    sizes = [2 + (int(rng.integers(1, negatives + 1)) if line and negatives else negatives) for line in range(number)]
    rows = [[sentences[index] for index in rng.choice(len(sentences), size, replace=False)] for size in sizes]
    return [
        Row({"text": texts[0], "text_b": texts[1]}, "a.tsv", line, negatives=tuple(texts[2:]))
        for line, texts in enumerate(rows, 2)
    ]


def make_learner(recipe, tokenizer, dropout, **settings):
    shape = msgspec.structs.replace(recipe.encoder, dropout=dropout)
    torch.manual_seed(0)
    encoder = shape.build(tokenizer.size)
    return Learner(encoder, {"embedding": Embedding(length=24, **settings).build(encoder.head, ())}).train()


def gradients(learner):
    made = {name: value.grad.clone() for name, value in learner.named_parameters() if value.grad is not None}
    learner.zero_grad()
    return made


def in_parts(learner, samples, ends, seed=lambda index: None):
    """Return the gradient and the loss of a step in micro-batches that end at these samples."""
    batches = [collate(samples[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    joint = joint_gradients(learner, batches, seed)
    for index, batch in enumerate(batches):
        seed(index)
        learner(joint.attach(batch, index))["embedding"].sum.backward()
    return gradients(learner), joint.loss["embedding"]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("negatives", [0, 1, 4])
def test_the_gradient_is_that_of_the_whole_batch(recipe, tokenizer, documents, negatives, symmetric):
    learner = make_learner(recipe, tokenizer, 0.0, temperature=0.05, symmetric=symmetric)
    rng, task = np.random.default_rng(0), Embedding(length=24, temperature=0.05)
    for _ in range(5):
        rows = make_rows(rng, documents, int(rng.integers(2, 12)), negatives)
        samples = [learner.prepare(of) for of in task.frame(tokenizer, rows, (), gold=True).samples]
        whole = learner(collate(samples))["embedding"]
        whole.sum.backward()
        expected = gradients(learner)
        cuts = rng.choice(np.arange(1, len(rows)), int(rng.integers(1, len(rows))), replace=False)
        found, part = in_parts(learner, samples, [*sorted(cuts.tolist()), len(rows)])
        assert part.sum.item() == pytest.approx(whole.sum.item(), rel=1e-4)
        assert part.metrics["accuracy"] == whole.metrics["accuracy"]
        assert found.keys() == expected.keys()
        largest = max(value.abs().max().item() for value in expected.values())
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4 * largest, msg=name)


def test_both_passes_draw_the_same_dropout(recipe, tokenizer, documents, monkeypatch):
    learner = make_learner(recipe, tokenizer, 0.3, temperature=0.05)
    rows = make_rows(np.random.default_rng(0), documents, 6, False)
    samples = [learner.prepare(of) for of in Embedding(length=24).frame(tokenizer, rows, (), gold=True).samples]
    recorded, outputs = [], Learner.outputs

    def record(self, batch):
        recorded.append(outputs(self, batch))
        return recorded[-1]

    monkeypatch.setattr(Learner, "outputs", record)
    in_parts(learner, samples, [2, 3, 6], seed=torch.manual_seed)
    for first, second in zip(recorded[:3], recorded[3:], strict=True):
        assert torch.equal(first, second)
    in_parts(learner, samples, [2, 3, 6])
    assert not torch.equal(recorded[6], recorded[9]), "without the seeds they differ"


def test_only_losses_over_the_whole_step_are_joint(recipe, tokenizer):
    assert make_learner(recipe, tokenizer, 0.0, temperature=0.05).joint
    assert not make_learner(recipe, tokenizer, 0.0).joint, "squared errors of cosines"


def test_a_step_that_is_split_teaches_the_same(tmp_path, recipe, tokenizer_directory, documents):
    """Runs of fine-tuning in micro-batches of one pair and of all pairs of a step."""
    (tmp_path / "tiny.toml").write_text(write(recipe))
    lines = [f"{text[:30]}\t{text[30:90]}" for text in documents[:24]]
    (tmp_path / "pairs.tsv").write_text("\n".join(["text\ttext_b", *lines]))
    found = []
    for micro_tokens in (10_000, 30, 150):
        out = tmp_path / str(micro_tokens)
        finetune(
            *("embedding", f"random:{tmp_path / 'tiny.toml'}", tmp_path / "pairs.tsv", out),
            dev=tmp_path / "pairs.tsv",
            tokenizer=tokenizer_directory,
            settings=parse_overrides(
                [f"batch.micro_tokens={micro_tokens}", "batch.sequences=8", "budget.steps=4", "dropout=0.0"]
            ),
            device="cpu",
            precision="float32",
            quiet=True,
        )
        found.append(RunDirectory(out).read_metrics("train"))
    for run in found[1:]:
        for mine, whole in zip(run, found[0], strict=True):
            for name in ("loss", "embedding_accuracy", "gradient_norm"):
                assert mine[name] == pytest.approx(whole[name], rel=1e-3), name
