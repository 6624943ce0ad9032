"""Mixtures of corpora: shares of tokens, documents that are read in part or several times, resumed builds."""

import json
from collections import Counter

import numpy as np
import pytest

import unmask
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.mix import tempered, write_mixture
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.support.errors import UserError


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, make_documents, tokenizer):
    """Corpora of 400, 100 and 30 documents."""
    folder = tmp_path_factory.mktemp("corpora")
    made = []
    for seed, count in enumerate((400, 100, 30)):
        path = folder / f"{count}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(count, seed)))
        made.append(write_corpus([path], tokenizer, folder / f"{count}"))
    return made


def documents(part):
    return Counter(tuple(map(tuple, part.sentences(index))) for index in range(len(part)))


@pytest.mark.parametrize("seed", range(12))
def test_shares_of_tokens(corpora, tmp_path, seed):
    rng = np.random.default_rng(seed)
    shares = (rng.random(3) + 0.05).tolist()
    tokens = None if seed % 3 == 0 else float(rng.integers(500, 6000))
    mixed = write_mixture(corpora, shares, tmp_path / "mixed", tokens=tokens, most_repeats=1000, seed=seed)
    sizes = np.array([corpus.train.num_tokens for corpus in corpora])
    wanted = np.array(shares) / sum(shares)
    total = tokens or (sizes / wanted).min()
    longest = max(corpus.train.lengths().max() for corpus in corpora)
    assert abs(mixed.train.num_tokens - total) <= 3 * longest
    found = documents(mixed.train)
    for corpus, share in zip(corpora, wanted, strict=True):
        own = documents(corpus.train)
        tokens_of = {document: sum(map(len, document)) for document in own}
        times = {document: found[document] / count for document, count in own.items()}
        whole = total * share // corpus.train.num_tokens
        assert all(whole <= number <= whole + 1 for number in times.values())
        read = sum(found[document] * tokens_of[document] for document in own)
        assert abs(read - total * share) <= longest
    assert found.keys() == {key for corpus in corpora for key in documents(corpus.train)} & found.keys()
    assert mixed.heldout.num_tokens > 0 and mixed.tokenizer.size == corpora[0].tokenizer.size
    mixed.verify()


def test_what_one_corpus_holds_out_and_another_trains_on_is_counted(corpora, tokenizer, make_documents, tmp_path):
    held, path = documents(corpora[2].heldout), tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(30, 2)))
    other = write_corpus([path], tokenizer, tmp_path / "other", heldout=None)
    lines = []
    write_mixture(corpora, None, tmp_path / "apart", report=lines.append)
    assert not any("too low" in line for line in lines)
    write_mixture([corpora[2], other], None, tmp_path / "mixed", report=lines.append)
    assert lines[-1].startswith(f"{held.total()} of {held.total()} held-out documents equal a document that is trained")


def test_nothing_is_read_twice_by_default_and_proportions_are_kept(corpora, tmp_path, files_of):
    paths = [str(corpus.directory) for corpus in corpora]
    whole = unmask.mix_corpora(paths, tmp_path / "whole", quiet=True)
    assert documents(whole.train) == sum((documents(corpus.train) for corpus in corpora), Counter())
    assert documents(whole.heldout) == sum((documents(corpus.heldout) for corpus in corpora), Counter())
    one = unmask.mix_corpora(paths, tmp_path / "one", shares=[0.1, 0.6, 0.3], quiet=True)
    assert max(documents(one.train).values()) <= max(documents(whole.train).values())
    again = unmask.mix_corpora(paths, tmp_path / "again", shares=[1, 6, 3], quiet=True)
    assert files_of(one.directory) == files_of(again.directory)
    other = unmask.mix_corpora(paths, tmp_path / "other", shares=[1, 6, 3], seed=1, quiet=True)
    assert documents(other.train) != documents(one.train)


def test_temperature(corpora):
    sizes = [corpus.train.num_tokens for corpus in corpora]
    np.testing.assert_allclose(tempered(corpora, 1.0), np.array(sizes) / sum(sizes))
    np.testing.assert_allclose(tempered(corpora, 1e9), [1 / 3] * 3, rtol=1e-6)
    flatter = tempered(corpora, 2.0)
    assert flatter[0] < sizes[0] / sum(sizes) and flatter[0] / flatter[1] == pytest.approx((sizes[0] / sizes[1]) ** 0.5)


def test_an_interrupted_mixture_continues(corpora, tmp_path, files_of, monkeypatch):
    def mix(out):
        return write_mixture(corpora, [3, 2, 1], out, tokens=4000, report=lines.append)

    monkeypatch.setattr("unmask.data.corpus.mix.SHARD_TOKENS", 500)
    lines = []
    whole = mix(tmp_path / "whole")
    reads, read = [], type(corpora[0].train).sentences

    def failing(self, index):
        if len(reads) == 150:
            raise KeyboardInterrupt
        reads.append(index)
        return read(self, index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(corpora[0].train), "sentences", failing)
        mix(tmp_path / "stopped")
    resumed = mix(tmp_path / "stopped")
    assert any("reusing" in line for line in lines)
    assert files_of(resumed.directory) == files_of(whole.directory)


def test_a_mixture_is_trained_on(corpora, tmp_path):
    mixed = write_mixture(corpora, [1, 1, 1], tmp_path / "mixed")
    settings = {"encoder.width": 16, "encoder.heads": 2, "encoder.feed_forward": 32, "encoder.layers": 1}
    settings |= {"budget.steps": 2, "batch.tokens": 256, "layout.length": 32}
    run = unmask.pretrain("bert-tiny", mixed, out=tmp_path / "run", settings=settings, device="cpu", quiet=True)
    assert (run / "model.safetensors").exists()


def test_what_cannot_be_mixed_is_refused(corpora, tmp_path, make_documents):
    first, second, third = (str(corpus.directory) for corpus in corpora)
    source = tmp_path / "other.txt"
    source.write_text("\n\n".join(make_documents(20)))
    other = write_corpus([source], train_wordpiece(["other words of a text"] * 3, size=60), tmp_path / "other")
    for given, options, message in (
        ([first], {}, "at least two"),
        ([first, first], {}, "400: is given twice"),
        ([first, str(other.directory)], {}, "other: its vocabulary is not that of .*400"),
        ([first, second], {"shares": [1.0]}, "1 shares for 2 corpora"),
        ([first, second], {"shares": [1.0, 0.0]}, "shares must be above 0, not 0"),
        ([first, second], {"shares": [1.0, 2.0], "temperature": 2.0}, "cannot be combined"),
        (
            [first, third],
            {"shares": [1.0, 1.0], "tokens": 2e4},
            "/30: would be read .* times; lower its share or tokens",
        ),
    ):
        with pytest.raises(UserError, match=message):
            unmask.mix_corpora(given, tmp_path / "out", quiet=True, **options)
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    with pytest.raises(UserError, match="not empty"):
        unmask.mix_corpora([first, second], tmp_path / "out", quiet=True)
