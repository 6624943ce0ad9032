"""What the cells of a comparison are: budgets that are equal, and keys that change with all that results depend on."""

import shutil
from contextlib import nullcontext

import msgspec
import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import load_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import to_table, write
from unmask.training.machine import choose_machine
from unmask.workflows.comparing import compute
from unmask.workflows.comparing.cells import folder_of, write_result
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.settings import Arm, TaskData, read_comparison
from unmask.workflows.comparing.work import weights_bytes
from unmask.workflows.finetuning.examples import drawn
from unmask.workflows.pretraining.default import SIZES, WEIGHT_DECAY
from unmask.workflows.pretraining.search import cost

CPU = choose_machine("cpu", "float32")


def planner(inputs, precision="float32", **changes):
    comparison = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **changes)
    return Planner(comparison, comparison.named_arms(), precision)


def keys(inputs, *kinds, **changes):
    return {
        (cell.kind, cell.key) for cell in planner(inputs, **changes).plan().cells if not kinds or cell.kind in kinds
    }


def test_operations_are_those_of_the_vocabulary_of_a_checkpoint(inputs, published):
    """A vocabulary of 250,000, as that of XLM-R, costs more than most encoders, and leaves fewer tokens."""
    arms = {"adapted": Arm(model=str(published), way="adapt"), "random": Arm(recipe="bert-tiny", way="random")}
    plan = planner(inputs, arms=arms, budget="1e14flop", settings={})
    recipe = plan.recipe("adapted", arms["adapted"], 0, 1.0)
    size = plan.vocabularies[str(published)]
    assert isinstance(recipe.encoder, BertSettings) and size < 1000 < recipe.tokenizer.vocabulary
    assert recipe.budget.tokens == pytest.approx(1e14 / cost(recipe, size).flops, rel=1e-5)
    plan.vocabularies[str(published)] = 250_002
    large = plan.recipe("adapted", arms["adapted"], 0, 1.0)
    extra = 3 * 2 * 0.15 * recipe.encoder.width * (250_002 - size)  # of the projection of masked tokens, per token
    expected = 1e14 / (cost(recipe, size).flops + extra)
    assert large.budget.tokens == pytest.approx(expected, rel=0.02)


