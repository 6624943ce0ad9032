"""General text is scored before and after adapting, on the same masks as held-out text."""

import json
import random
import re
import shutil

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

import unmask
from unmask.support.errors import UserError
from unmask.workflows.pretraining.general_text import HARDER, MOST_LOST, expectation
from unmask.workflows.pretraining.start import least_share

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


def adapted(base, run, initial_share=None, rate=5e-3, **changes):
    settings = {"budget.steps": 25, "batch.tokens": 256, "layout.length": 32, "optimizer.learning_rate": rate}
    settings |= {} if initial_share is None else {"initial_share": initial_share}
    unmask.pretrain(init=base / "base", text=base / "shuffled.jsonl", out=run, settings=settings, **changes)


def test_what_is_forgotten_is_reported(base, tmp_path, capsys):
    run, general = tmp_path / "run", base / "general.jsonl"
    adapted(base, run, general=general, initial_share=0)
    printed = capsys.readouterr().err
    (first, before), (last, after) = general_losses(run)
    assert (first, last) == (0, 25)
    for model, loss in ((base / "base", before), (run, after)):  # other masks of the same text
        expected = unmask.evaluate(model, [general], quiet=True)["metrics"]["masked_lm_loss"]
        assert loss == pytest.approx(expected, rel=0.1)
    assert after > before + 0.1, "the order of words is unlearned"
    assert "nats a token harder for the model than the general text: expect a gain; its words have" in printed
    line = f"Loss of the general text: {before:.2f} nats before, {after:.2f} after ({after - before:+.2f})."
    assert line in (run / "report.md").read_text()


def test_as_few_old_weights_are_kept_as_keep_general_text(base, tmp_path, capsys):
    adapted(base, run := tmp_path / "run", general=base / "general.jsonl")
    *_, last = map(msgspec.json.decode, (run / "metrics.jsonl").read_bytes().splitlines())
    weights, share = load_file(run / "model" / "model.safetensors"), last["initial_share"]
    line = f"weights are {share:.0%} those of {base / 'base'} (the least with which the loss of the general text rises"
    assert line in capsys.readouterr().err and line in (run / "report.md").read_text()
    adapted(base, run, general=base / "general.jsonl", resume=True, quiet=True)
    again = load_file(run / "model" / "model.safetensors")
    assert all(weights[name].equal(again[name]) for name in weights)
    assert [step for step, _ in general_losses(run)] == [0, 25]
    lost = {}
    for kept in (share, share - 0.05):
        adapted(base, other := tmp_path / f"{kept}", general=base / "general.jsonl", initial_share=kept)
        (_, before), (_, after) = general_losses(other)
        lost[kept] = after - before
        assert f"{kept:.0%} those of {base / 'base'}, the rest the trained ones\n" in capsys.readouterr().err
    assert lost[share] <= MOST_LOST < lost[share - 0.05]
    assert lost[share] == last["loss"] - general_losses(run)[0][1]


def test_the_short_runs_of_a_search_score_general_text_too(base, tmp_path, capsys):
    adapted(base, run := tmp_path / "run", general=base / "general.jsonl", search=True)
    assert capsys.readouterr().err.count("the least with which the loss of the general text") == 4
    assert [len(general_losses(each)) for each in (*(run / "search").glob("x*"), run)] == [2] * 4


def test_a_model_that_stays_as_it_is_is_told(base, tmp_path, capsys):
    """So much is learned wrongly that a twentieth of it is too much."""
    adapted(base, run := tmp_path / "run", general=base / "general.jsonl", rate=3)
    told = f"the model is that of {base / 'base'}: with any trained weights, more of the general text would be lost"
    assert told in capsys.readouterr().err and told in (run / "report.md").read_text()
    before, after = (load_file(path / "model" / "model.safetensors") for path in (base / "base", run))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


@pytest.fixture(scope="module")
def unread(documents, tmp_path_factory):
    """A file of text that is half in letters that the model has not read."""
    file = tmp_path_factory.mktemp("unread") / "text.txt"
    file.write_text("\n\n".join(f"{text} {'ա բ գ դ ե զ ' * 5}" for text in documents), encoding="utf8")
    return file


def test_text_that_the_vocabulary_lacks_raises_no_expectation(base, unread, tmp_path, capsys):
    settings, general = {"budget.steps": 1, "batch.tokens": 256, "layout.length": 32}, base / "general.jsonl"
    unmask.pretrain(init=base / "base", text=unread, general=general, out=tmp_path / "run", settings=settings)
    errors = capsys.readouterr().err
    assert "unknown to the vocabulary" in errors and "expect" not in errors


