"""Plots of one run, of several runs, and of confusion matrices."""

import json
import warnings

import numpy as np
import pytest

from unmask.cli.main import main
from unmask.support.errors import UserError
from unmask.training.runs import plots
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.plots import draw_runs, plot_confusion
from unmask.training.runs.summary import read_run


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Draws runs, and returns the panel and the legend."""
    pictures = []
    save = plots.save
    monkeypatch.setattr(plots, "save", lambda drawing, path: (pictures.append(drawing), save(drawing, path)))

    def draw(*paths, **options):
        draw_runs([read_run(path) for path in paths], tmp_path / "deep" / "curves.png", **options)
        assert (tmp_path / "deep" / "curves.png").read_bytes().startswith(b"\x89PNG")
        (panel,), (legend,) = pictures[-1].axes, pictures[-1].legends
        return panel, [text.get_text() for text in legend.get_texts()]

    return draw


@pytest.mark.parametrize(
    ("over", "unit", "label"), [("steps", 1, "steps"), ("tokens", 1e-3, "million tokens"), ("minutes", 1, "minutes")]
)
def test_held_out_and_training_over_steps_tokens_minutes(make_run, draw, over, unit, label):
    panel, legend = draw(make_run("a"), make_run("b", logged=4, saved=4, total=4), over=over)
    assert legend == ["a: 6.000", "b: 8.000"]
    assert (panel.get_xlabel(), panel.get_title()) == (label, "loss")
    held, train, *others = panel.get_lines()
    np.testing.assert_allclose(held.get_xdata(), np.array([0, 2, 4, 6, 8]) * unit)
    np.testing.assert_allclose(held.get_ydata(), [10, 9, 8, 8, 6])
    np.testing.assert_allclose(train.get_xdata(), np.arange(1, 9) * unit)
    np.testing.assert_allclose(train.get_ydata(), [10.5, 10, 9.5, 9, 8.5, 9, 7.5, 7])
    assert tuple(train.get_color()) == tuple(held.get_color())
    assert len(others) == 2
    assert tuple(others[0].get_color()) != tuple(held.get_color())


def test_another_metric_and_one_of_training_alone(make_run, draw):
    _, legend = draw(make_run("a"), metric="masked_lm_accuracy")
    assert legend == ["a: 0.800"]
    panel, legend = draw(make_run("b"), metric="tokens_per_second")
    assert legend == ["b"]
    assert [line.get_alpha() for line in panel.get_lines()] == [None]
    assert panel.get_title() == "tokens per second"


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_formats_for_papers_are_written_with_the_same_bytes_each_time(make_run, tmp_path, suffix, start):
    summary, written = read_run(make_run("a")), []
    for folder in ("one", "two"):
        path = tmp_path / folder / f"curves.{suffix}"
        draw_runs([summary], path)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(start)


def test_names_are_what_tells_directories_apart(make_run, draw):
    names = ("one/a", "two/a", "two/a/seed-0")
    _, legend = draw(*(make_run(name) for name in names))
    assert [text.split(":")[0] for text in legend] == list(names)


def test_many_runs_have_many_colours(make_run, draw):
    panel, legend = draw(*(make_run(f"run{number}") for number in range(12)))
    assert len(legend) == 12
    assert len({tuple(line.get_color()) for line in panel.get_lines()}) == 12


def test_T14_a_skipped_step_is_left_out_of_the_curve(make_run, draw):
    path = make_run()
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["step"] == 4:
            line["loss"] = None
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    held, train = draw(path, over="steps")[0].get_lines()
    assert held.get_xdata().tolist() == [0, 2, 6, 8]
    assert train.get_xdata().tolist() == [1, 2, 3, 5, 6, 7, 8]


def test_curves_of_training_are_smoothed(make_run, draw):
    train = draw(make_run(logged=200, saved=200, total=200), over="steps")[0].get_lines()[1]
    assert train.get_xdata().tolist() == [2.5 + 4 * piece for piece in range(50)]
    assert train.get_ydata()[-3:].tolist() == [11 - x / 2 for x in (190.5, 194.5, 198.5)]


def test_a_metric_that_a_run_lacks_is_refused_with_what_there_is(make_run, draw):
    path = make_run()
    with pytest.raises(UserError, match=r"run: no metric 'masked_lm_acuracy'; did you mean 'masked_lm_accuracy'\?"):
        draw(path, metric="masked_lm_acuracy")
    with pytest.raises(UserError, match=r"no metric 'zzz'; known: flops_per_second, loss, .*tokens_per_second"):
        draw(path, metric="zzz")
    with pytest.raises(UserError, match="no metric 'step'"):
        draw(path, metric="step")


def test_a_run_without_a_log_is_refused(make_run, draw):
    path = make_run()
    (path / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="run: nothing is logged yet; omit this run"):
        draw(path)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [(["é", "négatif"], ["é", "négatif"]), (["good", "好"], ["1", "2"]), (["no", "네"], ["1", "2"])],
)
def test_labels_that_the_font_lacks_are_numbers(labels, shown, tmp_path, monkeypatch):
    pictures = []
    save = plots.save
    monkeypatch.setattr(plots, "save", lambda drawing, path: (pictures.append(drawing), save(drawing, path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_confusion(labels, np.eye(2, dtype=int), tmp_path / "confusion.png")
    (panel,) = pictures[0].axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == shown
    assert [tick.get_text() for tick in panel.get_yticklabels()] == shown


def test_a_plot_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    drawing, _ = plots.figure(1)

    def cut_short(file, **options):
        file.write(b"\x89PNG")
        raise OSError("no space left")

    monkeypatch.setattr(drawing, "savefig", cut_short)
    with pytest.raises(OSError, match="no space left"):
        plots.save(drawing, tmp_path / "a.png")
    assert not any(tmp_path.iterdir())


def test_drawing_runs_needs_matplotlib(hide, make_run, tmp_path, capsys):
    hide("matplotlib")
    assert main(["runs", "plot", str(make_run()), "--out", str(tmp_path / "a.png")]) == 2
    said = capsys.readouterr().err
    assert said == "unmask: plots need matplotlib, which is not installed; pip install 'unmask[plots]'\n"
    assert main(["runs", "show", str(make_run("other"))]) == 0


def test_the_accuracy_of_a_discriminator_is_plotted_with_that_of_a_constant_prediction(make_run, monkeypatch):
    run = RunDirectory(make_run())
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {
            "replaced_token_loss": 0.5,
            "replaced_token_accuracy": 0.8,
            "replaced_token_baseline": 0.87 + line["step"] / 1000,
        }
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pictures = []
    monkeypatch.setattr(plots, "save", lambda drawing, path: pictures.append(drawing))
    plots.plot_training(run)
    (panel,) = (panel for panel in pictures[0].axes if panel.get_title() == "replaced token accuracy")
    (curve,) = (line for line in panel.get_lines() if line.get_linestyle() == "--")
    assert curve.get_label() == "constant prediction: 0.878"
    assert curve.get_ydata().tolist() == [0.87, 0.872, 0.874, 0.876, 0.878]


def test_objectives_of_earlier_and_later_stages_are_plotted_over_their_steps(make_run, monkeypatch):
    run = RunDirectory(make_run())
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "train":
            line["masked_lm_accuracy" if line["step"] <= 5 else "generator_accuracy"] = 0.1
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pictures = []
    monkeypatch.setattr(plots, "save", lambda drawing, path: pictures.append(drawing))
    plots.plot_training(run)
    curves = {panel.get_title(): panel.get_lines()[0].get_xdata().tolist() for panel in pictures[0].axes}
    assert {title: (round(1000 * x[0]), round(1000 * x[-1])) for title, x in curves.items()} == {
        "loss": (1, 8),
        "masked LM accuracy": (1, 5),
        "generator accuracy": (6, 8),
    }
