"""Stages that read other corpora, as mixtures with other shares: what each reads, where it goes on, exact resume."""

import os
import shutil
import signal

import msgspec
import pytest
import safetensors.torch

from unmask.data.batches import sources
from unmask.data.batches.curriculum import Curriculum, Feed, StagedSource
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.sources import CorpusSource, Stage
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UnmaskError, UserError
from unmask.support.settings import parse_overrides
from unmask.training import loop
from unmask.training.machine import choose_machine
from unmask.workflows.pretraining.pretrain import pretrain_corpus

SMALL = ["encoder.layers=1", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64", "encoder.positions=64"]
SMALL += ["layout.length=32", "batch.tokens=512", "optimizer.learning_rate=1e-3", "budget.steps=5"]
STEPS = 5


def recipe(*corpora, shares=None):
    """Return a recipe with a stage for each corpus, of which "" is that of the run."""
    tables = [
        f"{{share={1 / len(corpora) if shares is None else shares[number]}"
        + (f",corpus='{corpus}'}}" if corpus else "}")
        for number, corpus in enumerate(corpora)
    ]
    return read_recipe("bert-tiny", parse_overrides([*SMALL, f"stages=[{','.join(tables)}]"]))


@pytest.fixture(scope="module")
def other(tokenizer, tmp_path_factory):
    """A corpus with other documents, all of which begin with the same words."""
    folder = tmp_path_factory.mktemp("other")
    text = folder / "other.txt"
    text.write_text(
        "\n\n".join(f"Other text number {number} is here. It ends again. So it is." for number in range(300))
    )
    return write_corpus([text], tokenizer, folder / "corpus")


@pytest.fixture
def pretrain(corpus, tmp_path, monkeypatch):
    """Pretrains on a corpus of several blocks."""
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)

    def start(recipe, name="run", **more):
        pretrain_corpus(recipe, corpus, tmp_path / name, machine=choose_machine("cpu", "float32"), quiet=True, **more)
        return tmp_path / name

    return start


def metrics(run):
    found = [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    return [(line["step"], line["tokens"], line["loss"]) for line in found if line["kind"] == "train"]


def weights(run):
    return safetensors.torch.load_file(run / "checkpoints" / f"step-{STEPS:08d}" / "model.safetensors")


def test_each_stage_reads_its_corpus_and_goes_on_where_it_stopped(corpus, other, tokenizer, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)
    feed = Feed(
        DocumentSentencesSettings(length=16), TokenMaskingSettings(rate=0.2), 0, tokenizer, lambda sample: sample
    )
    curriculum = Curriculum([Stage(share=0.25, length=16)] * 4, [feed] * 4)
    source = curriculum.source(corpus.train, {0: other.train, 2: other.train})
    assert isinstance(source, StagedSource)
    alone = {number: curriculum.source(each.train) for number, each in enumerate((other, corpus))}
    cursors = {number: each.start for number, each in alone.items()}
    cursor, seen, epochs = source.start, [], [0.0]
    for step in range(16):
        stage = step // 4
        number = stage % 2
        assert isinstance(alone[number], CorpusSource)
        expected, cursors[number] = alone[number].take(alone[number].enter(cursors[number], stage), tokens=200)
        cursor = source.enter(cursor, stage)
        assert source.enter(cursor, stage) == cursor
        taken, cursor = source.take(cursor, tokens=200)
        assert [sample.key for sample in taken] == [(number, *sample.key) for sample in expected]
        assert [sample.ids.tolist() for sample in taken] == [sample.ids.tolist() for sample in expected]
        assert {sample.stage for sample in taken} == {stage}
        seen += [sample.key for sample in taken]
        epochs.append(source.epochs(cursor))
    assert len(seen) == len(set(seen)), "a sample was read twice"
    assert epochs == sorted(epochs)
    sizes = [other.train.num_tokens, corpus.train.num_tokens]
    read = sum(alone[number].epochs(cursors[number]) * size for number, size in enumerate(sizes))
    assert epochs[-1] == pytest.approx(read / sum(sizes))


def test_T1_a_stop_after_each_step(pretrain, other, tmp_path, monkeypatch):
    staged, step = recipe(other.directory, "", other.directory, ""), loop.Trainer.step
    whole = pretrain(staged, "whole")

    def signalling(self):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "step", signalling)
        for number in range(1, STEPS + 1):
            with pytest.raises(UnmaskError, match=f"stopped and saved at step {number}"):
                pretrain(staged, resume=number > 1)
    run = pretrain(staged, resume=True)
    assert metrics(run) == metrics(whole)
    assert all(value.equal(weights(whole)[name]) for name, value in weights(run).items())
    plain = pretrain(recipe("", "", "", ""), "plain")
    assert metrics(plain) != metrics(whole)
    report = (whole / "report.md").read_text()
    assert f"- length 32, corpus {other.directory}: 2 steps of" in report


def test_a_copy_of_the_corpus_of_the_run_is_not_read_twice(pretrain, corpus, tmp_path):
    shutil.copytree(corpus.directory, tmp_path / "copy")
    copied, plain = pretrain(recipe(tmp_path / "copy", ""), "copied"), pretrain(recipe("", ""), "plain")
    tokens = [[tokens for _, tokens, _ in metrics(run)] for run in (copied, plain)]
    assert tokens[0] == tokens[1]


def test_what_does_not_fit_is_refused(pretrain, other, documents, text_file, tmp_path):
    with pytest.raises(UserError, match=r"stages\[1\] is the last stage, which reads the corpus of the run"):
        recipe("", other.directory)
    with pytest.raises(UserError, match=r"^stages\[0\]\.corpus is a URL, but recipes name directories of this machine"):
        pretrain(recipe("s3://user:secret@bucket/corpus", ""))
    with pytest.raises(UserError, match="nowhere"):
        pretrain(recipe(tmp_path / "nowhere", ""))
    write_corpus([text_file], train_wordpiece(documents, size=150), tmp_path / "foreign")
    with pytest.raises(UserError, match=r"foreign: stages\[0\]\.corpus: its vocabulary is not that of"):
        pretrain(recipe(tmp_path / "foreign", ""))
    shutil.copytree(other.directory, tmp_path / "other")
    staged = recipe(tmp_path / "other", "")
    pretrain(staged)
    shutil.rmtree(tmp_path / "other")
    more = tmp_path / "more.txt"
    more.write_text("\n\n".join(f"More text number {number}. It ends again." for number in range(300)))
    write_corpus([more], other.tokenizer, tmp_path / "other")
    with pytest.raises(UserError, match=r"corpus of stages\[0\]"):
        pretrain(staged, resume=True)
