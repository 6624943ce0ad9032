"""The other benchmarks of time run at toy size and measure what they say."""

import lzma
import sys
from itertools import islice

import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, load_model, save_model

pytestmark = pytest.mark.minilm


@pytest.fixture
def few(benchmark_module, monkeypatch, shared, published, tmp_path):
    """An excerpt of SST-2, with few sentences to score on, and a small checkpoint."""
    monkeypatch.setattr(benchmark_module("finetune_speed"), "minilm", lambda: str(published))
    files = benchmark_module("files")
    with lzma.open(shared / "data" / files.SST2, "rt", encoding="utf8") as stream:
        (tmp_path / "sst2.tsv").write_text("".join(islice(stream, 2000)), encoding="utf8")
    monkeypatch.setattr(files.common, "SHARED", tmp_path)
    monkeypatch.setattr(files, "SST2", "sst2.tsv")
    split = files.split_sst2
    monkeypatch.setattr(files, "split_sst2", lambda: split(8))


@pytest.mark.bf16
@pytest.mark.shared
@pytest.mark.usefixtures("few")
def test_fine_tuning_does_the_products_work(benchmark_module, work, shared):
    module = benchmark_module("finetune_speed")
    found = module.measure("unmask bf16", 80, 1, 0)
    assert found["steps"] == len(work.micro_batches) - module.WARM_STEPS == 2
    assert set(work.micro_batches) == {(16,)}, "a step is one micro-batch of the whole batch"
    in_bf16 = {("fused", "bfloat16"), ("for_inference", "bfloat16")}
    assert work.kernels == in_bf16 | {kernel for kernel in work.kernels if kernel[1] == "float32"}
    assert 0 < found["seconds_per_step"] < found["wall_seconds"]
    assert 0 <= found["accuracy"] <= 100 and found["peak_bytes"] > 1e8


@pytest.mark.shared
@pytest.mark.usefixtures("few")
def test_the_trainer_fine_tunes_beside_it(benchmark_module, shared):
    module = benchmark_module("finetune_speed")
    found = module.measure("trainer float32", 80, 1, 0)
    assert found["steps"] == 2, "as many as ours, so the batch is the same"
    assert 0 < found["seconds_per_step"] < found["wall_seconds"]


@pytest.mark.parametrize("body", ["deberta", "xlnet"])
def test_bodies_of_other_families_are_written_and_read(benchmark_module, body, tmp_path, monkeypatch, published):
    module = benchmark_module("finetune_speed")
    monkeypatch.setattr(module, "minilm", lambda: str(published))
    model = load_model(module.checkpoint(body, tmp_path))
    settings = model.encoder.settings
    assert (type(settings).__struct_config__.tag, settings.layers, settings.width, settings.heads) == (body, 6, 384, 12)
    assert module.checkpoint("minilm", tmp_path) == str(published)


@pytest.mark.bf16
@pytest.mark.exhaustive
def test_where_the_time_goes(benchmark_module, work, records, run_main, monkeypatch):
    module = benchmark_module("step_profile")
    for name, value in (("CASES", ["tiny-var-bf16-0.1"]), ("INFERENCE", []), ("STEPS", 2), ("SEQUENCES", 6)):
        monkeypatch.setattr(module, name, value)
    run_main(module)
    found = {one["kind"]: one for one in records("step_profile")}
    everything = {*module.EXTENSIONS.values(), *module.KINDS}
    assert found.keys() == {*everything, "all else, including Python and numpy", "step"}
    assert found["products of matrices"]["seconds"] > 0
    parts = [one["seconds"] for kind, one in found.items() if kind != "step"]
    assert sum(parts) >= found["step"]["seconds"] * 0.999
    assert set(work.micro_batches) == {(6,)}
    in_bf16 = {("fused", "bfloat16"), ("for_inference", "bfloat16")}
    assert work.kernels == in_bf16 | {kernel for kernel in work.kernels if kernel[1] == "float32"}


@pytest.mark.shared
@pytest.mark.usefixtures("few")
@pytest.mark.exhaustive
def test_where_the_time_of_fine_tuning_goes(benchmark_module, work, records, run_main, shared, monkeypatch):
    module = benchmark_module("step_profile")
    monkeypatch.setattr(module, "EXAMPLES", 64)
    run_main(module, "finetune")
    found = {one["kind"]: one for one in records("step_profile")}
    parts = [one["seconds"] for kind, one in found.items() if kind != "step"]
    assert sum(parts) >= found["step"]["seconds"] * 0.999
    assert found["AdamW"]["seconds"] > 0
    assert set(work.micro_batches) == {(16,)}


@pytest.mark.parametrize("case", ["many-float32", "one-float32"])
def test_where_the_time_of_inference_goes(benchmark_module, records, run_main, monkeypatch, case):
    module, calls = benchmark_module("step_profile"), []
    engine = module.inference.engine

    def small(name, model, folder):
        compute = engine(name, model, folder)
        return lambda texts: calls.append(len(texts)) or compute(texts)

    monkeypatch.setitem(module.inference.SHAPES, "minilm", (1, 64, 2))
    monkeypatch.setattr(module.inference, "engine", small)
    monkeypatch.setattr(module, "TEXTS", 8)
    run_main(module, case)
    found = {one["kind"]: one for one in records("step_profile")}
    everything = {*module.EXTENSIONS.values(), *module.KINDS}
    assert found.keys() == {*everything, "all else, including Python and numpy", "text"}
    assert calls == ([8, 8, 8] if case.startswith("many") else [8] + 16 * [1])
    assert found["products of matrices"]["seconds"] + found["layers in panels"]["seconds"] > 0


