"""The recipes of the papers' sizes have the papers' numbers, written down here a second time by hand."""

from itertools import count, takewhile

import pytest
import torch

from unmask.recipe import read_recipe

TABLE = """
recipe          layers width heads embed generator length hidden batch    rate  beta2 epsilon decay clip warmup   steps
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
"""
"""Devlin et al. 2019, section 3 and appendix A.2; Liu et al. 2019, table 9; Joshi et al. 2020, section 4.2; Lan et al.
2020, sections 3 and 4.1; Clark et al. 2020, table 6; Radford et al. 2018, section 4.1. beta1 is 0.9 in all of them.

Not in the papers but in their code: how gradients are clipped, RoBERTa's aside; epsilon of BERT, ALBERT and GPT, whose
beta2 is also from there; ALBERT's decay and warm-up, and 16 heads in its xlarge (32 by the paper's H / 64). GPT's steps
are 100 passes over about a billion tokens (800 million words), 64 times 512 at once.
"""


def numbers(recipe):
    """What the recipe does, under the names of the table."""
    encoder, optimizer, schedule, steps = recipe.encoder, recipe.optimizer, recipe.schedule, recipe.budget.steps
    replaced = recipe.objectives.get("replaced_token")
    with torch.device("meta"):
        generator = replaced and replaced.build(encoder, recipe.tokenizer.vocabulary).generator
    return {
        "layers": encoder.layers,
        "width": encoder.width,
        "heads": encoder.heads,
        "embed": encoder.embedding_width,
        "generator": generator and generator.dense.in_features,
        "length": recipe.layout.all_stages[-1].length,
        "hidden": getattr(recipe.masking, "rate", None),
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
def test_a_recipe_has_its_papers_numbers(line):
    published = {key: None if value == "-" else value for key, value in zip(HEADER, line, strict=True)}
    name = published.pop("recipe")
    recipe = read_recipe(name)
    assert numbers(recipe) == {key: value and pytest.approx(float(value)) for key, value in published.items()}
    assert recipe.optimizer.betas[0] == 0.9
    assert recipe.optimizer.kind == ("lamb" if name.startswith("albert") else "adamw")
    assert recipe.schedule.kind == ("cosine" if name.startswith("gpt") else "linear")


@pytest.mark.parametrize(
    ("name", "millions"),
    [("albert-base", 11.68), ("albert-large", 17.68), ("albert-xlarge", 58.72), ("albert-xxlarge", 222.60)],
)
def test_alberts_parameters(name, millions):
    """Encoder with pooler; Lan et al. 2020, table 1, has 12, 18, 60 and 235 million."""
    recipe = read_recipe(name)
    with torch.device("meta"):
        encoder = recipe.encoder.build(recipe.tokenizer.vocabulary)
    assert recipe.tokenizer.vocabulary == 30_000
    assert sum(value.numel() for value in encoder.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)
