"""Recipes: shipped ones are valid, errors name the invalid setting, settings without effect are refused."""

import tomllib

import msgspec
import pytest

from unmask.data.batches.registries import MASKINGS
from unmask.recipes.recipe import purpose, read_recipe, recipe_text, shipped
from unmask.support.errors import UserError
from unmask.support.messages import in_command
from unmask.support.settings import parse_overrides, write
from unmask.workflows.pretraining.launch import pretrain

PAPERS = {  # layers, width, heads
    "bert-tiny": (2, 128, 2),
    "bert-mini": (4, 256, 4),
    "bert-small": (4, 512, 8),
    "bert-medium": (8, 512, 8),
    "bert-base": (12, 768, 12),
    "bert-large": (24, 1024, 16),
    "roberta-mini": (4, 256, 4),
    "roberta-base": (12, 768, 12),
    "roberta-large": (24, 1024, 16),
    "spanbert-mini": (4, 256, 4),
    "spanbert-base": (12, 768, 12),
    "spanbert-large": (24, 1024, 16),
    "electra-mini": (4, 256, 4),
    "electra-small": (12, 256, 4),
    "electra-base": (12, 768, 12),
    "electra-large": (24, 1024, 16),
    "gpt-mini": (4, 256, 4),
    "gpt-base": (12, 768, 12),
    "albert-mini": (4, 256, 4),
    "albert-base": (12, 768, 12),
    "albert-large": (24, 1024, 16),
    "albert-xlarge": (24, 2048, 16),
    "albert-xxlarge": (12, 4096, 64),
    "modernbert-tiny": (2, 128, 2),
    "modernbert-mini": (4, 256, 4),
    "modernbert-small": (6, 384, 6),
    "modernbert-medium": (8, 512, 8),
    "modernbert-base-hour": (12, 768, 12),
    "modernbert-large-hour": (16, 1024, 16),
    "modernbert-base": (22, 768, 12),
    "xlnet-mini": (4, 256, 4),
    "xlnet-base": (12, 768, 12),
    "xlnet-base-900": (12, 768, 12),
    "xlnet-large": (24, 1024, 16),
    "adapt": (12, 768, 12),
    "distilbert": (6, 768, 12),
    "distilbert-mini": (3, 384, 12),
    "distilxlnet-mini": (2, 256, 4),
    "tinybert-4": (4, 312, 12),
    "tinybert-6": (6, 768, 12),
    "tinybert-mini": (3, 384, 12),
}
RECURRENT = {"elmo-mini": (2, 256, 512), "elmo-small": (2, 256, 1024), "elmo": (2, 1024, 4096)}
INNER = {
    "tinybert-4": 1200,
    "modernbert-tiny": 352,
    "modernbert-mini": 704,
    "modernbert-small": 1024,
    "modernbert-medium": 1408,
    "modernbert-base-hour": 2112,
    "modernbert-large-hour": 2816,
    "modernbert-base": 1152,
}
"""Inner widths of gated feed-forward layers and of others that are not four times the width."""


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_read_as_it_is_written(name, tmp_path):
    recipe = read_recipe(name)
    encoder = recipe.encoder
    assert recipe.name == name
    if name in RECURRENT:
        assert (encoder.layers, encoder.width, encoder.cells) == RECURRENT[name]
    else:
        assert (encoder.layers, encoder.width, encoder.heads) == PAPERS[name]
        assert encoder.feed_forward == INNER.get(name, 4 * encoder.width)
    path = tmp_path / "recipe.toml"
    path.write_text(write(recipe))
    assert read_recipe(path) == recipe
    assert write(read_recipe(path)) == write(recipe)
    path.write_text(recipe_text(name)[0])
    assert read_recipe(path) == recipe


