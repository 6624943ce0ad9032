import pytest

from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import write
from unmask.workflows.comparing.checks import check_comparison
from unmask.workflows.comparing.design import SHORT, read_factors
from unmask.workflows.comparing.settings import (
    Arm,
    Budget,
    Comparison,
    TaskData,
    read_arm,
    read_budget,
    read_comparison,
)

TASKS = {"t": TaskData(train=["train.tsv"])}


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("30min", 30, "minutes"),
        ("2h", 120, "minutes"),
        ("90 s", 1.5, "minutes"),
        ("200Mtok", 2e8, "tokens"),
        ("1.5ktok", 1500, "tokens"),
        ("1e16flop", 1e16, "flops"),
        ("3 Pflops", 3e15, "flops"),
    ],
)
def test_budgets(text, amount, unit):
    assert read_budget(text) == Budget(pytest.approx(amount), unit)


@pytest.mark.parametrize(
    "text", ["", "30", "min", "-3min", "0tok", "3Mmin", "1.2.3tok", "nan min", "1e999tok", "30 days"]
)
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(UserError, match="budget"):
        read_budget(text)


def test_arms_in_words(tmp_path):
    (tmp_path / "mini").mkdir()
    model = f"{tmp_path}/mini"
    words = ["bert-mini", model, f"{model}+adapt", f"{model}+distill@frozen", "random@rnn", "albert-mini@average"]
    arms = Comparison(arms=words, tasks=TASKS).named_arms()
    assert list(arms) == ["bert-mini", "mini", "mini+adapt", "mini+distill@frozen", "random@rnn", "albert-mini@average"]
    assert [arm.way for arm in arms.values()] == ["pretrain", "", "adapt", "distill", "random", "pretrain"]
    assert arms["random@rnn"].recipe == "bert-mini"
    assert [(arm.frozen, arm.downstream) for arm in arms.values()][2:] == [
        (None, None),
        (True, None),
        (True, "rnn"),
        (True, "average"),
    ]


def test_names_of_directories_are_short_but_different(tmp_path):
    for name in ("a/mini/model", "b/mini"):
        (tmp_path / name).mkdir(parents=True)
    words = [f"{tmp_path}/a/mini/model", f"{tmp_path}/a/mini/model+adapt@frozen"]
    assert list(Comparison(arms=words, tasks=TASKS).named_arms()) == ["mini", "mini+adapt@frozen"]
    both = Comparison(arms=[f"{tmp_path}/a/mini/", f"{tmp_path}/b/mini"], tasks=TASKS).named_arms()
    assert len(both) == 2 and all(name.endswith("mini") for name in both)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("brt-mini", "bert-mini"),
        ("bert-mini@frosen", "frozen"),
        ("a/b+adopt", "adapt, distill or random"),
        ("bert-mini+adapt", "neither adapted"),
        ("random+adapt", "neither adapted"),
        ("nowhere", "neither a recipe nor a directory"),
    ],
)
def test_unknown_arms_are_refused(word, message):
    with pytest.raises(UserError, match=message):
        read_arm(word, [word])


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        (Arm(), "neither a recipe nor a model"),
        (Arm(recipe="bert-mini", way="adapt"), "no model"),
        (Arm(recipe="bert-mini", model="x", way="pretrain"), "not used"),
        (Arm(model="x", recipe="bert-mini", way="random"), "not used"),
        (Arm(model="x", settings={"seed": 1}), "without training"),
        (Arm(model="x", way="random", settings={"seed": 1}), "without training"),
    ],
)
def test_contradictory_arms_are_refused(arm, message):
    with pytest.raises(UserError, match=message):
        Comparison(arms={"a": arm}, tasks=TASKS).named_arms()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ["bert-mini"]}, "two arms"),
        ({"arms": ["bert-mini", "bert-mini"]}, "twice"),
        ({"tasks": {}, "text": []}, "needs a task"),
        ({"text": []}, "trained on text"),
        ({"budget": ""}, "needs a budget"),
        ({"budget": "much"}, "amount with a unit"),
        ({"seeds": 0}, "seeds=0: not a whole number of 1 or more"),
        ({"arms": ["random", "random@frozen"], "text": []}, "needs a tokenizer"),
        ({"tasks": {"t": TaskData(task="sentiment", train=["x"])}}, "unknown task"),
        ({"tasks": {"t": TaskData(train=[])}}, "no training examples"),
        ({"vary": {"masking": ["token"]}}, "two values"),
        ({"vary": {"masking": ["token", "spam"]}}, "span"),
        ({"vary": {"masking": ["token", "span", "token"]}}, 'vary="masking": token is named twice'),
        ({"arms": ["random", "random@frozen"], "vary": {"masking": ["token", "span"]}}, "no arm is pretrained"),
    ],
)
def test_impossible_comparisons_are_refused(changes, message):
    comparison = {"arms": ["bert-mini", "random"], "tasks": TASKS, "text": ["a.txt"], "budget": "1min", **changes}
    with pytest.raises(UserError, match=message):
        check_comparison(Comparison(**comparison))


