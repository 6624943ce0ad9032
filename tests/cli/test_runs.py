"""`unmask runs`: runs are listed, described and plotted; and user errors."""

import shutil

import pytest

from unmask.cli.main import main

from .conftest import name_case


def test_runs(line, tmp_path, capsys):
    assert main(["runs", "list", str(line), str(line / "run")]) == 0
    output, errors = capsys.readouterr()
    heading, run, tuned = output.splitlines()
    assert (heading.split()[0], errors) == ("run", "")
    for text, path, words in (
        (run, line / "run", "bert-tiny  pretraining  finished  3"),
        (tuned, line / "tuned", "classification  fine-tuning  finished  3"),
    ):
        assert text.startswith(f"{path} ")
        assert " ".join(words.split()) in " ".join(text.split())
        assert " loss " in text
        assert "_accuracy " in text
    assert main(["runs", "show", str(line / "run")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{line / 'run'}: bert-tiny, pretraining, finished\n")
    assert f"unmask pretrain bert-tiny --corpus {line / 'corpus'}" in shown
    assert "masked_lm_accuracy" in shown
    image = tmp_path / "runs.svg"
    for over in ("steps", "tokens", "minutes"):
        assert main(["runs", "plot", str(line / "run"), str(line / "tuned"), "--over", over, "--out", str(image)]) == 0
        assert capsys.readouterr() == ("", f"plot: {image}\n")
        assert image.read_text().startswith("<svg")
        image.unlink()


def test_runs_that_cannot_be_read_are_omitted_and_counted(line, tmp_path, capsys):
    shutil.copytree(line / "run", tmp_path / "whole")
    shutil.copytree(line / "run", tmp_path / "damaged")
    (tmp_path / "damaged" / "recipe.toml").write_text("name =")
    assert main(["runs", "list", str(tmp_path)]) == 0
    output, errors = capsys.readouterr()
    assert [text.split()[0] for text in output.splitlines()] == ["run", str(tmp_path / "whole")]
    count, damaged = errors.splitlines()
    assert count == "runs that cannot be read: 1"
    assert f"{tmp_path / 'damaged' / 'recipe.toml'}: the file is damaged" in damaged


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("runs", "list", "{here}"), "or its subdirectories; name the --out of a run"),
        (("runs", "list", "{here}/no"), "no: no such folder"),
        (("runs", "show", "{line}"), "this is not a run"),
        (("runs", "plot", "{line}/run", "{here}", "--out", "{here}/p.svg"), "this is not a run"),
        (("runs", "plot", "{line}/run", "--out", "{here}/p.jpg"), "p.jpg: plots are written as SVG; name it FILE.svg"),
        (("runs", "plot", "{line}/run", "--metric", "los", "--out", "{here}/p.svg"), "did you mean 'loss'?"),
        (
            ("runs", "plot", "{line}/run", "{line}/tuned", "--metric", "masked_lm_loss", "--out", "{here}/p.svg"),
            "tuned: no metric 'masked_lm_loss'",
        ),
        (("runs", "plot", "{line}/run", "--out", "{line}/train.tsv/p.svg"), "train.tsv"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
