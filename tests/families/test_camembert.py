"""CamemBERT has RoBERTa's body and another name."""

from unmask.families.roberta import CAMEMBERT, CamembertSettings

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_only_the_names_of_classes_differ_from_roberta():
    assert (CAMEMBERT.kind, CAMEMBERT.format.model_type) == ("camembert", "camembert")
    assert CAMEMBERT.format.architectures[()] == "CamembertModel"
    assert CamembertSettings(**SHAPE).build(20).state_dict()["embeddings.positions.weight"].shape == (14, 8)