def test_all_of_the_papers_sizes_are_shipped():
    assert set(PAPERS) <= set(shipped())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.layers=two", r"encoder\.layers must be a whole number, not 'two'$"),
        ("encoder.layers=0", "layers must be at least 1"),
        ("encoder.heads=3", "width 128 must be a multiple of heads 3"),
        ("encoder.dropout=1", r"dropout must lie in \[0, 1\)"),
        ("encoder.activation=mish", r"encoder\.activation cannot be 'mish'; known: gelu, gelu_tanh, relu, silu$"),
        (
            "encoder.kind=rnn",
            "encoder.kind cannot be 'rnn'; known: bert, roberta, xlm_roberta, camembert, albert, electra",
        ),
        ("encoder.positions=64", "length 128 exceeds encoder.positions 64"),
        ("layout.length=7", "length must be at least 8"),
        (
            "layout.kind=triples",
            "layout.kind cannot be 'triples'; known: single, document_sentences, full_sentences, sentence_pairs",
        ),
        ("masking.rate=0", "rate must lie between 0 and 1"),
        ("masking.replace.mask=0.9", "shares that sum to 1"),
        ("masking.replace={mask=0,random=0,keep=1}", "masking.replace keeps every token"),
        ("batch.tokens=0", "must be at least 1"),
        ("batch.sequences=0", "must be at least 1"),
        ("batch.micro_tokens=0", "must be at least 1"),
        ("layout.short_probability=2", r"short_probability must lie in \[0, 1\]"),
        ("optimizer.learning_rate=0", "must be positive"),
        ("optimizer.betas=[0.9, 1.0]", r"betas and momentum must lie in \[0, 1\)"),
        ("schedule.warmup=1", "0 <= warmup < 1"),
        ("schedule.decay=0.1", "goes with schedule.kind"),
        ("schedule.kind=warmup_stable_decay", "a share of the budget such as 0.1, goes with"),
        ("optimizer.kind=sgd", "optimizer.kind cannot be 'sgd'; known: adamw, lamb, muon$"),
        ("optimizer.momentum=0.9", "matrix_learning_rate and momentum go with kind"),
        ("optimizer.half_lives=[0, 1e6]", "half_lives must be positive numbers of tokens"),
        ("optimizer.layer_decay=2", r"layer_decay must lie in \(0, 1\]"),
        ("budget.steps=0", "a budget must be positive"),
        ("budget.tokens=inf", "a budget must be positive, and at most 1e\\+15"),
        ("budget={minutes=1e300}", "a budget must be positive, and at most 1e\\+15"),
        ("budget={minutes=nan}", "a budget must be positive"),
        ("budget.max_minutes=0", "a budget must be positive"),
        ("budget={minutes=1,max_minutes=2}", "max_minutes has no effect on a budget in minutes"),
        ("optimizer.learning_rate=nan", "must be positive"),
        ("objective.masked_lm.weight=0", "objective.masked_lm: a weight must be above 0; to remove the objective, set"),
        ("optimizer.weight_decay=-1", "weight_decay and clip not negative"),
        ("budget.steps=1.5", "budget.steps must be a whole number, not 1.5$"),
        ("budget.steps=1e3", "budget.steps must be a whole number, not 1000.0; write 1000$"),
        ("encoder=3", "encoder must be a table of settings, not 3$"),
        ("batch.recompute=1", "batch.recompute must be true or false, not 1$"),
        ("batch.micro_tokens=two", "batch.micro_tokens cannot be 'two'; known: auto, a whole number$"),
        ("batch.micro_tokens=1.5", "batch.micro_tokens must be a whole number or auto, not 1.5$"),
        ("optimizer.betas=[1]", r"optimizer.betas must be a list of length 2, not \[1\]$"),
        ("optimizer.betas=[true, 1]", r"optimizer.betas\[0\] must be a number, not true$"),
        ("stages=[3]", r"stages\[0\] must be a table of settings, not 3$"),
        ("budget.epochs=3", "given in steps, tokens or minutes"),
        ("seed=-1", "seed must be a whole number >= 0, not -1$"),
        ("masking.replace={mask=nan,random=0.1,keep=0.1}", "shares that sum to 1"),
        ("objective.masked_lm.weight=nan", "a weight must be above 0"),
        ("objective.masked_lm.weight=inf", "a weight must be above 0"),
        ("encoder.layers=false", "encoder.layers must be a whole number, not false$"),
        ("budget.steps", "not KEY=VALUE; for example settings"),
        ("=3", "not KEY=VALUE"),
        ("seed.x=3", "'seed' is not a table"),
    ],
)
def test_bad_values_are_named(setting, message):
    with pytest.raises(UserError, match=message) as error:
        read_recipe("bert-tiny", parse_overrides([setting]))
    assert error.value.status == 2
    assert "\n" not in str(error.value)