def test_limits_of_a_recipe_in_a_file_do_not_shorten_its_budget(inputs, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(write(read_recipe("bert-tiny", {"budget.tokens": 1e6, "budget.max_minutes": 0.1})))
    arms = {"mine": Arm(recipe=str(file)), "random": Arm(recipe="bert-tiny", way="random")}
    for budget in ("2ktok", "1e11flop", "3min"):
        plan = planner(inputs, arms=arms, budget=budget)
        chosen = plan.recipe("mine", arms["mine"], 0, 1.0).budget
        assert chosen.max_minutes is None and (chosen.minutes == 3) == (budget == "3min")


@pytest.mark.parametrize("budget", ["20ktok", "1e12flop", "3min"])
def test_the_sizes_of_the_default_have_its_weight_decay_where_none_is_set(inputs, budget):
    """The rule is part of their keys; by minutes it also depends on how fast models are trained, once for all seeds."""
    tiny, often = Arm(recipe=SIZES[0]), Arm(recipe=SIZES[0], settings={WEIGHT_DECAY: 0.01})
    arms = {"tiny": tiny, "set": often, "other": Arm(recipe="bert-tiny")}
    changes = {"arms": arms, "budget": budget, "settings": {}}
    cells = planner(inputs, **changes).plan().cells
    trained = [cell for cell in cells if cell.kind == "pretraining"]
    assert {cell.arm for cell in trained if WEIGHT_DECAY in cell.inputs} == {"tiny"}
    assert len({cell.key for cell in trained}) == len(trained) == 6, "of two seeds"
    speeds = {cell.needs["speed"].key for cell in trained if "speed" in cell.needs}
    assert len(speeds) == sum(cell.kind == "speed" for cell in cells) == (budget == "3min")
    of_file = planner(inputs, **{**changes, "arms": {"tiny": tiny}, "settings": {WEIGHT_DECAY: 0.3}}).plan().cells
    assert not any(WEIGHT_DECAY in cell.inputs or "speed" in cell.needs for cell in of_file)


@pytest.mark.parametrize(("budget", "passes"), [("{}tok", 7.9), ("{}tok", 8), ("{}min", 7.9), ("{}min", 8.04)])
def test_text_that_is_read_often_is_trained_on_with_more_weight_decay(
    inputs, corpus, tmp_path, monkeypatch, budget, passes
):
    """As by `unmask pretrain` without a recipe; the report says so."""
    recipes, tokens = [], passes * corpus.train.num_tokens
    monkeypatch.setattr(compute, "pretrain", lambda recipe, **others: recipes.append(recipe))
    arm = Arm(recipe=SIZES[0], settings={"tokenizer.vocabulary": 300, "batch.tokens": 256})
    speed = 1e10
    minutes = tokens * cost(read_recipe(SIZES[0], {**arm.settings})).flops / speed / 60
    written = budget.format(f"{minutes if 'min' in budget else tokens:.6f}")
    plan = planner(inputs, arms={"tiny": arm}, budget=written, settings={}).plan()
    cell = next(cell for cell in plan.cells if cell.kind == "pretraining")
    needed = {name: folder_of(tmp_path, needed) for name, needed in cell.needs.items()}
    for folder in needed.values():
        folder.mkdir(parents=True, exist_ok=True)
    (needed["corpus"] / "corpus").symlink_to(corpus.directory)
    if "speed" in needed:
        monkeypatch.setattr(compute, "training_speed", lambda machine: speed)
        write_result(needed["speed"], cell.needs["speed"], compute.measure_speed(cell, tmp_path, {}, CPU))
    result = compute.train_model(cell, tmp_path / "cell", needed, CPU)
    often = passes >= 8
    assert [recipe.optimizer.weight_decay for recipe in recipes] == [1.0 if often else 0.01]
    assert result["notes"] == ["reads the text about 8 times, and so has a weight decay of 1"] * often


def test_all_runs_of_an_outlook_have_the_weight_decay_of_the_whole_budget(inputs, corpus, tmp_path, monkeypatch):
    """Runs with two weight decays would not be on one curve."""
    recipes, passes = [], [7.0, 8.5]
    monkeypatch.setattr(compute, "pretrain", lambda recipe, **others: recipes.append(recipe))
    arms = {"tiny": Arm(recipe=SIZES[0], settings={"batch.tokens": 256})}
    for number in passes:
        budget = f"{number * corpus.train.num_tokens:.0f}tok"
        plan = planner(inputs, arms=arms, budget=budget, settings={}, outlook=True, seeds=1).plan()
        for cell in plan.of("pretraining"):
            (folder := folder_of(tmp_path / str(number), cell)).mkdir(parents=True)
            folder.joinpath("corpus").symlink_to(corpus.directory)
            compute.train_model(cell, folder, {"corpus": folder}, CPU)
    decays = [recipe.optimizer.weight_decay for recipe in recipes]
    assert len({recipe.budget.tokens for recipe in recipes}) == 8 and decays == [0.01] * 4 + [1.0] * 4


def test_operations_of_a_student_include_its_teacher(inputs, published):
    arms = {"student": Arm(model=str(published), way="distill"), "random": Arm(recipe="bert-tiny", way="random")}
    plan = planner(inputs, arms=arms, budget="1e14flop", settings={})
    student = plan.recipe("student", arms["student"], 0, 1.0)
    alone = cost(student, plan.vocabularies[str(published)]).flops
    forward = 1e14 / student.budget.tokens - alone
    adapted = plan.recipe("teacher", Arm(model=str(published), way="adapt"), 0, 1.0)
    assert forward == pytest.approx(cost(adapted, plan.vocabularies[str(published)]).flops / 3, rel=0.25)


def test_arms_that_have_a_model_in_common_share_cells(inputs, published):
    arms = {
        "adapted": Arm(model=str(published), way="adapt"),
        "frozen": Arm(model=str(published), way="adapt", use="frozen"),
        "as it is": Arm(model=str(published)),
        "averaged": Arm(model=str(published), use="average"),
    }
    plan = planner(inputs, arms=arms).plan()
    for kind in ("pretraining", "bits", "look", "familiarity"):
        for pair in (["adapted", "frozen"], ["as it is", "averaged"]):
            cells = [[cell.key for cell in plan.of_arm(name) if cell.kind == kind] for name in pair]
            assert cells[0] == cells[1], "both have them"
            assert bool(cells[0]) == (kind != "pretraining" or pair[0] == "adapted")


def test_the_positive_label_is_the_same_for_all_runs(inputs, tmp_path):
    """A third of the examples are positive, of some draws less than a quarter: then the other label would be."""
    rows = [f"text {number}\t{'dog' if number % 3 else 'cat'}" for number in range(300)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    data = TaskData(train=[str(tmp_path / "train.tsv")], examples=[8, 20], metric="f1")
    plan = planner(inputs, tasks={"pets": data}, seeds=4).plan()
    draws = [drawn([row.split("\t")[1] for row in rows], 8, {"seed": seed}).count("cat") for seed in range(20)]
    assert min(draws) < 2 <= max(draws), "alone, runs would not agree"
    assert {cell.inputs["settings"]["task.positive"] for cell in plan.of("score")} == {"dog"}
    rare = TaskData(train=[str(tmp_path / "train.tsv")], settings={"task.positive": "cat"})
    plan = planner(inputs, tasks={"pets": rare}).plan()
    assert {cell.inputs["settings"]["task.positive"] for cell in plan.of("score")} == {"cat"}, "unless it is named"


def test_the_least_grade_is_the_same_for_all_runs(inputs, tmp_path):
    """The gains of a ranking are counted from it, and a draw may lack the lowest grade."""
    rows = [f"query {number // 8}\ttext {number}\t{0 if number % 40 == 7 else 1 + number % 3}" for number in range(200)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\ttext_b\tlabel", *rows]) + "\n")
    data = TaskData(task="ranking", train=[str(tmp_path / "train.tsv")], examples=[8, 20])
    plan = planner(inputs, tasks={"search": data}, seeds=3).plan()
    assert {cell.inputs["settings"]["task.least"] for cell in plan.of("score")} == {0.0}


@pytest.mark.parametrize(
    ("task", "metric", "remedy"),
    [
        ("classification", "acuracy", "did you mean 'accuracy'"),
        ("classification", "pearson", "known: accuracy, "),
        ("token-classification", "accuracy", "known: f1, precision, recall"),
        ("token-classification", "f1_macro", "known: f1, precision, recall"),
        ("regression", "f1", "known: pearson, spearman"),
        ("embedding", "spearman", "known: accuracy, reciprocal_rank"),
        ("ranking", "map", "known: ndcg@10"),
    ],
)
def test_metrics_that_a_task_does_not_have_are_refused_before_anything_is_trained(
    inputs, tmp_path, task, metric, remedy
):
    """Also one that only other data of the task have, and that of the second of two tasks."""
    files = {
        "classification": (inputs / "train.tsv").read_text(),
        "token-classification": "".join(f"Anna{n} B-PER\nsleeps O\n\n" for n in range(40)),
        "regression": "text\tlabel\n" + "".join(f"text {n}\t{n / 7}\n" for n in range(40)),
        "embedding": "text\ttext_b\n" + "".join(f"text {n}\tother {n}\n" for n in range(40)),
        "ranking": "text\ttext_b\tlabel\n" + "".join(f"q {n // 4}\tp {n}\t{n % 4 / 3}\n" for n in range(80)),
    }
    path = tmp_path / ("train.conll" if task == "token-classification" else "train.tsv")
    path.write_text(files[task])
    tasks = {"pets": planner(inputs).comparison.tasks["pets"]}
    tasks |= {"other": TaskData(task=task, train=[str(path)], test=[str(path)], metric=metric)}
    with pytest.raises(UserError, match=f"task 'other': no metric '{metric}' to decide by; {remedy}"):
        planner(inputs, tasks=tasks)


@pytest.mark.parametrize("use", ["frozen", "rnn", "average"])
def test_averages_of_texts_are_refused_where_tokens_are_needed(inputs, tmp_path, use):
    (tmp_path / "train.conll").write_text("".join(f"Anna{n} B-PER\nsleeps O\n\n" for n in range(40)))
    tasks = {"names": TaskData(task="token-classification", train=[str(tmp_path / "train.conll")])}
    arms = {"used": Arm(recipe="bert-tiny", use=use), "random": Arm(recipe="bert-tiny", way="random")}
    message = "arm 'used', task 'names': an average is one vector per text, but token classification needs one per "
    with pytest.raises(UserError, match=message) if use == "average" else nullcontext():
        planner(inputs, tasks=tasks, arms=arms)


def test_students_have_no_more_layers_than_their_teachers(inputs, published):
    """Teachers of every kind; the checkpoint has four layers, and the recipe that the settings change has one."""
    for layers, teacher in (
        (4, Arm(model=str(published))),
        (4, Arm(model=str(published), way="random")),
        (4, Arm(model=str(published), way="adapt")),
        (1, Arm(recipe="bert-tiny")),
    ):
        arms = {"teacher": teacher, "student": Arm(teacher="teacher", layers=layers)}
        assert planner(inputs, arms=arms).plan()
        arms["student"] = Arm(teacher="teacher", layers=layers + 1)
        with pytest.raises(UserError, match=f"arm 'student': .*{layers + 1}.*the teacher has {layers} layers"):
            planner(inputs, arms=arms).plan()


@pytest.mark.parametrize("settings", [{}, {"objective.layer_matching.layers": [1, 1, 1]}])
def test_layers_that_a_student_cannot_be_compared_with_are_refused(inputs, settings):
    """Before the teacher is trained; settings of tasks may say which layers are compared."""
    student = Arm(teacher="teacher", recipe="tinybert-mini", settings={"encoder.layers": 3}, task_settings=settings)
    arms = {"teacher": Arm(recipe="bert-tiny"), "student": student}
    refused = pytest.raises(UserError, match=r"'student': .*3 layers, but the teacher only 1")
    with nullcontext() if settings else refused:
        planner(inputs, arms=arms).plan()


def test_errors_of_recipes_name_the_arm(inputs):
    for way, settings in (("pretrain", {"encoder.rotary": 1}), ("random", {"layout.lenght": 8})):
        arms = {"wrong": Arm(recipe="bert-tiny", way=way, settings=settings), "other": Arm(recipe="bert-tiny")}
        with pytest.raises(UserError, match=r"arm 'wrong': .*unknown key"):
            planner(inputs, arms=arms).plan()


def test_sizes_are_those_of_the_models(inputs, published):
    """Of arms of every kind: with the vocabulary of the checkpoint, and with the layers of the teacher."""
    size = sum(weight.numel() for weight in load_model(published).encoder.parameters())
    layer = (
        size - sum(w.numel() for n, w in load_model(published).encoder.named_parameters() if "blocks" not in n)
    ) // 4
    arms = {
        "as it is": Arm(model=str(published)),
        "random": Arm(model=str(published), way="random"),
        "adapted": Arm(model=str(published), way="adapt"),
        "student": Arm(teacher="as it is", layers=2, recipe="tinybert-mini"),
    }
    plan = planner(inputs, arms=arms).plan()
    sizes = {cell.arm: weights_bytes(cell) for cell in plan.of("score")}
    assert sizes["random"] == sizes["adapted"] == 4 * size and sizes["student"] == 4 * (size - 2 * layer)
    assert sizes["as it is"] == pytest.approx(4 * size, rel=0.2)


def test_equal_arms_without_tasks_are_refused(inputs):
    arms = {"one": Arm(recipe="bert-tiny"), "two": Arm(recipe="bert-tiny")}
    with pytest.raises(UserError, match="arms 'one' and 'two' are the same"):
        planner(inputs, arms=arms, tasks={}, task_settings={}).plan()


@pytest.mark.parametrize(("name", "other", "part"), [("text.txt", "text.jsonl", "text"), ("test.tsv", "test.csv", "")])
def test_keys_depend_on_how_files_are_read(inputs, tmp_path, name, other, part):
    """Files with the same content and other suffixes are other text, and other examples."""
    renamed = shutil.copytree(inputs, tmp_path / "renamed")
    (renamed / name).rename(renamed / other)
    file = renamed / "pets.toml"
    file.write_text(file.read_text().replace(name, other))
    kind = "corpus" if part else "score"
    assert not keys(inputs, kind) & keys(renamed, kind)
    again = shutil.copytree(inputs, tmp_path / "again")
    (again / name).rename(again / f"another-{name}")
    file = again / "pets.toml"
    file.write_text(file.read_text().replace(f'"{name}"', f'"another-{name}"'))
    assert keys(inputs) == keys(again), "names do not matter"


def test_keys_of_what_a_checkpoint_predicts_depend_on_the_precision(inputs, published):
    arms = {"as it is": Arm(model=str(published)), "bert": Arm(recipe="bert-tiny")}
    for kind in ("bits", "familiarity", "score", "pretraining"):
        assert not keys(inputs, kind, arms=arms) & keys(inputs, kind, arms=arms, precision="bf16")
    assert keys(inputs, "corpus", arms=arms) == keys(inputs, "corpus", arms=arms, precision="bf16")


def test_the_vocabulary_that_arms_share_suits_the_text(inputs, tmp_path):
    """In Thai, WordPiece would take clauses for words; thousands of ideographs need a larger vocabulary."""
    texts = {
        "english": "the quick brown fox",
        "thai": "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำ",
        "chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 6200))),
    }

    def tokenizer(name, recipe="bert-mini", **named):
        file = tmp_path / f"{name}.txt"
        file.write_text(texts[name], encoding="utf8")
        arms = {"first": Arm(recipe=recipe), "second": Arm(recipe="bert-tiny")}
        settings = {f"tokenizer.{key}": value for key, value in named.items()}
        return planner(inputs, arms=arms, text=[str(file)], settings=settings, budget="100ktok").tokenizer

    usual = {"kind": "wordpiece", "vocabulary": 8000, "lowercase": False}
    bert = {"vocabulary": read_recipe("bert-mini").tokenizer.vocabulary}
    assert tokenizer("english", "modernbert-mini") == usual
    assert tokenizer("english") == usual | bert
    assert tokenizer("english", lowercase=True) == usual | bert | {"lowercase": True}
    assert tokenizer("thai") == usual | bert | {"kind": "unigram"}
    assert tokenizer("thai", kind="wordpiece") == usual | bert
    assert tokenizer("chinese", "modernbert-mini")["vocabulary"] == 10_500
    assert tokenizer("chinese", "modernbert-mini", vocabulary=9000)["vocabulary"] == 9000
    assert tokenizer("thai", "roberta-mini")["kind"] == "bpe", "which has a token for each byte"


def test_a_vocabulary_of_an_arm_differs_from_the_others_only_in_what_it_names(inputs):
    """An arm with a smaller vocabulary would otherwise be lowercase, and predict less than the others."""
    own = {"few": {"vocabulary": 300}, "lowercase": {"lowercase": True}, "bytes": {"kind": "bpe", "lowercase": False}}
    arms = {"first": Arm(recipe="bert-tiny"), "position": Arm(recipe="roberta-mini")}
    for name, named in own.items():
        arms[name] = Arm(recipe="bert-tiny", settings={f"tokenizer.{key}": value for key, value in named.items()})
    plan = planner(inputs, arms=arms, settings={}, budget="100ktok")
    tokenizers = {name: to_table(plan.recipe(name, arm, 0, 1.0).tokenizer) for name, arm in arms.items()}
    assert tokenizers["first"]["lowercase"] is False
    assert tokenizers == {name: tokenizers["first"] | own.get(name, {}) for name in arms}
