"""Whole runs that start from a model with an extended vocabulary, with fewer layers, or with both."""

import json
import math
import os
import random
import re
import shutil
import signal
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch

from unmask.data.batches.frame import FIRST, Frame
from unmask.data.corpus.build import write_corpus
from unmask.data.text.whole_files import write_json
from unmask.data.tokenizers.bpe import train_bpe
from unmask.data.tokenizers.extend import learn_tokens, old_ids
from unmask.data.tokenizers.tokenizer import CONFIG
from unmask.model.model import load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UnmaskError, UserError
from unmask.support.settings import parse_overrides
from unmask.training import loop
from unmask.training.machine import Machine
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.start import NEW_HEAD_RATE, SMOOTHING, InitialWeights, fit_to_text, usual_share
from unmask.workflows.pretraining.text_corpus import corpus_from_text

CPU = Machine(torch.device("cpu"), "float32")
SMALL = [
    *("encoder.layers=3", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"),
    *("layout.kind=document_sentences", "objective.next_sentence=false", "layout.length=48", "batch.tokens=512"),
    *("optimizer.learning_rate=5e-3", "schedule.kind=constant"),
]
ORGANS = ("hepatitis", "nephritis", "arthritis")


def make(*settings):
    return read_recipe("bert-tiny", parse_overrides([*SMALL, *settings]))


def heldout(run):
    lines = [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == "heldout"]


def weights(run):
    return safetensors.torch.load_file(run / "model" / "model.safetensors")


@pytest.fixture(scope="session")
def clinical(documents, tmp_path_factory):
    """The documents, where many nouns are replaced by words that the vocabulary splits."""
    rng = random.Random(0)
    words = [rng.choice(ORGANS) if word == "dog" else word for word in "\n\n".join(documents).split(" ")]
    path = tmp_path_factory.mktemp("clinical") / "clinical.txt"
    path.write_text(" ".join(words), encoding="utf8")
    return path


@pytest.fixture(scope="session")
def unextended(clinical, tokenizer, tmp_path_factory):
    """The clinical text as a corpus of the tokenizer of the tests."""
    return write_corpus([clinical], tokenizer, tmp_path_factory.mktemp("unextended") / "corpus")


@pytest.fixture(scope="session")
def base(unextended, tmp_path_factory):
    """A model trained on the clinical text for a while."""
    out = tmp_path_factory.mktemp("base") / "run"
    pretrain_corpus(make("budget.steps=100"), unextended, out, machine=CPU, quiet=True)
    return out


@pytest.fixture(scope="session")
def extended(clinical, tokenizer):
    """The tokenizer of the tests, extended by the words of the clinical text."""
    return learn_tokens(tokenizer, [clinical.read_text(encoding="utf8")], add=3).tokenizer


def test_an_extended_model_starts_where_the_model_ended(
    base, clinical, unextended, extended, tokenizer, tmp_path, capsys
):
    corpus = write_corpus([clinical], extended, tmp_path / "corpus")
    assert corpus.train.num_tokens < unextended.train.num_tokens
    recipe = make("budget.steps=1", "optimizer.learning_rate=1e-9")
    pretrain_corpus(recipe, unextended, tmp_path / "before", init=base, machine=CPU, quiet=True)
    capsys.readouterr()
    pretrain_corpus(recipe, corpus, tmp_path / "after", init=base, machine=CPU)
    line = "ocabulary extended by 3 tokens; their rows are the means of their old tokens' rows"
    assert f"v{line}\n" in capsys.readouterr().err
    assert f"V{line}.\n" in (tmp_path / "after" / "report.md").read_text(encoding="utf8")
    before, after = (heldout(tmp_path / run)[0] for run in ("before", "after"))
    assert before["step"] == after["step"] == 0
    assert after["masked_lm_loss"] == pytest.approx(before["masked_lm_loss"], rel=0.15)
    old, new = load_model(base), load_model(tmp_path / "after")
    assert new.tokenizer.sha256 == extended.sha256
    assert new.encoder.vocabulary == extended.size == tokenizer.size + 3
    table, rows = old.encoder.words.weight, new.encoder.words.weight
    assert torch.allclose(rows[: tokenizer.size], table, atol=1e-6), "the learning rate is tiny"
    for row, ids in zip(rows[tokenizer.size :], old_ids(tokenizer, extended), strict=True):
        assert torch.allclose(row, table[ids].mean(0), atol=1e-6)


@pytest.mark.parametrize("more", [0, 3])
def test_an_adapted_model_frames_pairs_as_before(base, clinical, tokenizer, tmp_path, more):
    """A published model whose tokenizer puts two separators between texts, and returns no segment ids."""
    shutil.copytree(base / "model", tmp_path / "base")
    (tmp_path / "base" / "checksums.json").unlink()
    config, words = (json.loads((tmp_path / "base" / name).read_text()) for name in (CONFIG, "tokenizer.json"))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    words["post_processor"]["pair"].insert(3, {"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    write_json(tmp_path / "base" / CONFIG, config)
    write_json(tmp_path / "base" / "tokenizer.json", words)
    if more:
        tokenizer = learn_tokens(tokenizer, [clinical.read_text(encoding="utf8")], add=more).tokenizer
    corpus = write_corpus([clinical], tokenizer, tmp_path / "corpus")
    pretrain_corpus(make("budget.steps=1"), corpus, tmp_path / "run", init=tmp_path / "base", machine=CPU, quiet=True)
    before, after = (load_model(tmp_path / name) for name in ("base", "run"))
    framed = [replace(Frame.of(model.tokenizer), spell=list).wrap(FIRST, FIRST) for model in (before, after)]
    assert framed[0].ids == framed[1].ids and not before.marks_pairs and not after.marks_pairs


def test_a_smaller_body_begins_from_the_layers_of_a_larger_one(base, unextended, tmp_path, capsys):
    recipe = make("budget.steps=1", "optimizer.learning_rate=1e-9")
    pretrain_corpus(recipe, unextended, tmp_path / "run", init=base, layers=2, machine=CPU)
    kept = f"he new body has layers 1, 3 of the 3 layers of {base}"
    assert f"t{kept}\n" in capsys.readouterr().err
    assert f"T{kept}.\n" in (tmp_path / "run" / "report.md").read_text(encoding="utf8")
    assert msgspec.toml.decode((tmp_path / "run" / "recipe.toml").read_bytes())["encoder"]["layers"] == 2
    large, small = weights(base), weights(tmp_path / "run")
    for name, value in small.items():
        assert torch.allclose(value, large[name.replace("layer.1.", "layer.2.")], atol=1e-6), name
    assert not any("layer.2." in name for name in small)
    with pytest.raises(UserError, match=r"encoder.layers was 2, now 3; .*resume with the same command"):
        pretrain_corpus(recipe, unextended, tmp_path / "run", init=base, machine=CPU, quiet=True, resume=True)


def test_T1_an_interrupted_run_with_both_resumes_exactly(base, clinical, tmp_path, monkeypatch):
    recipe = make("budget.steps=4")

    def run(out, **more):
        corpus = corpus_from_text([clinical], recipe, out, init=base, extend=3, report=lambda _: None, **more)
        pretrain_corpus(recipe, corpus, out, init=base, layers=2, machine=CPU, quiet=True, **more)

    def step(self, step=loop.Trainer.step):
        os.kill(os.getpid(), signal.SIGTERM)
        return step(self)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match="stopped and saved at step 1"):
        patch.setattr(loop.Trainer, "step", step)
        run(tmp_path / "run")
    run(tmp_path / "run", resume=True)
    run(tmp_path / "whole")
    one, other = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [line["loss"] for line in heldout(tmp_path / "run")][-1] == heldout(tmp_path / "whole")[-1]["loss"]
    report = (tmp_path / "run" / "report.md").read_text(encoding="utf8")
    assert "layers 1, 3 of the 3 layers" in report
    assert "ocabulary extended by 3 tokens" in report
    for extend, message in (
        (2, "this run was started with extend=3, but is resumed with extend=2"),
        (None, "this run was started with extend=3, but is resumed without extend"),
    ):
        with pytest.raises(UserError, match=message):
            corpus_from_text([clinical], recipe, tmp_path / "run", init=base, extend=extend, resume=True)


@pytest.mark.parametrize(
    ("option", "setting"), [({"layers": 2}, "encoder.layers"), ({"extend": 5}, "tokenizer.vocabulary")]
)
def test_what_is_taken_from_a_model_needs_one(clinical, tmp_path, option, setting):
    (name,) = option
    with pytest.raises(UserError, match=rf'{name} has no effect without init; pass settings={{"{setting}": N}}'):
        pretrain("bert-tiny", text=[clinical], out=tmp_path / "run", **option, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="session")
def headless(base, tmp_path_factory):
    """The model without its masked-LM head, as models for vectors of texts are published."""
    out = tmp_path_factory.mktemp("headless") / "model"
    save_model(out, replace(load_model(base), heads={}), "")
    return out


def adapted(init, corpus, out, *settings):
    """Adapt a model with a learning rate of nearly zero; return its recipe and its losses."""
    pretrain_corpus(make("optimizer.learning_rate=1e-9", *settings), corpus, out, init=init, machine=CPU, quiet=True)
    return msgspec.toml.decode((out / "recipe.toml").read_bytes()), heldout(out)


def test_a_new_head_begins_at_the_frequencies_of_tokens_and_learns_faster(base, headless, unextended, tmp_path):
    recipe, losses = adapted(headless, unextended, tmp_path / "new", "budget.steps=1")
    assert recipe["optimizer"]["head_rate"] == NEW_HEAD_RATE
    documents = [np.concatenate(unextended.train.sentences(index)) for index in range(len(unextended.train))]
    counts = np.bincount(np.concatenate(documents), minlength=unextended.tokenizer.size) + SMOOTHING
    bias = load_model(tmp_path / "new").heads["masked_lm"]["bias"].numpy()
    assert np.allclose(bias, np.log(counts / counts.sum()), atol=1e-4)
    known = np.concatenate(
        [ids for index in range(len(unextended.heldout)) for ids in unextended.heldout.sentences(index)]
    )
    unigram = -np.log(counts[known] / counts.sum()).mean()
    assert losses[0]["masked_lm_loss"] == pytest.approx(unigram, abs=0.6), "otherwise the logarithm of the vocabulary"
    recipe, losses = adapted(base, unextended, tmp_path / "old", "budget.steps=1")
    assert "head_rate" not in recipe["optimizer"], "its head is trained"
    recipe, _ = adapted(headless, unextended, tmp_path / "own", "budget.steps=1", "optimizer.head_rate=2")
    assert recipe["optimizer"]["head_rate"] == 2


def test_text_that_the_vocabulary_lacks_is_told_and_learned_with_an_extension(base, tokenizer, tmp_path, capsys):
    rng, letters = random.Random(0), [chr(code) for code in range(0x0561, 0x0580)]
    words = ["".join(rng.choices(letters, k=4)) for _ in range(30)]
    text = tmp_path / "armenian.txt"
    text.write_text("\n\n".join(f"{' '.join(rng.choices(words, k=40))}." for _ in range(60)), encoding="utf8")
    once = make("budget.steps=1")
    pretrain_corpus(once, write_corpus([text], tokenizer, tmp_path / "c"), tmp_path / "run", init=base)
    warning = "tokens are unknown to the vocabulary, which reads all of them as the same: extend it with"
    assert warning in capsys.readouterr().err
    assert warning in (tmp_path / "run" / "report.md").read_text(encoding="utf8")
    more = learn_tokens(tokenizer, [text.read_text(encoding="utf8")], add=100).tokenizer
    pretrain_corpus(once, write_corpus([text], more, tmp_path / "d"), tmp_path / "more", init=base)
    errors = capsys.readouterr().err
    assert warning not in errors
    assert re.search(r"the means of their old tokens' rows, but for \d+ with unknown characters, drawn like", errors)


PARTS = "tokens are parts of characters that the vocabulary lacks"


def test_text_that_a_vocabulary_reads_byte_by_byte_is_told(base, documents, tmp_path):
    english = train_bpe(documents, size=400)
    for name, code, told in (("georgian", 0x10D0, True), ("latin", 0x61, False)):
        rng, text = random.Random(0), tmp_path / f"{name}.txt"
        words = ["".join(chr(code + rng.randrange(26)) for _ in range(4)) for _ in range(30)]
        text.write_text("\n\n".join(f"{' '.join(rng.choices(words, k=40))}." for _ in range(40)), encoding="utf8")
        corpus = write_corpus([text], english, tmp_path / name)
        _, start, _ = fit_to_text(None, make(), InitialWeights(model=load_model(base)), corpus)
        assert [warning.split(" ", 3)[3].split(": ")[0] for warning in start.warnings] == [PARTS] * told


def test_a_model_keeps_a_share_of_its_weights(base, headless, unextended, tmp_path, capsys):
    def run(name, init, share):
        recipe = make("budget.steps=4", f"initial_share={share}")
        pretrain_corpus(recipe, unextended, tmp_path / name, init=init, machine=CPU)
        return weights(tmp_path / name), heldout(tmp_path / name), capsys.readouterr().err

    old, (new, losses, _) = weights(base), run("new", base, 0)
    mixed, mixed_losses, errors = run("mixed", base, 0.7)
    assert f"the weights are 70% those of {base}, the rest the trained ones" in errors
    for name, value in mixed.items():
        assert torch.allclose(value, 0.7 * old[name] + 0.3 * new[name], atol=1e-6), name
    assert mixed_losses[-2]["loss"] == losses[-1]["loss"], "that of the trained weights"
    assert mixed_losses[-1]["step"] == 4
    assert mixed_losses[-1]["loss"] != losses[-1]["loss"]
    pretrain_corpus(
        make("budget.steps=4", "initial_share=0.7"), unextended, tmp_path / "mixed", init=base, machine=CPU, resume=True
    )
    assert all(torch.equal(value, mixed[name]) for name, value in weights(tmp_path / "mixed").items())
    for share in (0, 0.7):
        run(f"headless-{share}", headless, share)
    before, first, second = map(load_model, (headless, tmp_path / "headless-0", tmp_path / "headless-0.7"))
    trained, mixture = first.encoder.state_dict(), second.encoder.state_dict()
    for name, value in before.encoder.state_dict().items():
        assert torch.allclose(mixture[name], 0.7 * value + 0.3 * trained[name], atol=1e-6), name
    for name, value in second.heads["masked_lm"].items():
        tied = torch.equal(value, second.encoder.words.weight)
        assert tied or torch.equal(value, first.heads["masked_lm"][name]), name


def test_more_weights_are_kept_the_more_often_a_text_is_read(base, unextended, tmp_path, capsys):
    epochs = (0.3, 4, 8, 16, 64, 1e6)
    assert [usual_share(number) for number in epochs] == [0.7, 0.7, 0.75, 0.8, 0.9, 0.9]
    tokens = 20 * unextended.train.num_tokens
    pretrain_corpus(make(f"budget.tokens={tokens}", 'initial_share="auto"'), unextended, tmp_path / "run", init=base)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf8").splitlines()
    read = [line["epochs"] for line in map(json.loads, lines) if line["kind"] == "train"][-1]
    share = 0.7 + math.log2(read / 4) / 20
    assert 0.8 < share < 0.83
    assert f"the weights are {share:.0%} those of {base}, the rest the trained ones" in capsys.readouterr().err


def test_counts_of_tokens_are_those_of_documents_at_equal_distances(unextended, monkeypatch):
    documents = [np.concatenate(unextended.train.sentences(index)) for index in range(len(unextended.train))]
    size, total = unextended.tokenizer.size, unextended.train.num_tokens
    assert np.array_equal(unextended.train.token_counts(), np.bincount(np.concatenate(documents), minlength=size))
    monkeypatch.setattr("unmask.data.corpus.corpus.COUNTED", total // 3)
    assert np.array_equal(unextended.train.token_counts(), np.bincount(np.concatenate(documents[::3]), minlength=size))