PAIRS = (  # settings, remedies
    (["objective.next_sentence=false"], "layout.second=next", "objective.next_sentence.weight=1"),
    (["layout.second=next"], "objective.next_sentence=false", "layout.second=random"),
    (["layout.second=swapped", "objective.sentence_order.weight=1"], "objective.next_sentence=false"),
    (["layout.kind=single"], "objective.next_sentence=false", "layout.kind=sentence_pairs layout.second=random"),
)


@pytest.mark.parametrize(("settings", "remedies"), [(settings, remedies) for settings, *remedies in PAIRS])
def test_objectives_on_pairs_and_their_layout_are_checked(settings, remedies):
    with pytest.raises(UserError, match="next_sentence") as error:
        read_recipe("bert-tiny", parse_overrides(settings))
    for remedy in remedies:
        assert "--set " + remedy.replace(" ", " --set ") in error.value.text(in_command)
        read_recipe("bert-tiny", parse_overrides([*settings, *remedy.split()]))


CURRICULUM = """
[[stages]]
share = 0.5
layout = { length = 64, kind = "document_sentences" }
masking = { p = 0.3, kind = "span", final_rate = 0.1 }
objective = { next_sentence = false, span_boundary = {}, masked_lm = { weight = 2.0 } }

[[stages]]
share = 0.5
"""


def curriculum(first, *more, last="share = 0.5"):
    """Return bert-tiny with two stages, given the first one's settings."""
    return read_recipe("bert-tiny", parse_overrides([*more, f"stages=[{{ share = 0.5, {first} }}, {{ {last} }}]"]))


def test_the_large_recipes_have_the_papers_stages():
    """Devlin et al. 2019, appendix A.2."""
    for name in ("bert-base", "bert-large"):
        recipe = read_recipe(name)
        assert recipe.shares == (0.9, 0.1)
        assert [stage.layout.length for stage in recipe.every_stage] == [128, 512]


