"""Model cards, as huggingface_hub reads and validates them."""

import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.support.errors import UserError
from unmask.support.model_card import (
    LICENSES,
    BaseModel,
    CardSettings,
    Origin,
    check_languages,
    check_license,
    complete_card,
    model_card,
    read_metadata,
)
from unmask.tasks import TASKS

hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")

COMMIT = "0123456789" * 4
CACHE = f"/cache/datasets--someone--reviews/snapshots/{COMMIT}#"
PIPELINES = {"text-classification", "text-ranking", "sentence-similarity", "multiple-choice", "feature-extraction"} | {
    *("question-answering", "token-classification", "fill-mask"),
}
"""Tags of the Hub, of those that exist."""


def test_the_metadata_are_those_of_the_hub():
    """What is not a number, and what is not known, is left out."""
    base = BaseModel.read(f"someone/model@{COMMIT}", "---\nlicense: mit\nlanguage: [en, no, klingon]\n---\n# A model")
    origin = Origin(
        settings=CardSettings(license="apache-2.0"),
        base=base,
        languages=("de", "en"),
        pipeline="text-classification",
        tags=("a-tag",),
        train=[f"{CACHE}default/train", "more.tsv", f"{CACHE}default/extra"],
        held=["/data/dev.tsv"],
    )
    text = model_card("A title: with a colon", "About.", {"accuracy": 91.5, "loss": math.nan}, origin)
    card = hub.ModelCard(text)
    (result,) = card.data.eval_results
    assert card.data.to_dict() | {"model-index": None} == {
        "language": ["en", "no", "de"],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["a-tag"],
        "base_model": "someone/model",
        "base_model_license": "mit",
        "datasets": ["someone/reviews"],
        "model-index": None,
    }
    assert card.data.model_name == "A title: with a colon"
    assert (result.task_type, result.dataset_name, result.dataset_type) == (
        "text-classification",
        "dev.tsv",
        "held-out",
    )
    assert (result.metric_type, result.metric_value) == ("accuracy", 91.5)
    assert "The card of [someone/model](https://huggingface.co/someone/model) states the license mit." in card.text
    assert hub.ModelCard(model_card("T", "About.")).data.to_dict() == {"library_name": "transformers"}
    assert model_card("T", "About.").endswith("# T\n\nAbout.\n\n")


def test_scores_on_a_split_of_the_hub_name_it():
    origin = Origin(pipeline="text-classification", held=[f"{CACHE}plain/test"])
    (result,) = hub.ModelCard(model_card("T", "About.", {"f1": 1.0}, origin)).data.eval_results
    found = result.dataset_name, result.dataset_type, result.dataset_config, result.dataset_split
    assert found == ("someone/reviews", "someone/reviews", "plain", "test") and result.dataset_revision == COMMIT


def test_tasks_have_pipelines_of_the_hub():
    assert {task.card.pipeline for task in TASKS.values()} - {""} <= PIPELINES


def test_a_base_model_that_is_not_from_the_hub_is_known_by_its_card():
    made = model_card("T", "About.", origin=Origin(base=BaseModel("someone/model", "mit", True, ("en",))))
    base = BaseModel.read("", made)
    assert base == BaseModel("someone/model", "mit", True, ("en",))
    own = BaseModel.read("", made.replace("---\n", '---\nlicense: "cc0-1.0"\n', 1))
    assert own == BaseModel("someone/model", "cc0-1.0", False, ("en",))
    assert own.sentence() == "The card of the model it was made of states the license cc0-1.0."
    assert "base_model_license" not in Origin(base=own).metadata()


@pytest.mark.parametrize(
    "card",
    [
        *(
            "",
            "# A card",
            "---\n[1, 2]\n---\n",
            "---\na: [\n---\n",
            "---\n: : :\n---\n",
            "---\nlicense: [mit, x]\n---\n",
        ),
        *("---\nlicense: {a: 1}\nlanguage: 5\nbase_model: [a/b, c/d]\n---\n", "---\nlicense: 'a b'\n---\n"),
    ],
)
def test_what_a_card_does_not_state_is_unknown(card):
    assert BaseModel.read("", card) == BaseModel()


NAMES = st.text(string.printable + "äß好\u2028\x7f\x85\ufeff🐕", max_size=20)


@given(NAMES, NAMES, st.lists(NAMES, max_size=3), st.dictionaries(NAMES, st.floats(), max_size=3))
def test_any_text_is_valid_yaml(title, file, tags, scores):
    origin = Origin(pipeline="text-classification", tags=tags, held=[file])
    metadata = read_metadata(model_card(title, "About.", scores, origin))
    assert metadata["library_name"] == "transformers" and metadata.get("tags", []) == tags
    finite = {name: value for name, value in scores.items() if math.isfinite(value)}
    if finite:
        ((index,),) = [metadata["model-index"]]
        assert index["name"] == title
        found = {metric["name"]: metric["value"] for metric in index["results"][0]["metrics"]}
        assert found == pytest.approx(finite)


@pytest.mark.parametrize(
    ("license", "message"),
    [
        ("Apache-2.0", "'Apache-2.0' is not the identifier .*; did you mean 'apache-2.0'. .a license that is not"),
        ("my own", "'my own' is not the identifier of a license on the Hugging Face Hub; write it as https:"),
    ],
)
def test_other_licenses_are_refused(license, message):
    with pytest.raises(UserError, match=message):
        check_license(license)
    with pytest.raises(ValueError, match=message):
        CardSettings(license=license)
    assert all(check_license(known) == known for known in LICENSES)


def test_languages_are_codes_of_iso_639():
    assert check_languages("en, de,en") == ("en", "de") and check_languages(["gsw", "multilingual"]) == (
        "gsw",
        "multilingual",
    )
    for language in ("english", "xx", "EN", "en-US", "", "en,", []):
        with pytest.raises(UserError, match=r"is not the code of a language; write codes of ISO 639, such as en"):
            check_languages(language)


def test_a_card_is_completed(tmp_path):
    path = tmp_path / "README.md"
    text = "# Mine\n\n---\nlicense: no metadata\n---\n\udcff"
    for before, tags in (("", None), ("---\ntags: [a, b]\nlicense: mit\nwhen: 2024-01-02\n---\r\n", ["a", "b"])):
        path.write_bytes((before + text).encode("utf8", "surrogateescape"))
        assert complete_card(tmp_path, CardSettings()).get("tags") == tags
        assert path.read_bytes().startswith((before + text).encode("utf8", "surrogateescape")), "unchanged"
        complete_card(tmp_path, CardSettings(license="cc0-1.0", language="en,de"))
        written = path.read_bytes().decode("utf8", "surrogateescape")
        metadata = read_metadata(written)
        assert (metadata["license"], metadata["language"], metadata.get("tags")) == ("cc0-1.0", ["en", "de"], tags)
        assert written.endswith(f"---\n{text}") and written.count("license: ") == 2
    path.write_text("---\na: [\n---\n")
    with pytest.raises(UserError, match=r"README\.md: its YAML is broken"):
        complete_card(tmp_path, CardSettings(license="mit"))
