"""Recipes of the papers' sizes have the settings of the papers, which are listed here by hand."""

import json
from itertools import count, takewhile
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import XLNetConfig, XLNetModel

from unmask.families.checkpoints.check import body_on_meta
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe

TABLE = """
recipe          layers width heads embed generator length masked batch    rate  beta2 epsilon decay clip warmup   steps
bert-base           12   768    12   768         -    512   0.15   256    1e-4  0.999    1e-6  0.01    1  10000 1000000
bert-large          24  1024    16  1024         -    512   0.15   256    1e-4  0.999    1e-6  0.01    1  10000 1000000
roberta-base        12   768    12   768         -    512   0.15  8192    6e-4   0.98    1e-6  0.01    0  24000  500000
roberta-large       24  1024    16  1024         -    512   0.15  8192    4e-4   0.98    1e-6  0.01    0  30000  500000
spanbert-base       12   768    12   768         -    512   0.15   256    1e-4  0.999    1e-8   0.1    1  10000 2400000
spanbert-large      24  1024    16  1024         -    512   0.15   256    1e-4  0.999    1e-8   0.1    1  10000 2400000
albert-base         12   768    12   128         -    512   0.15  4096 1.76e-3  0.999    1e-6  0.01    1   3125  125000
albert-large        24  1024    16   128         -    512   0.15  4096 1.76e-3  0.999    1e-6  0.01    1   3125  125000
albert-xlarge       24  2048    16   128         -    512   0.15  4096 1.76e-3  0.999    1e-6  0.01    1   3125  125000
albert-xxlarge      12  4096    64   128         -    512   0.15  4096 1.76e-3  0.999    1e-6  0.01    1   3125  125000
electra-small       12   256     4   128        64    128   0.15   128    5e-4  0.999    1e-6  0.01    1  10000 1000000
electra-base        12   768    12   768       256    512   0.15   256    2e-4  0.999    1e-6  0.01    1  10000  766000
electra-large       24  1024    16  1024       256    512   0.25  2048    2e-4  0.999    1e-6  0.01    1  10000  400000
gpt-base            12   768    12   768         -    512      -    64  2.5e-4  0.999    1e-8  0.01    1   2000 3000000
xlnet-base          12   768    12   768         -    512      -  8192    4e-4  0.999    1e-6  0.01    1  40000  500000
xlnet-large         24  1024    16  1024         -    512      -  8192    4e-4  0.999    1e-6  0.01    1  40000  500000
"""
"""Devlin et al. 2019, section 3 and appendix A.2; Liu et al. 2019, table 9; Joshi et al. 2020, section 4.2; Lan et al.
2020, sections 3 and 4.1; Clark et al. 2020, table 6; Radford et al. 2018, section 4.1; Yang et al. 2019, appendix
A.4.1, which has no base model. beta1 is 0.9 in all of them.

Not in the papers but in their code: gradient clipping, except for RoBERTa; epsilon of BERT, ALBERT and GPT, and beta2
of GPT; ALBERT's decay and warm-up, and the 16 heads of its xlarge (32 by the paper's H / 64). GPT's steps are 100
epochs over about a billion tokens (800 million words), with 64 times 512 tokens per step.
"""


def numbers(recipe):
    """Return the settings of a recipe under the names of the table."""
    encoder, optimizer, schedule, steps = recipe.encoder, recipe.optimizer, recipe.schedule, recipe.budget.steps
    replaced = recipe.objectives.get("replaced_token")
    with torch.device("meta"):
        body = encoder.build(recipe.tokenizer.vocabulary)
        generator = replaced and replaced.build(BuildContext(body)).generator
    return {
        "layers": encoder.layers,
        "width": encoder.width,
        "heads": encoder.heads,
        "embed": body.words.embedding_dim,
        "generator": generator and generator.dense.in_features,
        "length": recipe.layout.length,
        "masked": getattr(recipe.masking, "rate", None),
        "batch": recipe.batch.sequences,
        "rate": optimizer.learning_rate,
        "beta2": optimizer.betas[1],
        "epsilon": optimizer.epsilon,
        "decay": optimizer.weight_decay,
        "clip": optimizer.clip,
        "warmup": 1 + sum(1 for _ in takewhile(lambda step: schedule.factor(step, steps) < 1, count())),
        "steps": steps,
    }