def test_a_stage_overrides_the_tables_as_settings_do(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(recipe_text("bert-tiny")[0] + CURRICULUM)
    recipe = read_recipe(path)
    first, last = recipe.every_stage
    assert msgspec.to_builtins(first.layout) == {"kind": "document_sentences", "length": 64}
    assert (type(first.masking), first.masking.p) == (MASKINGS["span"], 0.3)
    assert (first.masking.rate, first.masking.final_rate) == (recipe.masking.rate, 0.1)
    assert list(first.objectives) == ["masked_lm", "span_boundary"]
    assert first.objectives["masked_lm"].weight == 2
    assert last == msgspec.structs.replace(recipe, stages=())
    assert list(recipe.objectives) == ["masked_lm", "next_sentence"]
    assert list(recipe.all_objectives) == ["masked_lm", "next_sentence", "span_boundary"]
    assert recipe.all_objectives["masked_lm"].weight == 1, "as in the last stage that has it"
    path.write_text(write(recipe))
    assert read_recipe(path) == recipe
    assert tomllib.loads(path.read_text())["stages"][0]["masking"] == {"p": 0.3, "kind": "span", "final_rate": 0.1}
    assert tomllib.loads(path.read_text())["stages"][1] == {"share": 0.5}
    assert read_recipe(path, {"stages": []}).every_stage == (last,)


def test_settings_of_the_command_line_change_the_tables_below_the_stages():
    recipe = curriculum("masking = { rate = 0.3 }", "layout.length=32", "masking.rate=0.2", "masking.final_rate=0.1")
    assert [stage.layout.length for stage in recipe.every_stage] == [32, 32]
    assert [(stage.masking.rate, stage.masking.final_rate) for stage in recipe.every_stage] == [(0.3, 0.1), (0.2, 0.1)]


def test_an_empty_table_adds_an_objective_and_changes_no_existing_one():
    recipe = curriculum("objective = { masked_lm = {}, span_boundary = {} }", "objective.masked_lm.weight=3")
    assert {name: one.weight for name, one in recipe.every_stage[0].objectives.items()} == {
        "masked_lm": 3.0,
        "next_sentence": 1.0,
        "span_boundary": 1.0,
    }


def test_without_stages_the_recipe_is_the_only_one():
    recipe = read_recipe("bert-tiny")
    assert (recipe.stages, recipe.shares, recipe.every_stage) == ((), (1.0,), (recipe,))
    assert recipe.all_objectives == recipe.objectives
    one = read_recipe("bert-tiny", {"stages": [{"share": 1.0}]})
    assert (one.shares, one.every_stage) == ((1.0,), (recipe,))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("masking = { rat = 0.4 }", r"stages\[0\]: unknown key `rat` - at `masking`; did you mean 'rate'\?$"),
        ("layout = { lenght = 64 }", r"stages\[0\]: unknown key `lenght` - at `layout`; did you mean 'length'\?$"),
        ("length = 64", r"unknown key `length` - at `stages\[0\]`; did you mean 'layout.length'"),
        ("optimizer = {}", r"unknown key `optimizer` - at `stages\[0\]`"),
        ("masking = 3", r"stages\[0\].masking must be a table of settings, not 3$"),
        ("masking = { kind = 'some' }", r"stages\[0\]: masking.kind cannot be 'some'; known: token, "),
        ("masking = { p = 0.3 }", r"stages\[0\]: unknown key `p` - at `masking`; it requires masking.kind = span"),
        ("masking = { rate = 1.5 }", r"stages\[0\]: .*rate must lie between 0 and 1"),
        ("layout = { length = 513 }", r"stages\[0\]: layout: the length 513 exceeds encoder.positions 512"),
        ("layout = { length = { a = 1 } }", r"stages\[0\]: layout.length.a=1: 'length' is not a table"),
        ("objective = { masked_lm = false, next_sentence = false }", r"stages\[0\]: at least one \[objective.NAME\]"),
        (
            "objective = { next_sentence = false }",
            r"stages\[0\]: layout provides .* pass layout.second = .next., or ",
        ),
        ("layout = { kind = 'single' }", r"stages\[0\]: objective.next_sentence needs 'next_sentence' labels"),
        ("objective = { span_boundary = {}, masked_lm = { weight = 0 } }", r"stages\[0\]: objective.masked_lm: a we"),
        (
            "layout = { kind = 'contiguous', streams = 8 }, objective = { next_sentence = false }",
            r"contiguous streams|layout.streams",
        ),
    ],
)
def test_a_stage_with_wrong_settings_is_named(first, message):
    with pytest.raises(UserError, match=message):
        curriculum(first)


@pytest.mark.parametrize("layout", ["layout.kind=paired_streams layout.reuse=16", "layout.kind=sentence_streams"])
@pytest.mark.parametrize("recipe", ["bert-mini", "roberta-mini"])
def test_only_encoders_that_are_told_read_text_backwards(recipe, layout):
    settings = [*layout.split(), "layout.streams=8", "batch.tokens=false", "batch.sequences=8"]
    settings += ["stages=[]", "objective.next_sentence=false"] if recipe == "bert-mini" else []
    with pytest.raises(UserError, match=r"an encoder that knows in which direction .*encoder.kind.*elmo.*xlnet"):
        read_recipe(recipe, parse_overrides(settings))
    for known in ("xlnet-mini", "elmo-mini"):
        assert read_recipe(known).encoder.provides >= read_recipe(known).layout.requires