@pytest.mark.parametrize("name", ["albert-mini", "bert-mini", "electra-mini", "roberta-mini", "spanbert-mini"])
@pytest.mark.parametrize("factor", SHORT)
def test_values_of_known_factors_are_recipes(factor, name):
    recipes = {write(read_recipe(name, settings)) for settings in SHORT[factor].values()}
    assert len(recipes) == len(SHORT[factor])


def test_budgets_in_words():
    budgets = map(read_budget, ("1min", "2min", "18s", "2ktok"))
    assert list(map(str, budgets)) == ["1 minute", "2 minutes", "18 seconds", "2,000 tokens"]


def test_factors_replace_the_first_recipe():
    factors = read_factors(["masking=token,span", "encoder.layers=2,3"])
    assert factors == {"masking": ["token", "span"], "encoder.layers": [2, 3]}
    arms = Comparison(arms=["bert-mini", "random"], tasks=TASKS, vary=factors).named_arms()
    assert list(arms) == [
        *(f"masking={masking},encoder.layers={layers}" for masking in ("token", "span") for layers in (2, 3)),
        "random",
    ]
    assert arms["masking=span,encoder.layers=3"].settings == {"masking.kind": "span", "encoder.layers": 3}


def test_random_weights_have_the_shape_of_the_first_recipe():
    for words, recipe in (
        (["own.toml", "bert-mini", "random"], "own.toml"),
        (["random@rnn", "bert-tiny"], "bert-tiny"),
    ):
        (word,) = (word for word in words if word.startswith("random"))
        assert read_arm(word, words).recipe == recipe
    with pytest.raises(UserError, match="masking is varied twice"):
        read_factors(["masking=token,span", "masking=ngram"])