HEADER, *LINES = (line.split() for line in TABLE.strip().splitlines())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_a_recipe_has_the_numbers_of_its_paper(line):
    published = {key: None if value == "-" else value for key, value in zip(HEADER, line, strict=True)}
    name = published.pop("recipe")
    recipe = read_recipe(name)
    assert numbers(recipe) == {key: value and pytest.approx(float(value)) for key, value in published.items()}
    assert recipe.optimizer.betas[0] == 0.9
    assert recipe.optimizer.kind == ("lamb" if name.startswith("albert") else "adamw")
    assert recipe.schedule.kind == ("cosine" if name.startswith("gpt") else "linear")


ELMO = """
recipe     layers width cells highways words  samples length streams dropout clip   steps parameters
elmo-small      2   256  1024        1 793471    8192     20     768     0.1   10 1000840       13.6
elmo            2  1024  4096        2 793471    8192     20     768     0.1   10 1000840       93.6
"""
"""Peters et al. 2018, section 3.1 and allennlp.org/elmo (millions of parameters, without the softmax); bilm-tf,
bin/train_elmo.py: three GPUs with 128 streams in each direction, ten epochs of 768,648,884 words."""


@pytest.mark.parametrize("line", [line.split() for line in ELMO.strip().splitlines()[1:]], ids=lambda line: line[0])
def test_elmo_has_the_numbers_of_its_code(line):
    name, *published = line
    recipe = read_recipe(name)
    encoder, lm = recipe.encoder, recipe.objectives["bidirectional_lm"]
    size = sum(value.numel() for value in body_on_meta(encoder, 10).parameters())
    found = [encoder.layers, encoder.width, encoder.cells, encoder.highways, recipe.tokenizer.vocabulary, lm.samples]
    found += [recipe.layout.length, recipe.layout.streams, encoder.dropout, recipe.optimizer.clip, recipe.budget.steps]
    assert [*found, round(size / 1e6, 1)] == [float(value) for value in published]
    assert (sum(number for _, number in encoder.filters), encoder.characters, encoder.clip) == (2048, 16, 3)
    assert recipe.budget.steps == 10 * (768_648_884 // (3 * 128 * 20))


def test_the_page_of_elmo_has_its_numbers_of_parameters():
    page = (Path(__file__).resolve().parents[2] / "docs/elmo.md").read_text(encoding="utf8")
    for name in ("elmo-mini", "elmo-small", "elmo"):
        encoder = read_recipe(name).encoder
        size = sum(value.numel() for value in body_on_meta(encoder, 10).parameters())
        assert f"| `{name}` | {encoder.cells:,}, {encoder.width // 2} | {size / 1e6:.1f} million |" in page


IDEAS = """
setting                  bert    roberta   spanbert     albert    electra        gpt        xlnet
[tokenizer]
kind                wordpiece        bpe  wordpiece    unigram  wordpiece  wordpiece      unigram
vocabulary              30522      50265      28996      30000      30522      40478        32000
lowercase                true      false      false       true       true       true        false
[encoder]
kind                     bert    roberta       bert     albert    electra        gpt        xlnet
positions                 512        512        512        512        512        512        65536
segments                    2          1          2          2          2          -            -
dropout                   0.1        0.1        0.1          0        0.1        0.1          0.1
head_dropout                -          -          -        0.1          -          -            -
activation               gelu       gelu       gelu  gelu_tanh       gelu  gelu_tanh         gelu
epsilon                 1e-12       1e-5      1e-12      1e-12      1e-12       1e-5        1e-12
init_std                 0.02       0.02       0.02       0.02       0.02       0.02         0.02
shared                      -          -          -        all          -          -            -
offset                      -          2          -          -          -          -            -
memory                      -          -          -          -          -          -          384
window                      -          -          -          -          -          -          512
[layout]
kind sentence_pairs full_sentences document_sentences sentence_pairs sentence_pairs full_sentences paired_streams
second                 random          -          -    swapped       next          -            -
short_probability         0.1          -          -        0.1       0.05          -            -
single_probability          0          -          -          0        0.1          -            -
reuse                       -          -          -          -          -          -          256
streams                     -          -          -          -          -          -         8192
[masking]
kind                    token      token       span      ngram      token       none  permutation
p                           -          -        0.2          -          -          -            -
longest                     -          -         10          3          -          -            5
context                     -          -          -          -          -          -            6
[masking.replace]
mask                      0.8        0.8        0.8        0.8       0.85          -            -
random                    0.1        0.1        0.1        0.1          0          -            -
keep                      0.1        0.1        0.1        0.1       0.15          -            -
[objective.masked_lm]
weight                      1          1          1          1          -          -            -
[objective.next_sentence]
weight                      1          -          -          -          -          -            -
[objective.sentence_order]
weight                      -          -          -          1          -          -            -
[objective.span_boundary]
weight                      -          -          1          -          -          -            -
places                      -          -         15          -          -          -            -
place_width                 -          -        200          -          -          -            -
[objective.replaced_token]
weight                      -          -          -          -         50          -            -
generator_weight            -          -          -          -          1          -            -
[objective.causal_lm]
weight                      -          -          -          -          -          1            -
[objective.permutation_lm]
weight                      -          -          -          -          -          -            1
[optimizer]
bias_correction         false       true       true      false      false       true        false
layer_decay                 1          1          1          1          1          1            1
average                     0          0          0          0          0          0            0
"""
"""The settings common to all sizes of a family; "-": there is no such setting.

Devlin et al. 2019, section 3.1 and appendix A; Liu et al. 2019, sections 2.4, 4 and 5; Joshi et al. 2020, sections 3
and 4.2; Lan et al. 2020, sections 3.1 and 4.1; Clark et al. 2020, sections 3.1 and 3.2 and appendix A; Radford et al.
2018, section 4.1; Yang et al. 2019, sections 2 and 3.1 and appendix A.4.1. Not in the papers but in their code or their
published configurations: bias correction, epsilons, standard deviations except GPT's, whether GELU is exact, RoBERTa's
offset and 50,265 tokens, SpanBERT's positions in spans, ALBERT's dropout (version 2), ELECTRA's shares and its short
and single texts, GPT's 40,478 tokens, XLNet's 32,000 tokens, reuse and memory. Our own: the pooling of ELECTRA (that of
its heads in transformers), the kind of GPT's vocabulary, and XLNet's limit of positions.
"""
OTHERWISE = {
    *(f"encoder.{name}" for name in ("layers", "width", "heads", "feed_forward", "embedding")),
    *(f"optimizer.{name}" for name in ("kind", "learning_rate", "betas", "epsilon", "weight_decay", "clip")),
    *("layout.length", "masking.rate", "objective.replaced_token.generator_size"),
}
"""Settings checked by the first table or by the test below."""


def flat(value, name=""):
    """Return the settings of a table by their dotted names, without those that are not set and without empty lists."""
    if isinstance(value, dict):
        return {key: it for part, inner in value.items() for key, it in flat(inner, f"{name}.{part}").items()}
    return {} if value is None or value == () else {name.removeprefix("."): value}


def ideas(family):
    """Return the column of a family by dotted names."""
    (_, *families), *lines = (line.split() for line in IDEAS.strip().splitlines())
    found, column = {}, families.index(family)
    for name, *values in lines:
        if not values:
            table = name.strip("[]")
        elif values[column] != "-":
            number = values[column][0].isdigit() or values[column] in ("true", "false")
            found[f"{table}.{name}"] = json.loads(values[column]) if number else values[column]
    return found


@pytest.mark.parametrize("name", [line[0] for line in LINES])
def test_a_recipe_has_the_settings_of_its_paper(name):
    family, recipe = name.split("-")[0], read_recipe(name)
    table = msgspec.to_builtins(recipe)
    parts = ("tokenizer", "encoder", "layout", "masking", "objective", "optimizer")
    found = flat({part: table[part] for part in parts})
    assert {key: value for key, value in found.items() if key not in OTHERWISE} == ideas(family)
    assert recipe.encoder.feed_forward == 4 * recipe.encoder.width
    stages = [(share, stage.layout.length) for share, stage in zip(recipe.shares, recipe.every_stage, strict=True)]
    assert stages == ([(0.9, 128), (0.1, 512)] if family == "bert" else [(1, recipe.layout.length)])


@pytest.mark.parametrize(("name", "count"), [("xlnet-base", 116_718_336), ("xlnet-large", 360_268_800)])
def test_xlnets_parameters(name, count):
    """Without the pooler; those of the published models, 117 and 360 million."""
    recipe = read_recipe(name)
    with torch.device("meta"):
        encoder = recipe.encoder.build(recipe.tokenizer.vocabulary)
        theirs = XLNetModel(
            XLNetConfig(
                n_layer=encoder.num_layers,
                d_model=encoder.width,
                n_head=recipe.encoder.heads,
                d_inner=recipe.encoder.feed_forward,
            )
        )
    found = sum(value.numel() for name, value in encoder.named_parameters() if not name.startswith("pooler."))
    assert found == count == sum(value.numel() for value in theirs.parameters())


@pytest.mark.parametrize(
    ("name", "millions"),
    [("albert-base", 11.68), ("albert-large", 17.68), ("albert-xlarge", 58.72), ("albert-xxlarge", 222.60)],
)
def test_alberts_parameters(name, millions):
    """Encoder with pooler; Lan et al. 2020, table 1, reports 12, 18, 60 and 235 million."""
    recipe = read_recipe(name)
    with torch.device("meta"):
        encoder = recipe.encoder.build(recipe.tokenizer.vocabulary)
    assert recipe.tokenizer.vocabulary == 30_000
    assert sum(value.numel() for value in encoder.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize(("name", "millions"), [("distilbert", 66.36), ("tinybert-4", 14.35), ("tinybert-6", 66.96)])
def test_the_parameters_of_students(name, millions):
    """Sanh et al. 2019, table 3, without the pooler, which it lacks; Jiao et al. 2020, table 1, reports 14.5 and 67."""
    recipe = read_recipe(name)
    with torch.device("meta"):
        encoder = recipe.encoder.build(recipe.tokenizer.vocabulary)
    parts = {part: value.numel() for part, value in encoder.named_parameters()}
    lacks = "pooler." if name == "distilbert" else " "
    assert sum(number for part, number in parts.items() if not part.startswith(lacks)) / 1e6 == pytest.approx(
        millions, abs=0.005
    )


def test_the_objectives_of_students():
    """Sanh et al. 2019, section 2 and the options in the README of its code; Jiao et al. 2020, section 3.2."""
    distilbert = read_recipe("distilbert")
    weights = {name: one.weight for name, one in distilbert.objectives.items()}
    assert weights == {"masked_lm": 2.0, "soft_targets": 5.0, "hidden_cosine": 1.0}
    soft = distilbert.objectives["soft_targets"]
    assert (soft.temperature, soft.all_tokens) == (2.0, True)
    for name in ("tinybert-4", "tinybert-6"):
        (matching,) = read_recipe(name).objectives.values()
        assert (matching.embeddings, matching.hidden, matching.attention, matching.layers) == (1.0, 1.0, 1.0, ())
