"""Plots of one run, of several runs, and of confusion matrices."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from unmask.support import pictures
from unmask.support.errors import UserError
from unmask.training.runs import plots
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.plots import draw_runs, plot_confusion
from unmask.training.runs.summary import read_run


@pytest.fixture
def drawn(monkeypatch):
    """The lines and titles of the panels that are drawn."""
    panels = []

    def watched(lines, x_title, y_title):
        panels.append((lines, x_title, y_title))
        return pictures.curves(lines, x_title, y_title)

    monkeypatch.setattr(plots, "curves", watched)
    return panels


@pytest.fixture
def draw(tmp_path, drawn):
    """Draws runs, and returns the lines and the titles."""

    def draw(*paths, **options):
        draw_runs([read_run(path) for path in paths], tmp_path / "deep" / "curves.svg", **options)
        ElementTree.parse(tmp_path / "deep" / "curves.svg")
        return drawn[-1]

    return draw


def names(lines):
    return [line.name for line in lines if line.name]


@pytest.mark.parametrize(
    ("over", "unit", "label"), [("steps", 1, "steps"), ("tokens", 1e-3, "million tokens"), ("minutes", 1, "minutes")]
)
def test_held_out_and_training_over_steps_tokens_minutes(make_run, draw, over, unit, label):
    lines, *titles = draw(make_run("a"), make_run("b", logged=4, saved=4, total=4), over=over)
    assert names(lines) == ["a: 6.000", "b: 8.000"]
    assert titles == [label, "loss"]
    held, train, *others = lines
    np.testing.assert_allclose(held.points, list(zip(np.array([0, 2, 4, 6, 8]) * unit, [10, 9, 8, 8, 6], strict=True)))
    expected = [10.5, 10, 9.5, 9, 8.5, 9, 7.5, 7]
    np.testing.assert_allclose(train.points, list(zip(np.arange(1, 9) * unit, expected, strict=True)))
    assert train.color == held.color and held.dots and train.kind == "pale"
    assert len(others) == 2 and others[0].color != held.color


def test_another_metric_and_one_of_training_alone(make_run, draw):
    assert names(draw(make_run("a"), metric="masked_lm_accuracy")[0]) == ["a: 0.800"]
    (line,), _, title = draw(make_run("b"), metric="tokens_per_second")
    assert (line.name, line.kind, title) == ("b", "other", "tokens per second")


def test_names_are_what_tells_directories_apart(make_run, draw):
    paths = ("one/a", "two/a", "two/a/seed-0")
    lines, *_ = draw(*(make_run(path) for path in paths))
    assert [name.split(":")[0] for name in names(lines)] == list(paths)


def test_runs_have_colors_of_their_own(make_run, draw):
    lines, *_ = draw(*(make_run(f"run{number}") for number in range(12)))
    assert len(names(lines)) == 12
    assert len({line.color for line in lines}) == len(plots.HUES) == 10


def test_T14_a_skipped_step_is_left_out_of_the_curve(make_run, draw):
    path = make_run()
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["step"] == 4:
            line["loss"] = None if line["kind"] == "train" else float("nan")
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    held, train = draw(path, over="steps")[0]
    assert [x for x, _ in held.points] == [0, 2, 6, 8]
    assert [x for x, _ in train.points] == [1, 2, 3, 5, 6, 7, 8]


def test_curves_of_training_are_smoothed(make_run, draw):
    x, y = zip(*draw(make_run(logged=200, saved=200, total=200), over="steps")[0][1].points, strict=True)
    assert list(x) == [2.5 + 4 * piece for piece in range(50)]
    assert list(y[-3:]) == [11 - x / 2 for x in (190.5, 194.5, 198.5)]


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


@pytest.mark.parametrize("number", [2, 30])
def test_a_confusion_matrix_has_its_labels_and_counts(number, tmp_path):
    labels = ['<é> & "好"', *(f"label {x}" for x in range(number - 1))]
    counts = np.random.default_rng(0).integers(1000, size=(number, number))
    plot_confusion(labels, counts, tmp_path / "a" / "confusion.svg")
    root = ElementTree.parse(tmp_path / "a" / "confusion.svg").getroot()
    shown = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(shown.count(label) == 2 for label in labels) and {"true", "predicted"} < set(shown)
    assert all((str(count) in shown) == (number == 2) for count in counts.flat)
    captions = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    pairs = zip([(row, column) for row in labels for column in labels], counts.flat, strict=True)
    assert captions == [f"{row} → {column}: {count}" for (row, column), count in pairs]


def test_the_accuracy_of_a_discriminator_is_plotted_with_that_of_a_constant_prediction(make_run, drawn):
    run = RunDirectory(make_run())
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {
            "replaced_token_loss": 0.5,
            "replaced_token_accuracy": 0.8,
            "replaced_token_baseline": 0.87 + line["step"] / 1000,
        }
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plots.plot_training(run)
    (lines,) = (lines for lines, _, title in drawn if title == "replaced token accuracy")
    (curve,) = (line for line in lines if line.kind == "constant")
    assert curve.name == "constant prediction: 0.878"
    assert [y for _, y in curve.points] == [0.87, 0.872, 0.874, 0.876, 0.878]


def test_objectives_of_earlier_and_later_stages_are_plotted_over_their_steps(make_run, drawn):
    run = RunDirectory(make_run())
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "train":
            line["masked_lm_accuracy" if line["step"] <= 5 else "generator_accuracy"] = 0.1
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plots.plot_training(run)
    curves = {title: [x for x, _ in lines[0].points] for lines, _, title in drawn}
    assert {title: (round(1000 * x[0]), round(1000 * x[-1])) for title, x in curves.items()} == {
        "loss": (1, 8),
        "masked LM accuracy": (1, 5),
        "generator accuracy": (6, 8),
    }