def test_streams_have_a_single_stage():
    settings = ["batch.tokens=false", "batch.sequences=8", "objective.next_sentence=false"]
    contiguous = ["layout.kind=contiguous", "layout.streams=8", *settings]
    with pytest.raises(UserError, match=r"contiguous streams have a single stage: remove the stages \(settings=.\"st"):
        curriculum("masking = { rate = 0.4 }", *contiguous)
    assert read_recipe("bert-tiny", parse_overrides([*contiguous, "stages=[{ share = 1.0 }]"])).layout.num_streams == 8


@pytest.mark.parametrize("shares", [(), (0.9,), (0.5, 0.6), (1.5, -0.5), (1.0, 0.0), (float("nan"), 0.5)])
def test_shares_must_sum_to_one(shares):
    settings = {"stages": [{"share": share} for share in shares]}
    if not shares:
        assert read_recipe("bert-tiny", settings).stages == ()
        return
    with pytest.raises(UserError, match="the shares of the stages must be positive and sum to 1"):
        read_recipe("bert-tiny", settings)


def test_the_last_stage_is_what_the_tables_say():
    with pytest.raises(UserError, match=r"stages\[1\] is the last stage, whose settings are the recipe's own: write"):
        curriculum("masking = { rate = 0.4 }", last="share = 0.5, layout = { length = 64 }")


def test_only_the_weight_of_an_objective_can_change():
    base = ["encoder.kind=electra", "layout.second=next", "objective.next_sentence=false"]
    base += ["objective.masked_lm=false", "objective.replaced_token.weight=50"]
    recipe = curriculum("objective = { replaced_token = { weight = 10.0, generator_size = 0.25 } }", *base)
    assert [stage.objectives["replaced_token"].weight for stage in recipe.every_stage] == [10, 50]
    with pytest.raises(UserError, match=r"stages\[0\]: objective.replaced_token differs between stages: only its"):
        curriculum("objective = { replaced_token = { generator_size = 0.5 } }", *base)


def test_a_length_is_needed(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text(recipe_text("bert-tiny")[0].replace("length = 128", ""))
    with pytest.raises(UserError, match=r"r\.toml: the key `layout.length` is missing"):
        read_recipe(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = ", r"r\.toml: not valid TOML"),
        ("name = 'x'", r"r\.toml: the table \[batch\] is missing; add it, as in"),
        (b"\xff", "no shipped"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "r.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        read_recipe(path)


def test_an_unknown_name_proposes_the_nearest(tmp_path):
    with pytest.raises(UserError, match=r"no shipped recipe or readable file 'bert-minni'; did you mean 'bert-mini'\?"):
        read_recipe("bert-minni")
    with pytest.raises(UserError, match="no shipped recipe or readable file"):
        read_recipe(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"tokenizer.vocabulary": 9}, "corpus": "c"}, "the corpus has its own tokenizer"),
        ({"settings": {"tokenizer.vocabulary": 9}, "text": ["t"], "init": "m"}, "the model has its own tokenizer"),
        ({"settings": {"encoder.width": 9}, "corpus": "c", "init": "m"}, "init determines the encoder"),
        ({"corpus": "c", "strict": True}, "strict has no effect on a corpus"),
        ({"corpus": "c", "documents": "line"}, "documents has no effect on a corpus"),
        ({"corpus": "c", "text": "t"}, "two sources of text; pass either corpus or text"),
        ({}, "nothing to learn from; pass either corpus or text"),
    ],
)
def test_what_has_no_effect_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        pretrain("bert-tiny", out="o", **options)


def test_settings_that_a_layout_does_not_have_are_refused():
    with pytest.raises(UserError, match="unknown key `second`"):
        read_recipe(
            "bert-tiny",
            parse_overrides(["layout.kind=document_sentences", "layout.second=next", "objective.next_sentence=false"]),
        )


def test_the_purpose_is_the_beginning_of_the_comment(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("# For letters (Smith et al. 1999),\n# in verse. Slow.\nname = 'mine'\n# not this\n")
    assert purpose(path) == "For letters (Smith et al. 1999), in verse"
    path.write_text("name = 'mine'\n")
    assert purpose(path) == ""
    for name in shipped():
        assert 10 < len(purpose(name)) < 120, name