def test_paths_of_a_file_are_relative_to_it(inputs, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    comparison = read_comparison(inputs / "pets.toml")
    assert comparison.text == [str(inputs / "text.txt")]
    (tmp_path / "own").mkdir()
    (tmp_path / "own/mine.toml").write_text(write(read_recipe("bert-tiny")))
    (tmp_path / "mine.toml").write_text("this is another file")
    (tmp_path / "own/file.toml").write_text(BASIC.replace("bert-tiny", "mine.toml", 1))
    arms = read_comparison(tmp_path / "own/file.toml").named_arms()
    assert [arm.recipe for arm in arms.values()] == [str(tmp_path / "own/mine.toml"), "bert-tiny"]
    assert comparison.tasks["pets"].test == [str(inputs / "test.tsv")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arms = [", "not valid TOML"),
        ("arms = ['bert-mini']\nbudgets = '3min'\n[tasks]", "budget"),
        ("arms = 3", "arms"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path, text, message):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_comparison(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.toml"):
        read_comparison(tmp_path / "none.toml")


BASIC = """
arms = {bert = {recipe = "bert-tiny"}, random = {recipe = "bert-tiny", way = "random"}}
tasks = {pets = {train = ["train.tsv"]}}
text = ["text.txt"]
budget = "2ktok"
"""
VALUES = ",".join(map(str, range(1000)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (f"vary = {{seed = [{VALUES}], x = [{VALUES}], y = [{VALUES}]}}", "1,000 combinations"),
        (f"vary = {{seed = [{VALUES}], x = [{VALUES}]}}\ndesign = 'single'", "1,000 combinations"),
        ("vary = {" + ", ".join(f"x{number} = [1, 2]" for number in range(400)) + "}", "1,000 combinations"),
        ("vary = {masking = [[1], [2]]}", "masking.*lists and tables cannot be varied"),
        ("vary = {masking = [{a = 1}, {a = 2}]}", "masking.*lists and tables cannot be varied"),
        ("vary = {pair = ['none', 3]}", "unknown value '3'"),
        ("seeds = 1000000000", "more than 10,000 models"),
        (f"seeds = 1{'0' * 30}", "seeds"),
        (f"seeds = 1{'0' * 5000}", "not valid TOML"),
        (f"x = {'[' * 3000}{']' * 3000}", "not valid TOML"),
        ("settings = {seed = 5}", "arm 'bert': seed has no effect; pass seeds"),
        ("settings = {'budget.steps' = 5}", "arm 'bert': budget.steps has no effect; pass budget"),
        ("task_settings = {seed = 5}", "task 'pets': seed has no effect"),
        ("task_settings = {frozen = true}", "arm 'bert', task 'pets': frozen has no effect; choose use of the arm"),
        ("task_settings = {'downstream.layers' = 'all'}", "downstream.layers has no effect; choose use of the arm"),
        ("task_settings = {'task.lenght' = 3}", "task 'pets': unknown key `lenght`.*'length'"),
        ("task_settings = {'optimizer.learning_rate' = nan}", "task 'pets': .*must be positive"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(lines, message, tmp_path):
    (tmp_path / "file.toml").write_text(BASIC + lines)
    with pytest.raises(UserError, match=message):
        check_comparison(read_comparison(tmp_path / "file.toml"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[arms.x]\nrecipee = 'a'", "arms.x: unknown key `recipee`; did you mean 'recipe'"),
        ("[arms.x]\nsettings = [1]", r"arms.x: settings must be a table of settings, not \[1\]"),
        ("[tasks.x]\ntrain = 'a.tsv'", "tasks.x: train must be a list, not 'a.tsv'"),
    ],
)
def test_errors_name_the_table(table, message, tmp_path):
    (tmp_path / "file.toml").write_text(table)
    with pytest.raises(UserError, match=message):
        read_comparison(tmp_path / "file.toml")


@pytest.mark.parametrize(("task", "use"), [("ranking", "frozen"), ("embedding", "rnn"), ("multiple-choice", "average")])
def test_tasks_that_need_the_encoder_are_not_learned_from_features(task, use):
    arms = {"whole": Arm(model="x", way=""), "used": Arm(model="x", use=use)}
    comparison = Comparison(arms=arms, tasks={**TASKS, "other": TaskData(task=task, train=["train.tsv"])})
    with pytest.raises(UserError, match=f"arm 'used', task 'other': .*; remove use '{use}' of the arm"):
        check_comparison(comparison)


def test_no_arm_takes_the_name_of_another_one(tmp_path):
    """It would be left out, without a word."""
    for name in ("x", "y-z"):
        (tmp_path / name / "model").mkdir(parents=True)
    arms = [f"{tmp_path}/x/model", f"{tmp_path}/x/model/", f"{tmp_path}/y-z"]
    with pytest.raises(UserError, match=r"arms '.*/x/model' and '.*/x/model/' would have the same name"):
        check_comparison(Comparison(arms=arms, tasks=TASKS))
    assert len(Comparison(arms=arms[1:], tasks=TASKS).named_arms()) == 2


def test_too_many_arms():
    with pytest.raises(UserError, match="20,000 arms"):
        check_comparison(Comparison(arms=[f"random:r{number}" for number in range(20_000)], tasks=TASKS))


def test_a_text_is_no_path(tmp_path):
    (tmp_path / "file.toml").write_text(BASIC.replace("text.txt", "a" * 5000))
    assert read_comparison(tmp_path / "file.toml").text == ["a" * 5000]
    with pytest.raises(UserError, match="neither a recipe nor a directory"):
        read_arm("a" * 5000, [])
