"""Every case of benchmarks/pretraining.toml runs at toy size, on made-up text; the real files can be read."""

import importlib
import json
import lzma
import math
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from unmask.model.model import load_model
from unmask.training.runs.directory import RunDirectory

from .. import forking

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CURVE = {
    "pretrain_mini": {"case", "guess", "most_frequent_token", "corpus_tokens", "steps", "minutes"},
    "adapt_minilm": {"case", "guess", "settings", "steps"},
    "chinese": {"case", "guess", "corpus_tokens", "steps", "epochs", "minutes"},
    "chinese_default": {"case", "guess", "corpus_tokens", "steps", "epochs"},
    "pretraining_pays": {"case", "guess", "settings", "steps", "epochs"},
    "minutes": {"case", "learning_rate", "searched", "step", "epochs", "end"},
    "changes": {"case", "seed", "learning_rate", "searched", "step", "end"},
    "sizes": {"case", "seed", "recipe", "settings", "learning_rate", "matrix_learning_rate", "step", "end"},
    "passes": {"case", "budget", "settings", "step", "epochs", "end"},
    "curriculum": {"case", "settings", "learning_rate", "searched", "step"},
    "plateau": {"case", "step", "end"},
    "lengths": {"case", "settings", "step", "epochs", "guess"},
    "distillation": {"case", "settings", "step", "end"},
    "published": {"case", "recipe", "settings", "learning_rate", "step", "epochs"},
    "family": {"member", "budget", "learning_rate", "searched", "guess", "step", "epochs"},
}
"""Fields that the tables read, beside heldout, tokens and seconds."""


@pytest.fixture(scope="module")
def bench(toy):
    """The script as a module, and a folder for all toy runs."""
    return importlib.import_module("pretrain"), toy


def cases():
    table = tomllib.loads((BENCHMARKS / "pretraining.toml").read_text(encoding="utf8"))
    return [f"{group}/{case}" for group, shared in table.items() if group != "texts" for case in shared["cases"]]


ALWAYS = ("minutes/trainer", "changes/pairs-later", "changes/short-first")
"""Cases of another engine and with stages, which run like the first case of each group."""


def cases_to_run():
    """Return all cases; of those of a group, which have the same fields, most run with --exhaustive alone."""
    seen, found = set(), []
    for name in cases():
        group = name.partition("/")[0]
        often = group not in seen or name in ALWAYS
        found.append(name if often else pytest.param(name, marks=pytest.mark.exhaustive))
        seen.add(group)
    return found


def records(folder, result):
    return json.loads((folder / "results" / f"{result}.json").read_text(encoding="utf8"))["runs"]


@pytest.mark.parametrize("name", cases_to_run())
def test_a_case_runs_at_toy_size_and_leaves_its_record(bench, name):
    pretrain, folder = bench
    before = sorted(pretrain.common.RESULTS.iterdir())
    pretrain.main([name, "--toy", "--runs", str(folder)])
    group, _, case = name.partition("/")
    result = pretrain.read_cases()[1][name].result
    names = (name, case)
    (record,) = [run for run in records(folder, result) if run.get("case") in names or run.get("member") in names]
    assert CURVE[group] | {"heldout", "tokens", "seconds", "about"} <= record.keys()
    steps = record.get("step", record.get("steps"))
    assert steps == (4 if case == "electra-warmed" else 2)
    assert record["heldout"][-1]["step"] == 2
    assert all(math.isfinite(line["loss"]) for line in record["heldout"])
    assert record["heldout"][-1]["loss"] != record["heldout"][0]["loss"]
    lines = RunDirectory(folder / "pretrain" / name).read_metrics("train")
    assert [line["step"] for line in lines] == [1, 2]
    assert 0 < lines[0]["tokens"] < lines[1]["tokens"] <= record["tokens"]
    assert load_model(folder / "pretrain" / name).encoder.settings.width == 32
    assert sorted(pretrain.common.RESULTS.iterdir()) == before, "toy results are not among the real ones"


def test_every_case_has_a_recipe(bench):
    pretrain, folder = bench
    known, toy = pretrain.read_cases()[1], pretrain.Workspace(folder, toy=True)
    for name in cases():
        assert pretrain.Pretraining(known[name], toy).recipe().objectives, name