def test_both_engines_learn_from_the_same_tokens(
    benchmark_module, work, records, run_main, corpus, tmp_path, monkeypatch
):
    module = benchmark_module("trainer")
    shape = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64}
    small = {f"encoder.{name}": value for name, value in shape.items()} | {"budget.tokens": 30_000}
    monkeypatch.setattr(module, "SAME", module.SAME | small)
    monkeypatch.setattr(module, "PRECISION", "float32")
    monkeypatch.setattr(module, "english_corpus", lambda folder, vocabulary: corpus)
    monkeypatch.setattr(module, "CHECKPOINTS", 2)  # each is scored
    run_main(module, "tokens", "--runs", str(tmp_path))
    ours, theirs = records("loss_parity")
    assert (ours["engine"], theirs["engine"]) == ("unmask float32", "trainer float32")
    assert set(map(sum, work.micro_batches)) == {module.SEQUENCES}
    assert set(map(len, work.micro_batches)) == {1}
    assert ours["heldout"][-1]["tokens"] == pytest.approx(theirs["heldout"][-1]["tokens"], rel=0.2)
    first = ours["heldout"][0]["masked_lm_loss"]
    assert all(curve["heldout"][-1]["masked_lm_loss"] < first for curve in (ours, theirs))


@pytest.mark.parametrize("until", ["first_step", pytest.param("first_step_finetune", marks=pytest.mark.exhaustive)])
def test_the_first_step_is_a_step_of_the_command(until, benchmark_module, corpus, tokenizer, tmp_path):
    module = benchmark_module("start")
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64)
    save_model(tmp_path / "tiny", Model(shape.build(tokenizer.size), tokenizer), "card")
    examples = tmp_path / "examples.tsv"
    examples.write_text("text\tlabel\n" + "".join(f"the dog {number}\t{number % 2}\n" for number in range(40)))
    classifier = benchmark_module("inference").write_classifier(shape, 32, tmp_path / "classifier")
    known = module.commands(corpus.directory, examples, str(tmp_path / "tiny"), classifier)
    command = [*known[until], "--out", str(tmp_path / until)]
    assert module.seconds(command, until="first step") > 0
    assert (tmp_path / until / "recipe.toml").exists(), "the command has come to its training"
    assert module.seconds(known["help"]) > 0
    assert module.seconds(known["predict"]) > 0
    with pytest.raises(RuntimeError, match="ended with status"):
        module.seconds([sys.executable, "-c", "1"], until="first step")


@pytest.mark.shared
def test_building_a_corpus_is_measured(benchmark_module, tokenizer_directory, shared, tmp_path, monkeypatch):
    module = benchmark_module("corpus")
    monkeypatch.setattr(module, "SHARDS", 3)
    monkeypatch.setattr(module, "TIMES", 2)
    monkeypatch.setattr(module, "TURNS", 1)
    monkeypatch.setattr(module, "apart", lambda function, *arguments: function(*arguments))
    found = [key | record for key, record in module.compare(tmp_path, 0.1, tokenizer_directory)]
    speeds = [one for one in found if one["measured"] == "speed"]
    assert {one["workers"] for one in speeds} == {1, 2}
    assert all(one["megabytes_per_second"] == pytest.approx(0.1 / one["seconds"], rel=0.1) for one in speeds)
    small, large = (one for one in found if one["measured"] == "memory")
    assert large["building"]["tokens"] > 1.5 * small["building"]["tokens"] > 0
    assert found[-1]["shards"] == 3


@pytest.mark.shared
def test_the_cost_of_a_crawl_is_calculated_from_its_stages(benchmark_module, tokenizer_directory, shared, tmp_path):
    module = benchmark_module("crawl")
    module.write_text(tmp_path / "a.jsonl", 0.05)
    measured = module.measure(tmp_path / "a.jsonl", tokenizer_directory, 1)
    assert min(record["text"] for record in measured.values()) > 40_000
    stages = {stage: {"text": 1e9, "seconds": 3600.0} for stage in measured}
    found = {(key["clean"], key["cores"]): record for key, record in module.costs(stages)}
    assert found["no", 16]["hours"] == pytest.approx(160 * (2 / 16 + 1))
    assert found["web", 1000]["hours"] == pytest.approx(160 * (3 / 1000 + 2))


def test_libraries_cut_text_into_sentences(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("sentences")
    monkeypatch.setattr(module, "SECONDS", 0.01)
    run_main(module)
    found = {(one["library"].rpartition(" ")[0], one["language"]): one for one in records("sentences")}
    assert {language for library, language in found if library == "sentencex"} == set(module.LANGUAGES)
    assert all(one["f1"] <= 1 and one["exact"] <= one["sentences"] for one in found.values())
    assert all(one["f1"] > 0.9 for (library, _), one in found.items() if library == "sentencex")
    assert module.quality(lambda text: [text], [["a b.", "c."], ["d."]], " ")["f1"] == 0
