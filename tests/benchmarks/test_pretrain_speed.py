"""The benchmark of pretraining does the work of `unmask pretrain`: the same micro-batches, kernels and precision."""

import json

import pytest
import torch

from unmask.cli.main import main

pytestmark = pytest.mark.minilm
CASES = {"bf16": "tiny-var-bf16-0.1", "float32": "tiny-full128-float32-0.0"}


@pytest.mark.parametrize(
    "precision", [pytest.param("bf16", marks=[pytest.mark.bf16, pytest.mark.exhaustive]), "float32"]
)
def test_it_does_the_products_work(benchmark_module, work, precision, text_file, minilm, tmp_path):
    module = benchmark_module("pretrain_speed")
    found = module.run_unmask(module.Work.parse(CASES[precision], steps=2, sequences=6))
    steps, kernels = work.micro_batches[:], set(work.kernels)
    assert steps == [(6,)] * (module.WARM_STEPS + 2), "six sequences fit into memory: a step is one micro-batch"
    assert found["precision"] == precision
    assert found["micro_tokens"] >= found["largest_step"] > 0
    assert found["tokens_per_second"] == pytest.approx(found["tokens"] / found["seconds"])
    assert 0 < found["seconds"] < found["wall_seconds"]
    assert found["share_of_peak"] > 0

    work.micro_batches.clear(), work.kernels.clear()
    settings = ["batch.sequences=6", "budget.steps=2", "encoder.layers=1", "tokenizer.vocabulary=300"]
    command = ["pretrain", "bert-tiny", "--text", str(text_file), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*command, "--precision", precision, *(word for one in settings for word in ("--set", one))]) == 0
    assert set(map(len, work.micro_batches)) == set(map(len, steps)) == {1}
    assert work.kernels == kernels


@pytest.mark.exhaustive
def test_a_run_in_single_sequences_is_seen(benchmark_module, work):
    """What once went unnoticed: every sequence a micro-batch of its own."""
    module = benchmark_module("pretrain_speed")
    done = module.Work.parse(CASES["float32"], steps=2, sequences=6)
    found = module.run_unmask(done, **{"batch.micro_tokens": 1})
    assert set(work.micro_batches) == {(1,) * 6}
    assert found["micro_tokens"] < found["largest_step"]


def test_both_engines_read_the_same_sequences(benchmark_module, minilm):
    module, transformers = benchmark_module("pretrain_speed"), pytest.importorskip("transformers")
    work = module.Work.parse("tiny-var-bf16-0.1", steps=2, sequences=6)
    ours = module.unmask.load_tokenizer(minilm)
    texts = work.texts(ours)
    theirs = transformers.AutoTokenizer.from_pretrained(minilm)(texts)["input_ids"]
    assert [len(ids) for ids in theirs] == work.lengths().tolist()
    assert [ours.encode(text).tolist() for text in texts] == [ids[1:-1] for ids in theirs]


def test_both_engines_have_the_same_body(benchmark_module, minilm):
    pytest.importorskip("transformers")
    module, peers = benchmark_module("pretrain_speed"), benchmark_module("peers")
    words = module.unmask.load_tokenizer(minilm)
    for model in ("bert-tiny", "modernbert-base"):
        encoder = module.Work(model, "full128", "float32", 0.1).recipe().encoder
        with torch.device("meta"):
            theirs = peers.masked_lm(encoder, words).config
        assert (theirs.num_hidden_layers, theirs.hidden_size) == (encoder.layers, encoder.width)
        assert (theirs.intermediate_size, theirs.vocab_size) == (encoder.feed_forward, words.size)
        dropouts = {value for name, value in theirs.to_dict().items() if "dropout" in name and value}
        assert dropouts == {0.1}


@pytest.mark.exhaustive
def test_engines_take_turns_and_each_round_is_a_record(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("pretrain_speed")
    monkeypatch.setattr(module, "CASES", {CASES["float32"]: (2, 4)})
    run_main(module, "--rounds", "0")
    found = records("pretrain_speed")
    assert [(one["engine"], one["round"]) for one in found] == [(engine, 0) for engine in module.ENGINES]
    assert all(one["tokens_per_second"] > 0 and one["case"] == CASES["float32"] for one in found)
    assert "python benchmarks/pretrain_speed.py" in json.dumps(found[0]["about"])
