"""Recipes: shipped ones are valid, errors name the invalid setting, settings without effect are refused."""

from argparse import Namespace

import pytest

from unmask.batches.stages import Stage, stage_ends
from unmask.cli.pretrain import run as pretrain_command
from unmask.errors import UserError
from unmask.recipe import read_recipe, recipe_text, shipped
from unmask.settings import parse_overrides, write

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
    "modernbert-base": (22, 768, 12),
}


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_recipe_is_read_as_it_is_written(name, tmp_path):
    recipe = read_recipe(name)
    encoder = recipe.encoder
    assert recipe.name == name
    assert (encoder.layers, encoder.width, encoder.heads) == PAPERS[name]
    assert encoder.inner == encoder.width * (3 / 2 if name.startswith("modernbert") else 4)
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
        ("encoder.activation=silu", r"encoder\.activation cannot be 'silu'; known: gelu, gelu_tanh, relu$"),
        ("encoder.kind=rnn", "encoder.kind cannot be 'rnn'; known: bert, roberta, albert, electra, distilbert, gpt"),
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
        ("budget.tokens=inf", "a budget must be positive"),
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
        ("layout.stages=[3]", r"layout.stages\[0\] must be a table of settings, not 3$"),
        ("budget.epochs=3", "given in steps, tokens or minutes"),
        ("seed=-1", "seed must be a whole number >= 0, not -1$"),
        ("masking.replace={mask=nan,random=0.1,keep=0.1}", "shares that sum to 1"),
        ("objective.masked_lm.weight=nan", "a weight must be above 0"),
        ("objective.masked_lm.weight=inf", "a weight must be above 0"),
        ("encoder.layers=false", "encoder.layers must be a whole number, not false$"),
        ("budget.steps", "not KEY=VALUE; for example --set"),
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
        assert "--set " + remedy.replace(" ", " --set ") in str(error.value)
        read_recipe("bert-tiny", parse_overrides([*settings, *remedy.split()]))


STAGES = "layout.stages=[{ share = 0.75, length = 64 }, { share = 0.25, length = 128 }]"


def test_the_large_recipes_have_the_papers_stages():
    """Devlin et al. 2019, appendix A.2."""
    for name in ("bert-base", "bert-large"):
        recipe = read_recipe(name)
        assert [(stage.share, stage.length) for stage in recipe.layout.all_stages] == [(0.9, 128), (0.1, 512)]
        assert stage_ends(recipe.layout.all_stages, recipe.budget.steps) == [900_000, 1_000_000]


@pytest.mark.parametrize("more", [[], ["layout.kind=document_sentences", "objective.next_sentence=false"]])
def test_every_layout_has_stages_in_place_of_a_length(more, tmp_path):
    recipe = read_recipe("bert-tiny", parse_overrides([STAGES, *more]))
    assert (recipe.layout.length, [stage.length for stage in recipe.layout.stages]) == (None, [64, 128])
    path = tmp_path / "recipe.toml"
    path.write_text(write(recipe))
    assert read_recipe(path) == recipe
    again = read_recipe("bert-tiny", parse_overrides([STAGES, *more, "layout.length=32"]))
    assert (again.layout.length, again.layout.stages) == (32, None)
    assert again.layout.all_stages == (Stage(share=1.0, length=32),)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[]", "sum to 1"),
        ("[{ share = 0.9, length = 64 }]", "sum to 1"),
        ("[{ share = 1.5, length = 64 }, { share = -0.5, length = 128 }]", "must be positive and sum to 1"),
        ("[{ share = 0.5, length = 64 }, { share = 0.5, length = 4 }]", "length must be at least 8"),
        ("[{ share = 0.5, length = 64 }, { share = 0.5, length = 513 }]", "length 513 exceeds encoder.positions 512"),
        ("[{ share = 1.0 }]", r"the key `layout\.stages\[0\]\.length` is missing"),
        ("[{ share = 1.0, lenght = 64 }]", "unknown key `lenght`.*did you mean 'length'"),
    ],
)
def test_stages_without_sense_are_refused(stages, message):
    with pytest.raises(UserError, match=message):
        read_recipe("bert-tiny", parse_overrides([f"layout.stages={stages}"]))


def test_length_and_stages_together_or_neither_are_refused(tmp_path):
    text = recipe_text("bert-tiny")[0]
    both = text.replace("length = 128", "length = 128\n" + STAGES.removeprefix("layout."))
    for changed in (text.replace("length = 128", ""), both):
        path = tmp_path / "r.toml"
        path.write_text(changed)
        with pytest.raises(UserError, match=r"r\.toml: .*exactly one of length and stages"):
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
        ({"set": ["tokenizer.vocabulary=9"], "corpus": "c"}, "the corpus has its own tokenizer"),
        ({"set": ["tokenizer.vocabulary=9"], "text": ["t"], "init": "m"}, "the model has its own tokenizer"),
        ({"set": ["encoder.width=9"], "corpus": "c", "init": "m"}, "--init determines the encoder"),
        ({"corpus": "c", "strict": True}, "--field, --documents and --strict have no effect on a corpus"),
        ({"corpus": "c", "documents": "line"}, "--field, --documents and --strict have no effect on a corpus"),
    ],
)
def test_what_has_no_effect_is_refused(options, message):
    given = {"recipe": "bert-tiny", "set": [], "out": "o", "init": None, "text": None, "corpus": None, "resume": False}
    text = {"field": "text", "documents": "auto", "strict": False}
    text |= {"device": "cpu", "precision": "float32", "allow_pickle": False, "restarts": 0}
    with pytest.raises(UserError, match=message):
        pretrain_command(Namespace(**given | text | options))


def test_settings_that_a_layout_does_not_have_are_refused():
    with pytest.raises(UserError, match="unknown key `second`"):
        read_recipe(
            "bert-tiny",
            parse_overrides(["layout.kind=document_sentences", "layout.second=next", "objective.next_sentence=false"]),
        )