def test_words_that_elmo_reads_but_does_not_predict_raise_no_expectation(base, unread, tmp_path, capsys):
    streams, general = {"budget.steps": 1, "layout.streams": 256, "batch.sequences": 256}, base / "general.jsonl"
    shape = {"encoder.width": 8, "encoder.cells": 8, "encoder.filters": [[1, 8]], "tokenizer.vocabulary": 60}
    unmask.pretrain("elmo-mini", text=general, out=tmp_path / "elmo", settings={**streams, **shape}, quiet=True)
    unmask.pretrain(init=tmp_path / "elmo", text=unread, general=general, out=tmp_path / "run", settings=streams)
    errors = capsys.readouterr().err
    assert "unknown to the vocabulary" not in errors and "expect" not in errors


@pytest.mark.parametrize("seed", range(10))
def test_least_shares(seed):
    """The loss of parabolas is compared at each share."""
    rng = random.Random(seed)
    for _ in range(20):
        curvature, slope, most = rng.uniform(0, 3), rng.uniform(-3, 3), rng.uniform(0, 0.3)

        def loss(share, curvature=curvature, slope=slope):
            return curvature * (1 - share) ** 2 + slope * (1 - share)

        expected = next(number / 20 for number in range(21) if loss(number / 20) <= most)
        assert least_share(loss, most) == expected


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
    more = {**settings, "budget.steps": 2}
    unmask.pretrain(init=base / "base", text=general, general=general, out=run, settings=more, resume=True)
    assert "are 70% those of" in capsys.readouterr().err, "the loss at the end of the first call is none before the run"


def test_expectations():
    general = {"loss": 3.0, "fertility": 1.25}
    assert "expect a gain; its words have 1.50 tokens, those of the general text 1.25" in expectation(
        {"loss": 3.1 + HARDER, "fertility": 1.5}, general
    )
    assert "only 0.10 nats a token harder" in expectation({"loss": 3.1, "fertility": 1.0}, general)
    assert "is no harder for" in expectation({"loss": 2.5, "fertility": 1.0}, general)


def test_the_tokens_of_a_word_are_counted_though_some_are_masked(base, documents, tmp_path):
    adapted(base, tmp_path / "run", general=base / "general.jsonl", quiet=True, initial_share=0)
    lines = map(msgspec.json.decode, (tmp_path / "run/metrics.jsonl").read_bytes().splitlines())
    before = next(line for line in lines if line["kind"] == "general")
    tokenizer = unmask.load_tokenizer(base / "base" / "model")
    tokens = [token for text in documents for token in tokenizer.tokens(tokenizer.encode(text))]
    expected = len(tokens) / sum(not token.startswith("##") for token in tokens)
    assert before["fertility"] == pytest.approx(expected, rel=0.03)
    assert before["text_fertility"] == pytest.approx(expected, rel=0.03), "the same words in another order"


def test_what_is_refused(base, tmp_path):
    general, empty = base / "general.jsonl", tmp_path / "empty.txt"
    with pytest.raises(UserError, match=r"general.* has no effect without .*init"):
        unmask.pretrain("bert-tiny", text=general, general=general, out=tmp_path / "run", quiet=True)
    for changes in ({"layers": 1}, {"extend": 9}):
        with pytest.raises(UserError, match=r"initial_share.* has no effect with .*all weights are the trained ones"):
            adapted(base, tmp_path / "run", initial_share=0.5, **changes)
    with pytest.raises(UserError, match=r"initial_share.* has no effect without .*init"):
        unmask.pretrain("bert-tiny", text=general, out=tmp_path / "run", settings={"initial_share": 0.5}, quiet=True)
    with pytest.raises(UserError, match=r"initial_share.* has no effect without .*init.*use another recipe than adapt"):
        unmask.pretrain("adapt", text=general, out=tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"initial_share.* has no effect without .*init"):
        model, settings = base / "base" / "model", {"initial_share": 0.5}
        unmask.distill("distilbert-mini", teacher=model, text=general, out=tmp_path / "run", settings=settings)
    with pytest.raises(UserError, match=r"arm 'adapt': initial_share has no effect.*no checkpoint.*adapt one"):
        unmask.compare(
            arms=["adapt", "bert-tiny"], text=[general], budget="2000tok", out=tmp_path / "comparison", quiet=True
        )
    (field := tmp_path / "field.jsonl").write_text('{"body": "a b c"}\n')
    (little := tmp_path / "little.txt").write_text("so little says nothing")
    empty.write_text("")
    texts = {empty: r"empty\.txt", field: "field text", little: r"little\.txt.*too little general text: \d+ tokens of"}
    texts[tmp_path / "missing.txt"] = r"missing\.txt: cannot be read \(No such file or directory\)$"
    for text, told in texts.items():
        with pytest.raises(UserError, match=told):
            unmask.pretrain(init=base / "base", text=general, general=text, out=tmp_path / "run", quiet=True)