def test_a_case_with_a_record_is_not_run_again(bench, capsys):
    pretrain, folder = bench
    for _ in range(2):
        pretrain.main(["plateau/all", "--toy", "--runs", str(folder)])
    assert "in benchmarks/results/plateau.json already" in capsys.readouterr().out
    assert len([run for run in records(folder, "plateau") if run["case"] == "all"]) == 1


def test_an_interrupted_case_is_resumed(bench):
    pretrain, folder = bench
    pretrain.main(["plateau/spans", "--toy", "--runs", str(folder)])
    run, results = folder / "pretrain/plateau/spans", folder / "results/plateau.json"
    shutil.rmtree(run / "model")
    others = [record for record in records(folder, "plateau") if record["case"] != "spans"]
    results.write_text(json.dumps({"runs": others}), encoding="utf8")
    before = RunDirectory(run).read_metrics("train")
    pretrain.main(["plateau/spans", "--toy", "--runs", str(folder)])
    assert RunDirectory(run).read_metrics("train") == before, "no step is trained twice"
    assert (run / "model/config.json").exists()
    assert [record["case"] for record in records(folder, "plateau")] == [*(it["case"] for it in others), "spans"]


def test_the_family_searches_its_learning_rate(bench):
    pretrain, folder = bench
    pretrain.main(["family/electra", "--toy", "--runs", str(folder)])
    (run,) = [run for run in records(folder, "family") if run["member"] == "electra"]
    assert list(run["searched"]) == ["8.75e-05", "0.000175", "0.00035"]
    assert run["learning_rate"] == float(min(run["searched"], key=run["searched"].get))
    assert run["budget"] == 20_000_000
    assert run["out_of_context"] == pytest.approx(math.log(2), abs=0.1), "nothing is learned in two steps"
    assert not [*(folder / "pretrain/family").glob("electra-x*")]


def test_the_warmed_electra_starts_with_masked_tokens_alone(bench):
    pretrain, folder = bench
    pretrain.main(["family/electra-warmed", "--toy", "--runs", str(folder)])
    first, last = (
        RunDirectory(folder / f"pretrain/family/electra-warmed{end}").read_metrics("heldout") for end in ("-first", "")
    )
    assert "masked_lm_loss" in first[-1] and "replaced_token_loss" not in first[-1]
    assert "replaced_token_loss" in last[-1]
    (run,) = [run for run in records(folder, "family") if run["member"] == "electra-warmed"]
    assert run["heldout"][0]["tokens"] == first[-1]["tokens"], "the curve counts the tokens of the first part"


@pytest.mark.exhaustive
def test_xlnet_reads_streams_in_both_directions_and_starts_local(bench):
    pretrain, folder = bench
    pretrain.main(["family/xlnet", "--toy", "--runs", str(folder)])
    model = load_model(folder / "pretrain/family/xlnet")
    assert (model.encoder.settings.memory, list(model.heads)) == (96, ["permutation_lm"])
    full = pretrain.Pretraining(pretrain.read_cases()[1]["family/xlnet"], pretrain.Workspace(Path())).recipe()
    assert (full.layout.length, full.layout.reuse, full.layout.streams, full.batch.sequences) == (128, 64, 8, 8)
    assert (full.encoder.initial_offsets, full.encoder.dropout, full.optimizer.kind) == ((-1, 1), 0, "adamw")


@pytest.mark.exhaustive
def test_a_distilled_student_learns_from_its_teacher_what_the_other_one_learns_alone(bench):
    pretrain, folder = bench
    pretrain.main(["distillation", "--toy", "--runs", str(folder)])
    runs = {record["case"]: record for record in records(folder, "distillation")}
    assert runs["distilled"]["compared"].keys() == {"teacher", "student"}
    assert "compared" not in runs["scratch"]
    assert "soft_targets_loss" in runs["distilled"]["heldout"][-1]
    assert "masked_lm_loss" in runs["scratch"]["heldout"][-1]
    report = (folder / "pretrain/distillation/distilled/report.md").read_text(encoding="utf8")
    assert f"distilled from {folder / 'pretrain/lengths/bert-512/model'}" in report
    cases, work = pretrain.read_cases()[1], pretrain.Workspace(Path())
    names = {name: f"distillation/{name}" for name in runs} | {"teacher": "lengths/bert-512"}
    full = {name: pretrain.Pretraining(cases[case], work).recipe() for name, case in names.items()}
    fields = pretrain.msgspec.structs.asdict
    others = [key for key, value in fields(full["scratch"]).items() if value != fields(full["distilled"])[key]]
    assert others == ["objective"], "the same student, in the same time"
    positions = full["scratch"].encoder.positions
    assert full["scratch"].encoder == pretrain.msgspec.structs.replace(
        full["teacher"].encoder, layers=2, positions=positions
    )


