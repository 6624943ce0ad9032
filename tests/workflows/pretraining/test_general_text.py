"""General text is scored before and after adapting, on the same masks as held-out text."""

import json
import random
import re
import shutil

import msgspec
import pytest
from safetensors.torch import load_file, save_file

import unmask
from unmask.support.errors import UserError
from unmask.workflows.pretraining.general_text import HARDER, expectation

SMALL = {
    **{
        "encoder.layers": 2,
        "encoder.width": 32,
        "encoder.heads": 2,
        "encoder.feed_forward": 64,
        "encoder.positions": 32,
    },
    **{"tokenizer.vocabulary": 300, "layout.length": 32, "batch.tokens": 256, "objective.next_sentence": False},
    **{"layout.kind": "document_sentences", "optimizer.learning_rate": 5e-3},
}


@pytest.fixture(scope="module")
def base(documents, tmp_path_factory):
    """A model that has read the documents, and a file of texts with their words in random order."""
    folder = tmp_path_factory.mktemp("general")
    (folder / "general.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    rng = random.Random(0)
    shuffled = [" ".join(rng.sample(words := text.split(), len(words))) for text in documents]
    (folder / "shuffled.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in shuffled))
    settings = {**SMALL, "budget.steps": 100}
    unmask.pretrain("bert-tiny", text=folder / "general.jsonl", out=folder / "base", settings=settings, quiet=True)
    return folder


def general_losses(run):
    lines = [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if line["kind"] == "general"]


def test_what_is_forgotten_is_reported(base, tmp_path, capsys):
    run, changes = tmp_path / "run", {"budget.steps": 25, "batch.tokens": 256, "layout.length": 32, "initial_share": 0}
    settings = {**changes, "optimizer.learning_rate": 5e-3}
    general = base / "general.jsonl"
    unmask.pretrain(init=base / "base", text=base / "shuffled.jsonl", general=general, out=run, settings=settings)
    printed = capsys.readouterr().err
    (first, before), (last, after) = general_losses(run)
    assert (first, last) == (0, 25)
    for model, loss in ((base / "base", before), (run, after)):  # other masks of the same text
        expected = unmask.evaluate(model, [general], quiet=True)["metrics"]["masked_lm_loss"]
        assert loss == pytest.approx(expected, rel=0.1)
    assert after > before + 0.1, "the order of words is unlearned"
    assert "nats a token harder for the model than the general text: expect a gain" in printed
    line = f"Loss of the general text: {before:.2f} nats before, {after:.2f} after ({after - before:+.2f})."
    assert line in (run / "report.md").read_text()


def test_the_same_text_teaches_little(base, tmp_path, capsys):
    """What is skipped of it is told."""
    run, general = tmp_path / "run", tmp_path / "general.jsonl"
    general.write_text((base / "general.jsonl").read_text() + '{"no": "text"}\n')
    settings = {"budget.steps": 1, "batch.tokens": 256, "layout.length": 32}
    unmask.pretrain(init=base / "base", text=general, general=[general], out=run, settings=settings)
    said = capsys.readouterr().err
    assert "expect little, it is like what the model has read" in said
    assert re.search(r"general text: skipped: 1 document: \S*general\.jsonl:\d+: ", said)
    changed = {**settings, "budget.steps": 2}
    with pytest.raises(UserError, match="general"):
        unmask.pretrain(init=base / "base", text=general, out=run, settings=changed, resume=True, quiet=True)


def test_a_new_pooler_is_no_new_head(base, tmp_path):
    """Masked language models of other programs have none, and their predictions are known before all the same."""
    model, general = tmp_path / "model", base / "general.jsonl"
    shutil.copytree(base / "base" / "model", model)
    (model / "checksums.json").unlink()
    tensors = load_file(model / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if "pooler" not in name}, model / "model.safetensors")
    settings = {"budget.steps": 1, "batch.tokens": 256, "layout.length": 32}
    unmask.pretrain(init=model, text=general, general=general, out=tmp_path / "run", settings=settings, quiet=True)
    assert [step for step, _ in general_losses(tmp_path / "run")] == [0, 1]


def test_with_a_new_head_nothing_is_known_before(base, tmp_path, capsys):
    run, general = tmp_path / "run", base / "general.jsonl"
    settings = {"budget.steps": 1, "batch.tokens": 256, "layout.length": 32}
    settings |= {"objective.masked_lm": False, "objective.replaced_token.weight": 1.0}
    unmask.pretrain(init=base / "base", text=general, general=general, out=run, settings=settings)
    ((step, loss),) = general_losses(run)
    assert step == 1 and "expect" not in capsys.readouterr().err
    assert f"Loss of the general text: {loss:.2f} nats; it had none before" in (run / "report.md").read_text()


def test_expectations():
    assert expectation({"loss": 3.1 + HARDER}, {"loss": 3.0}).endswith("expect a gain")
    assert "only 0.10 nats a token harder" in expectation({"loss": 3.1}, {"loss": 3.0})
    assert "is no harder for" in expectation({"loss": 2.5}, {"loss": 3.0})


def test_what_is_refused(base, tmp_path):
    general, empty = base / "general.jsonl", tmp_path / "empty.txt"
    with pytest.raises(UserError, match=r"general.* has no effect without .*init"):
        unmask.pretrain("bert-tiny", text=general, general=general, out=tmp_path / "run", quiet=True)
    empty.write_text("")
    with pytest.raises(UserError, match=r"empty\.txt"):
        unmask.pretrain(init=base / "base", text=general, general=empty, out=tmp_path / "run", quiet=True)
