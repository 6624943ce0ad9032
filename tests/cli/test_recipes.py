"""`unmask recipes`: shipped recipes are listed, printed and compared, and differ as the papers do."""

import re
from itertools import pairwise

import pytest

from unmask.cli.main import main
from unmask.recipes.recipe import read_recipe, recipe_text, shipped
from unmask.support.settings import parse_overrides
from unmask.workflows.library import rough

from .conftest import name_case


def test_recipes(capsys):
    assert main(["recipes", "list"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["recipe", "size", "parameters", "time", "here", "purpose"]
    assert [text.split()[0] for text in lines] == shipped()
    (line,) = (text for text in lines if text.startswith("bert-mini"))
    assert re.fullmatch(
        r"bert-mini +4 layers, width 256, 4 heads +5\.4 M +60 min  BERT at 4 layers of .* for small budgets", line
    )
    (line,) = (text for text in lines if text.startswith("bert-large"))
    assert re.search(r"335\.1 M +[\d,]+ (years|days|h) +The settings of BERT \(Devlin .* A\.2\)$", line)
    assert main(["recipes", "show", "bert-tiny"]) == 0
    assert capsys.readouterr().out == recipe_text("bert-tiny")[0]
    assert main(["recipes", "diff", "bert-small", "bert-medium"]) == 0
    changed = capsys.readouterr().out.splitlines()
    assert "-encoder.layers=4" in changed
    assert "+encoder.layers=8" in changed
    assert not any("dropout" in text for text in changed)
    assert main(["recipes", "diff", "bert-tiny", "bert-tiny"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90, "2 min"), (3600, "60 min"), (7200, "2 h"), (172_800, "2 days"), (3.2e7, "1 years"), (1e11, "3,169 years")],
)
def test_durations_have_their_largest_unit(seconds, text):
    assert rough(seconds) == text


PAIRS = "layout.kind layout.second layout.short_probability layout.single_probability"
DIFFERENCES = {
    "roberta": "tokenizer.kind tokenizer.lowercase encoder.kind encoder.segments encoder.epsilon encoder.offset"
    f" {PAIRS} objective.next_sentence stages",
    "spanbert": f"{PAIRS} masking.kind masking.p masking.longest stages"
    " objective.next_sentence objective.span_boundary",
    "albert": "tokenizer.kind encoder.kind encoder.embedding encoder.shared layout.second masking.kind masking.longest"
    " objective.next_sentence objective.sentence_order stages",
    "electra": "encoder.kind encoder.embedding layout.second layout.short_probability layout.single_probability"
    " masking.rate masking.final_rate masking.replace"
    " objective.masked_lm objective.next_sentence objective.replaced_token stages",
    "gpt": "optimizer.epsilon encoder.kind encoder.feed_forward encoder.segments encoder.activation encoder.epsilon"
    " encoder.initial_offsets"
    f" {PAIRS} masking.kind masking.rate masking.final_rate masking.replace"
    " objective.masked_lm objective.next_sentence objective.causal_lm stages",
}
"""The settings in which the family's models of one size differ from BERT; an objective counts as one key, and so does
`masking.replace`."""


@pytest.mark.parametrize("family", DIFFERENCES)
def test_two_models_differ_only_in_what_their_papers_changed(family, capsys):
    """At one size and with the same settings for small budgets, except GPT's epsilon of the optimizer."""
    assert main(["recipes", "diff", "bert-mini", f"{family}-mini"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- bert-mini", f"+++ {family}-mini"]
    assert all(re.fullmatch(r"[-+][a-z_.]+=\S+", text) for text in lines[2:])
    keys = {text[1:].split("=")[0] for text in lines[2:]}
    assert {".".join(key.split(".")[:2]) for key in keys} == {"name", *DIFFERENCES[family].split()}


@pytest.mark.parametrize(("start", "end"), tuple(pairwise([*shipped(), shipped()[0]])))
def test_the_difference_turns_one_recipe_into_the_other(start, end, capsys):
    for first, second in ((start, end), (end, start)):
        assert main(["recipes", "diff", first, second]) == 0
        changed = [text[1:] for text in capsys.readouterr().out.splitlines()[2:] if text.startswith("+")]
        assert read_recipe(first, parse_overrides(changed)) == read_recipe(second)


@pytest.mark.parametrize(
    ("arguments", "message"), [(("recipes", "show", "bert-tinny"), "did you mean 'bert-tiny'?")], ids=name_case
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