def test_elmo_reads_streams_of_whole_words(bench):
    pretrain, folder = bench
    pretrain.main(["family/elmo", "--toy", "--runs", str(folder)])
    run = folder / "pretrain/family/elmo"
    assert load_model(run).tokenizer.kind.name == "words"
    full = pretrain.Pretraining(pretrain.read_cases()[1]["family/elmo"], pretrain.Workspace(Path())).recipe()
    assert (full.layout.length, full.layout.streams, full.batch.sequences, full.encoder.dropout) == (20, 64, 64, 0)


def test_adaptation_starts_from_the_checkpoint_and_the_other_case_from_random_weights(bench):
    pretrain, folder = bench
    pretrain.main(["adapt_minilm", "--toy", "--runs", str(folder)])
    inputs = {
        case: json.loads((folder / "pretrain/adapt_minilm" / case / "provenance.json").read_bytes())["inputs"]["init"]
        for case in ("minilm", "random")
    }
    assert inputs["random"] == "none" != inputs["minilm"]
    shapes = [load_model(folder / "pretrain/adapt_minilm" / case).encoder.settings for case in ("minilm", "random")]
    assert shapes[0] == shapes[1]


def test_a_setting_from_the_command_line_has_a_record_of_its_own(bench):
    pretrain, folder = bench
    pretrain.main(["plateau/long", "--set", "masking.rate=0.3", "--toy", "--runs", str(folder)])
    (run,) = [run for run in records(folder, "plateau") if run.get("set")]
    assert (run["case"], run["set"]) == ("long", ["masking.rate=0.3"])
    assert "rate = 0.3" in (folder / "pretrain/plateau/long-masking.rate=0.3/recipe.toml").read_text(encoding="utf8")


def test_the_first_documents_of_a_text_are_an_excerpt(bench, tmp_path, monkeypatch):
    pretrain, _ = bench
    texts, cases = pretrain.read_cases()
    assert texts["little"].documents == 125 and texts["little"].tokenizer == "english-8000"
    few = pretrain.msgspec.structs.replace(texts["little"], documents=7)
    monkeypatch.setattr(pretrain, "read_cases", lambda: ({**texts, "few": few}, cases))
    work = pretrain.Workspace(tmp_path, toy=True)
    whole, corpus = (pretrain.corpus_of(name, work) for name in ("little", "few"))
    assert len(whole.train) > len(corpus.train) == 7
    for index in range(7):
        sentences = [[part.tolist() for part in one.train.sentences(index)] for one in (whole, corpus)]
        assert sentences[0] == sentences[1]
    assert len(corpus.heldout) == len(whole.heldout)
    assert corpus.tokenizer.size == whole.tokenizer.size


def test_budgets_of_a_case_have_records_of_their_own(bench):
    pretrain, folder = bench
    for budget in ([], ["--budget", "tokens=1_600_000"]):
        pretrain.main(["passes/decay", *budget, "--toy", "--runs", str(folder)])
    runs = [run for run in records(folder, "passes") if run["case"] == "decay"]
    assert [run["budget"] for run in runs] == [6_400_000, 1_600_000]


def test_the_sizes_have_multiples_of_both_learning_rates_of_their_recipe(bench):
    pretrain, _ = bench
    for name in ("tiny", "mini", "small"):
        recipe = pretrain.unmask.read_recipe(f"modernbert-{name}")
        for end, factor in (("-half", 0.5), ("", 1.0), ("-twice", 2.0)):
            case = pretrain.read_cases()[1][f"sizes/{name}{end}"]
            optimizer = pretrain.Pretraining(case, pretrain.Workspace(Path())).recipe().optimizer
            assert optimizer.learning_rate == pytest.approx(factor * recipe.optimizer.learning_rate)
            assert optimizer.matrix_learning_rate == pytest.approx(factor * recipe.optimizer.matrix_learning_rate)


