"""Papers that docstrings name, for the cards of models."""

import sys
from types import ModuleType

import pytest

from unmask.data.tokenizers.wordpiece import WORDPIECE
from unmask.families import FAMILIES
from unmask.objectives import OBJECTIVES
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.next_sentence import NextSentenceSettings
from unmask.support.model_card import Origin, model_card
from unmask.support.papers import Paper, papers_of

BERT = Paper("Devlin et al. 2019", "1810.04805")
UNPUBLISHED = {"gpt", "causal_lm"}
"""Those that come from a report that is not on arXiv."""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("As in BERT (Devlin et al. 2019, arXiv 1810.04805, section 3).", ["Devlin et al. 2019"]),
        ("Kudo 2018, arXiv 1804.10959; Kudo and Richardson 2018, arXiv 1808.06226 (SentencePiece).", ["Kudo 2018"] * 2),
        ("Le Breton et al.\n2025, arXiv\n2502.19587", ["Le Breton et al. 2025"]),
        ("See Devlin et al. 2019, section 3.1, and arXiv.", []),
        ("", []),
    ],
)
def test_those_with_an_identifier_are_found(text, names):
    part = type("Part", (), {"__doc__": text, "__module__": "unmask.support.hub"})
    found = [paper.name for paper in papers_of(part)]
    assert found == (["Kudo 2018", "Kudo and Richardson 2018"] if len(names) == 2 else names)


def test_a_part_stands_before_its_module(monkeypatch):
    module = ModuleType("a_plugin", "A body (Someone et al. 2030, arXiv 3001.00001).")
    monkeypatch.setitem(sys.modules, "a_plugin", module)
    plain = type("Plain", (), {"__module__": "a_plugin"})
    other = type("Other", (), {"__module__": "a_plugin", "__doc__": "Another 2031, arXiv 3101.00002."})
    assert [paper.arxiv for paper in papers_of(plain, other, plain)] == ["3001.00001", "3101.00002"]
    module.__doc__ = None  # as by python -OO
    assert papers_of(plain) == []


def test_every_family_and_objective_names_its_paper():
    kinds = {name: family.settings for name, family in FAMILIES.items()} | dict(OBJECTIVES)
    assert {name for name, kind in kinds.items() if not papers_of(kind)} == UNPUBLISHED


def test_a_card_links_each_once_as_the_hub_reads_them():
    papers = papers_of(MaskedLMSettings, NextSentenceSettings, FAMILIES["bert"].settings, WORDPIECE.starts)
    assert papers == [BERT, Paper("Wu et al. 2016", "1609.08144")]
    card = model_card("A model", "About.", {"loss": 1.5}, Origin(papers=papers))
    assert card.endswith(
        "| loss | 1.5000 |\n\n## Papers\n\n- [Devlin et al. 2019](https://arxiv.org/abs/1810.04805)\n"
        "- [Wu et al. 2016](https://arxiv.org/abs/1609.08144)\n"
    )
    assert "Papers" not in model_card("A model", "About.", {"loss": 1.5})
