"""What `unmask push` refuses before anything is sent; uploads are in tests/families/checkpoints/test_hub.py."""

import pytest

from unmask.cli.main import main
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface


@pytest.fixture
def directory(tmp_path):
    """A model without a card."""
    settings = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=12)
    huggingface.write(tmp_path / "model", settings.build(20), {})
    return tmp_path / "model"


def test_what_cannot_be_uploaded_is_refused(directory, capsys):
    assert main(["push", "no-such", "someone/new"]) == 2
    assert "no directory 'no-such'; give a run or the directory of a model" in capsys.readouterr().err
    assert main(["push", str(directory.parent / "model"), "someone/new"]) == 2
    assert f"{directory / 'README.md'}: has no card; describe the model" in capsys.readouterr().err
    (directory / "README.md").write_text("A card.", encoding="utf8")
    assert main(["push", str(directory), "someone/new@main"]) == 2
    assert "'someone/new@main' is not the name of a repository" in capsys.readouterr().err


def test_nothing_is_sent_while_offline(directory, capsys):
    """HF_HUB_OFFLINE is set in tests."""
    (directory / "README.md").write_text("A card.", encoding="utf8")
    assert main(["push", str(directory), "someone/new"]) == 2
    assert capsys.readouterr().err.startswith("unmask: someone/new: ")