def test_the_masked_lm_beside_electra_differs_in_the_objective_and_the_masks_alone(bench):
    pretrain, _ = bench
    work = pretrain.Workspace(Path())
    electra, masked_lm = (
        pretrain.Pretraining(pretrain.read_cases()[1][f"curriculum/{name}"], work).recipe()
        for name in ("electra", "masked-lm")
    )
    fields = pretrain.msgspec.structs.asdict
    others = {name: value for name, value in fields(masked_lm).items() if value != fields(electra)[name]}
    assert others.keys() - {"stages"} == {"objective", "masking"}
    assert masked_lm.stages == ()
    assert {name for name, part in fields(masked_lm.objective).items() if part is not None} == {"masked_lm"}
    assert (masked_lm.masking.rate, masked_lm.masking.final_rate) == (0.4, 0.15)


def test_all_groups_are_among_all_benchmarks():
    commands = (BENCHMARKS / "all.sh").read_text(encoding="utf8").split()
    assert {name.partition("/")[0] for name in cases()} <= set(commands)


@pytest.mark.exhaustive
def test_cost_is_measured_in_a_process_per_member(bench, monkeypatch):
    pretrain, folder = bench
    members = ["family/bert", "family/elmo"]
    processes = []

    def run(command, **options):
        processes.append(command[2])
        return forking.run(command[1:])

    monkeypatch.setattr(pretrain, "subprocess", SimpleNamespace(run=run))  # which would import torch again for each
    pretrain.main([*members, "--cost", "--steps", "4", "--rounds", "1", "--toy", "--runs", str(folder)])
    assert processes == members
    runs = records(folder, "family_cost")
    assert [(run["member"], run["round"], run["steps"]) for run in runs] == [("bert", 0, 4), ("elmo", 0, 4)]
    assert all(run[name] > 0 for run in runs for name in ("seconds_a_token", "flops_a_token", "peak_mib"))


@pytest.mark.shared
def test_the_files_of_all_texts_are_there_and_can_be_read(bench, shared, tmp_path, monkeypatch):
    pretrain, _ = bench
    monkeypatch.setattr(pretrain.common, "SHARED", shared / "data")
    texts, _ = pretrain.read_cases()
    full = pretrain.Workspace(tmp_path)
    for text in texts.values():
        assert all(path.exists() for path in full.files([*text.train, *text.heldout]))
    corpus = pretrain.corpus_of("chinese", pretrain.Workspace(tmp_path, toy=True))
    assert corpus.train.num_tokens > 500


@pytest.mark.minilm
@pytest.mark.exhaustive
def test_the_checkpoint_itself_is_adapted(bench, minilm, tmp_path, monkeypatch):
    pretrain, _ = bench
    monkeypatch.setattr(pretrain.common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(pretrain.common, "SHARED", tmp_path / "data")
    toy = pretrain.Workspace(tmp_path / "toy", toy=True)
    for part in ("train", "heldout"):
        path = tmp_path / f"data/text/wikinews/{part}.jsonl.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = toy.files([f"text/wikinews/{part}.jsonl.xz"])[0].read_bytes().splitlines(keepends=True)
        path.write_bytes(lzma.compress(b"".join(lines[: None if part == "train" else 8])))
    arguments = ["--budget", "steps=2", "--set", "batch.tokens=256", "--runs", str(tmp_path / "runs")]
    pretrain.main(["adapt_minilm/minilm", *arguments])
    (run,) = records(tmp_path, "pretraining")
    assert (run["case"], run["steps"], run["set"]) == ("adapt_minilm/minilm", 2, ["budget.steps=2", "batch.tokens=256"])
    (path,) = (tmp_path / "runs/pretrain/adapt_minilm").iterdir()
    given, adapted = (load_model(model).encoder.state_dict() for model in (minilm, path))
    changes = [float((adapted[name] - given[name]).abs().max()) for name in given if "pooler" not in name]
    assert 0 < max(changes) < 0.01, "two small steps away from the checkpoint"
