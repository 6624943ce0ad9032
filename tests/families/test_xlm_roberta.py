"""XLM-RoBERTa has RoBERTa's body and another name."""

from unmask.families.roberta import ROBERTA, XLM_ROBERTA, XlmRobertaSettings

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_only_the_names_of_classes_differ_from_roberta():
    form = XLM_ROBERTA.format
    assert (form.model_type, form.prefix, form.heads) == ("xlm-roberta", "roberta.", ROBERTA.format.heads)
    assert form.architectures[("masked_lm",)] == "XLMRobertaForMaskedLM"
    assert form.without_pooler[0] == "XLMRobertaForMaskedLM"
    assert XlmRobertaSettings(**SHAPE).mismatch(0) == "offset=1"
