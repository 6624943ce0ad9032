"""Reports of runs say what their pictures cannot."""

from unmask.runs.directory import RunDirectory
from unmask.runs.report import finetuning_report
from unmask.runs.summary import Reached
from unmask.tasks.classification import Classification


def test_numbers_in_the_picture_are_explained_where_the_font_lacks_a_label(make_run):
    run = RunDirectory(make_run())
    run.plots.mkdir()
    (run.plots / "confusion.png").touch()
    for labels, said in ((("good", "好"), "\n\n1: good  \n2: 好  \n"), (("no", "yes"), "\n")):
        text = finetuning_report(run, Classification(), labels, Reached(1, 1, 1.0), 3, {"accuracy": 50.0})
        assert f"![confusion](plots/confusion.png){said}\n![training]" in text
