"""The report of a comparison: a page that is complete in itself, pictures, Markdown and CSV."""

import csv
import io
import random
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import stats

import unmask
from unmask.data.corpus.build import held_out
from unmask.data.corpus.corpus import open_corpus
from unmask.data.text.documents import Skipped, read_documents
from unmask.support.errors import UserError
from unmask.support.pictures import BESIDE, LEFT, LINE, RIGHT, WIDTH, Curve, Point, curves, front, intervals, scatter
from unmask.training.machine import choose_machine
from unmask.workflows.comparing.cells import MISTAKES, RESAMPLED, folder_of, write_result
from unmask.workflows.comparing.outcome import ArmOutcome, Difference, Estimate, Outcome, TaskFacts, TaskScore
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.recommendation import Limit, limits
from unmask.workflows.comparing.report import as_csv, as_markdown, as_page, summary, write_report
from unmask.workflows.comparing.results import conclude, rank_correlation
from unmask.workflows.comparing.settings import Arm, read_comparison

from ..html_page import HOSTILE, Page


def an_outcome(names, tasks=("a", "b"), seeds=3):
    """An outcome of arms with these names, each with scores of its own."""
    arms = []
    for number, name in enumerate(names):
        scores = {
            task: TaskScore(
                "accuracy", Estimate(70.0 + number, 68, 74), [70.0 + number + seed for seed in range(seeds)]
            )
            for task in tasks
        }
        curve = [(minutes, 100, 5.0 / (1 + minutes + number)) for minutes in range(4)]
        mean = Estimate(70.0 + number, 68.0, 74.0)
        arms.append(
            ArmOutcome(
                name,
                f"{name} how",
                "complete",
                scores=scores,
                score=mean,
                engine="torch float32",
                engine_latency=1.0 + number,
                curve=curve,
            )
        )
    facts = {task: TaskFacts("classification", "accuracy", 40, 30, 2) for task in tasks}
    differing = [Difference(tasks[0], "file:3", names[0], "gold", names[-1], names[0])]
    return Outcome(
        [f"Use {names[0]}."], [names[0]], arms, facts, differing=differing, warnings=[names[-1]], seeds=seeds
    )


def test_the_page_of_a_comparison_loads_nothing(finished):
    text = (finished[0] / "report.html").read_text()
    page = Page(text)
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.elements) and "svg" in page.elements
    loading = [value for name, value in page.attributes if name in ("src", "href", "srcset", "xlink:href")]
    assert loading == [] and "url(" not in text and "@import" not in text
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_names_are_escaped():
    outcome = an_outcome(["plain", HOSTILE])
    page = Page(as_page(outcome))
    assert "script" not in page.elements
    assert sum(HOSTILE in text for text in page.text) >= 4  # the table, the list, a picture and an example


def test_pareto_fronts():
    rng = random.Random(0)
    for _ in range(60):
        cells = [(rng.randrange(1, 8), rng.randrange(8)) for _ in range(rng.randrange(1, 12))]
        points = [Point(str(number), x, y) for number, (x, y) in enumerate(cells)]
        expected = {
            (x, y) for x, y in cells if not any(a <= x and b >= y and (a, b) != (x, y) for a, b in cells)
        }  # no other is as cheap and as good
        chosen = front(points)
        assert [(point.x, point.y) for point in chosen] == sorted(expected)


def names_in(picture):
    """Heights of the names beside the points of a picture, from the top."""
    return sorted(
        float(y)
        for y in re.findall(r'<text class="(?:best|other)" x="[\d.]+" y="([-\d.]+)" text-anchor="start"', picture)
    )


def test_names_in_pictures_do_not_overlap():
    rng = random.Random(1)
    for _ in range(60):
        number = rng.randrange(2, 25)
        middle = [rng.choice([50.0, 50.1, rng.uniform(0, 100)]) for _ in range(number)]
        points = [
            Point(f"arm {at}", rng.uniform(0.1, 500), y, (y - 1, y + 1), "other" if at else "best")
            for at, y in enumerate(middle)
        ]
        lines = [Curve(point.name, [(0, 9.0), (1, point.y)]) for point in points]
        for picture in (scatter(points, "ms", "score"), curves(lines, "minutes", "loss")):
            Page(str(picture))
            heights, height = names_in(str(picture)), picture.height
            assert len(heights) == number and min(np.diff(heights)) >= LINE - 0.11
            assert heights[0] >= LINE / 2 and heights[-1] <= height


@pytest.mark.parametrize("letter", ["x", "語"])
@pytest.mark.parametrize("size", [1, 20, 60])
def test_names_are_within_pictures_and_differ(letter, size):
    names = [f"{letter * size}{end}" for end in ("1", "2")]
    points = [Point(name, 1.0 + number, 50.0, (40, 60)) for number, name in enumerate(names)]
    lines = [Curve(name, [(0, 9.0), (1, 5.0)]) for name in names]
    for picture in (scatter(points, "ms", "score"), curves(lines, "minutes", "loss"), intervals(points, "score")):
        shown = re.findall(
            r'<text class="other" x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">([^<]+)</text>', str(picture)
        )
        assert len({text for _, _, text in shown}) == len(names)
        for x, anchor, text in shown:
            width = sum(12.5 if letter == "語" else 7.5 for letter in text)
            assert float(x) + width <= WIDTH if anchor == "start" else float(x) - width >= 0


def test_points_of_arms_that_are_equally_fast_do_not_overlap():
    """Points at a few places, far from each other; arms with the most of them stay within the picture."""
    rng = random.Random(2)
    for _ in range(40):
        speeds = [rng.choice([1.0, 10.0, 100.0]) for _ in range(rng.randrange(1, 25))]
        points = [Point(f"arm {number}", speed, rng.random(), (0, 1)) for number, speed in enumerate(speeds)]
        across = sorted(
            float(x) for x in re.findall(r'<circle class="other" cx="([-\d.]+)"', str(scatter(points, "ms", "y")))
        )
        largest = max(map(speeds.count, speeds))
        assert len(across) == len(points)
        assert np.diff(across).min(initial=BESIDE) > min(BESIDE, 2 * LEFT / largest) - 0.11
        assert across[0] > 0 and across[-1] < WIDTH - RIGHT + LEFT


def test_marks_of_axes_differ():
    rng = random.Random(3)
    for _ in range(200):
        low = rng.choice([0.0, 70.0, -3.25, 0.001, 12345.0]) + rng.choice([0, rng.random()])
        ends = low, low + rng.choice([0.0, 1e-12, 1e-5, 0.01, 3.0, 500.0])
        picture = str(intervals([Point("a", 0, low, ends)], "score"))
        marks = re.findall(r'<text class="number"[^>]*>([^<]+)<', picture)
        assert len(set(marks)) == len(marks) >= 2


def test_an_arm_that_failed_at_a_task_has_its_other_scores():
    outcome = an_outcome(["fine", "broken"], tasks=("a", "b", "c"))
    scores = outcome.arms[1].scores
    some = {"a": scores["a"], "b": msgspec.structs.replace(scores["b"], seeds=[70.0, 71.0])}
    broken = msgspec.structs.replace(outcome.arms[1], state="failed", error="the disk is full", scores=some, score=None)
    outcome = msgspec.structs.replace(outcome, arms=[outcome.arms[0], broken])
    (row,) = (line for line in as_markdown(outcome).splitlines() if line.startswith("| broken"))
    assert [cell.strip() for cell in row.split("|")[1:6]] == ["broken", "71.0 (68.0 to 74.0)", "failed", "failed", ""]
    assert row.count("|") == as_markdown(outcome).splitlines()[6].count("|")


def test_orders_of_a_first_look_agree_as_ranks_do():
    """Compared with SciPy; orders without differences agree with nothing."""
    rng = random.Random(4)
    for _ in range(100):
        arms = [f"arm {number}" for number in range(rng.randrange(1, 7))]
        looked, final = ({arm: float(rng.randrange(4)) for arm in arms} for _ in range(2))
        agreement = rank_correlation(looked, final)
        if len(arms) < 3 or len(set(looked.values())) == 1 or len(set(final.values())) == 1:
            assert agreement is None
        else:
            expected = stats.spearmanr([looked[arm] for arm in arms], [final[arm] for arm in arms]).statistic
            assert agreement == pytest.approx(expected)


def test_slow_models_and_numbers_of_examples():
    outcome = an_outcome(["slow", "fast"], tasks=("pets",))
    slow, fast = outcome.arms
    arms = [msgspec.structs.replace(slow, engine_latency=1234.5, latency=123.4), fast]
    outcome = msgspec.structs.replace(outcome, arms=arms)
    for text in (as_markdown(outcome), as_page(outcome)):
        assert "1,234 ms (torch float32)" in text and "2 ms (torch float32)" in text
        assert "123 ms for one text in torch" in text
        assert "pets (classification): 40 training examples, 30 test examples, 2 labels." in text


def test_csv_and_markdown_have_all_arms_tasks_and_seeds():
    names = ["bert, wide", 'the "best"', "a|b"]
    outcome = an_outcome(names)
    rows = list(csv.DictReader(io.StringIO(as_csv(outcome))))
    assert [(row["arm"], row["task"], int(row["seed"]), float(row["score"])) for row in rows] == [
        (arm.name, task, seed, score)
        for arm in outcome.arms
        for task, scored in arm.scores.items()
        for seed, score in enumerate(scored.seeds)
    ]
    table = [line for line in as_markdown(outcome).splitlines() if line.startswith("|")]
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table]
    head = [cell.strip() for cell in split[0]]
    assert head[:4] == ["arm", "a, accuracy", "b, accuracy", "mean"]
    assert [row[0].strip().replace("\\|", "|") for row in split[2:5]] == names
    assert all(len(row) == len(head) for row in split[1:5])
    assert split[3][1].strip() == "71.0 (68.0 to 74.0)"


@pytest.mark.parametrize(
    ("word", "limit"), [("5ms", (5, "ms")), (" 0.5 ms ", (0.5, "ms")), ("50MB", (50, "MB")), ("1.25MB", (1.25, "MB"))]
)
def test_limits(word, limit):
    assert limits([word]) == [Limit(*limit)]


@pytest.mark.parametrize("word", ["5", "ms", "5s", "-5ms", "5 mb", "1.2.3ms", "nan ms", ".ms", ""])
def test_what_is_no_limit_is_refused(word):
    with pytest.raises(UserError, match="not a limit") as caught:
        limits([word])
    assert "5ms or 50MB" in str(caught.value)


def test_limits_hold_for_the_fastest_engine():
    arm = ArmOutcome("arm", "", "complete", parameters=2_000_000, latency=9.0, engine_latency=4.0)
    assert [limit.holds(arm) for limit in limits(["5ms", "3ms", "8MB", "7.9MB"])] == [True, False, True, False]
    assert not limits(["5ms"])[0].holds(ArmOutcome("unmeasured", "", "complete"))


def faked(plan, out, accuracy):
    """Write results of all scores, with these accuracies by cell, of 2,000 examples."""
    for cell in plan.of("score"):
        folder = folder_of(out, cell)
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(cell.seed)  # the same examples for all arms
        right = rng.random(2000) < accuracy(cell)
        drawn = [right[np.random.default_rng(r).integers(2000, size=2000)].mean() * 100 for r in range(50)]
        np.save(folder / RESAMPLED, np.array([drawn], np.float32))
        result = {"metric": "accuracy", "metrics": {"accuracy": float(100 * right.mean())}, "independent": 2000}
        result["deciding"] = ["accuracy"]
        calibration = {"expected_calibration_error": 2.0 + cell.seed, "without_temperature": 30.0, "temperature": 5.0}
        result |= {"trained_on": 40, "examples": 2000, "labels": 2, "calibration": calibration if cell.seed < 2 else {}}
        result |= {"notes": [], "parameters": 9}
        rare = {"f1": 10.0 + cell.seed, "average_precision": 20.0, "examples": 7.0}
        result |= {"by_label": {"cat": {**rare, "f1": 99.0}, "dog": rare}} if cell.seed < 2 else {}
        (folder / MISTAKES).write_text("[]")
        write_result(folder, cell, {**result, "seconds": 1.0, "memory": 0, "elapsed": 1.0})


def concluded(inputs, out, accuracy, **changes):
    """The outcome of a comparison with planted results, and its report."""
    settings = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **changes)
    plan = Planner(settings, settings.named_arms(), "float32").plan()
    faked(plan, out, accuracy)
    outcome = conclude(plan, out, choose_machine("cpu", "float32"))
    write_report(outcome, out)
    return outcome


@pytest.mark.parametrize(("design", "number"), [("fraction", 4), ("fraction", 3), ("full", 4)])
def test_a_fraction_tells_what_its_effects_are_confounded_with(inputs, tmp_path, design, number):
    """With three factors or fewer, it has all combinations."""
    keys = ["encoder.layers", "encoder.heads", "masking", "layout.length"][:number]
    factors = dict(zip(keys, ([1, 2], [1, 2], ["token", "span"], [16, 32]), strict=False))
    outcome = concluded(inputs, tmp_path, lambda cell: 0.7, vary=factors, design=design, seeds=1)
    for suffix in ("html", "md"):
        text = (tmp_path / f"report.{suffix}").read_text()
        assert ("includes what three other factors change only together" in text) == (
            (design, number) == ("fraction", 4)
        )
        assert "mean over the other factors, compared with encoder.layers = 1, encoder.heads = 1" in text
    assert len(outcome.effects) == number


def test_the_report_of_a_first_look_has_its_scores_and_no_empty_table(inputs, published, tmp_path):
    arms = {"one": Arm(model=str(published)), "other": Arm(recipe="bert-tiny")}
    settings = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), arms=arms)
    plan = Planner(settings, settings.named_arms(), "float32").plan()
    plan = replace(plan, cells=tuple(cell for cell in plan.of("look") if not cell.needs))
    for cell in plan.cells:
        folder_of(tmp_path, cell).mkdir(parents=True)
        write_result(folder_of(tmp_path, cell), cell, {"score": 0.4567, "examples": 40, "elapsed": 1.0})
    outcome = conclude(plan, tmp_path, choose_machine("cpu", "float32"))
    printed = "\n".join(summary(outcome))
    for text in (printed, as_markdown(outcome), as_page(outcome)):
        assert "pets: one 0.457" in text
        assert "behind the best" not in text and "Means of" not in text


def test_effects_of_a_planted_design(inputs, tmp_path):
    """Two more layers are worth 10 points, span masking 4, and both together no more than that."""
    factors = {"encoder.layers": [1, 2], "masking": ["token", "span"]}

    def accuracy(cell):
        return 0.6 + 0.10 * ("layers=2" in cell.arm) + 0.04 * ("masking=span" in cell.arm)

    outcome = concluded(inputs, tmp_path, accuracy, vary=factors, seeds=4)
    assert outcome.best == ["encoder.layers=2,masking=span"]
    effects = {effect.factor: effect for effect in outcome.effects}
    for factor, change in (("encoder.layers", 10), ("masking", 4)):
        assert effects[factor].change.mean == pytest.approx(change, abs=0.8)
        assert effects[factor].change.low < change < effects[factor].change.high
    assert (effects["masking"].value, effects["masking"].baseline) == ("span", "token")
    assert {score.calibration for arm in outcome.arms for score in arm.scores.values()} == {2.5}, "with its temperature"
    assert outcome.arms[0].scores["pets"].by_label["dog"] == {"f1": 10.5, "average_precision": 20.0}
    page, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert "F1 (average precision) of pets: dog 10.5 (20.0); cat 99.0 (20.0)" in markdown
    assert "masking: span" in " ".join(Page(page).text)
    assert f'<td class="number">{effects["masking"].change.mean:+.2f}</td>' in page
    assert f"| masking | span instead of token | {effects['masking'].change.mean:+.2f} |" in markdown


def test_interquartile_means_of_many_seeds_stand_beside_means(inputs, tmp_path):
    """One seed fails, which moves the mean alone."""

    def accuracy(cell):
        return 0.5 if cell.arm == "bert" and cell.seed == 3 else 0.9

    outcome = concluded(inputs, tmp_path, accuracy, seeds=8)
    arm = outcome.arm("bert")
    (scores,) = (score.seeds for score in arm.scores.values())
    assert arm.interquartile.mean == pytest.approx(sum(sorted(scores)[2:6]) / 4) and arm.score.mean < 86
    assert arm.interquartile.low < 90 < arm.interquartile.high
    markdown = (tmp_path / "report.md").read_text()
    assert "| interquartile mean |" in markdown and f"| {arm.interquartile.mean:.1f} " in markdown
    assert "interquartile mean" not in as_markdown(an_outcome(["few seeds"]))


def test_an_outlook_is_shown(inputs, tmp_path):
    def accuracy(cell):
        return 0.9 - 0.1 * cell.share**-0.5 if cell.arm == "bert" else 0.5

    outcome = concluded(inputs, tmp_path, accuracy, outlook=True, seeds=4, budget="16ktok")
    assert [(each.arm, each.times) for each in outcome.prospects] == [("bert", 4), ("bert", 10)]
    score = outcome.arm("bert").score.mean
    for each in outcome.prospects:
        expected = 90 - 10 * each.times**-0.5
        assert each.score.low <= expected <= each.score.high and each.score.mean > score
    assert "bert, 4 times" in " ".join(Page((tmp_path / "report.html").read_text()).text)
    assert "| bert | 10 times |" in (tmp_path / "report.md").read_text()


def test_scores_that_get_worse_have_no_outlook(inputs, tmp_path):
    """Adapted ever longer, a checkpoint may forget; the report is written nevertheless, and says so."""
    data = msgspec.structs.replace(read_comparison(inputs / "pets.toml").tasks["pets"], examples=[8, 16, 40])

    def accuracy(cell):
        worse = 0.9 - 0.3 * cell.share - 0.005 * cell.inputs["examples"]
        return worse if cell.arm == "bert" else 0.5 + 0.005 * cell.inputs["examples"]

    outcome = concluded(inputs, tmp_path, accuracy, outlook=True, seeds=3, budget="16ktok", tasks={"pets": data})
    assert {(each.arm, each.task) for each in outcome.prospects} == {("random", "pets")}
    notes = [note for note in outcome.notes if "extrapolated" in note]
    assert [note.split(":")[0] for note in notes] == ["nothing can be extrapolated for bert", "pets"]
    assert notes[1] in (tmp_path / "report.md").read_text() and outcome.best


def test_numbers_of_labels_share_their_test_examples(inputs, tmp_path):
    """The mean over three of them is no surer than each of them, if all are right on the same examples."""
    data = msgspec.structs.replace(read_comparison(inputs / "pets.toml").tasks["pets"], examples=[8, 16, 40])
    outcome = concluded(inputs, tmp_path, lambda cell: 0.7, seeds=3, tasks={"pets": data})
    arm = outcome.arm("bert")
    for scored in arm.scores.values():
        assert (arm.score.low, arm.score.high) == pytest.approx((scored.score.low, scored.score.high))


def test_no_outlook_without_smaller_budgets(finished):
    assert finished[1].prospects == [] and finished[1].effects == []


def test_one_seed_recommends_nothing(inputs, tmp_path):
    outcome = concluded(inputs, tmp_path, lambda cell: 0.9 if cell.arm == "bert" else 0.5, seeds=1)
    assert outcome.best == ["bert", "random"]
    text = " ".join(outcome.recommendation)
    assert "One seed cannot tell arms apart" in text and "Use bert" not in text
    assert re.search(r"bert scored highest, [89]\d\.\d, \d\d\.\d points above random", text)


def test_bits_per_character_of_arms_that_are_language_models(finished):
    out, outcome = finished
    bits = outcome.arm("bert").bits
    assert 0.5 < bits.low <= bits.mean <= bits.high < 10
    assert outcome.arm("bert").pseudo and outcome.arm("random").bits is None
    assert f"bert,text,bits_per_character,0,{bits.mean}" in (out / "report.csv").read_text()
    markdown = (out / "report.md").read_text()
    assert "| bits per character |" in markdown and f"{bits.mean:.2f} ({bits.low:.2f} to {bits.high:.2f})" in markdown
    assert "compare them with each other only" in markdown


def test_bits_are_those_of_the_command(finished, inputs):
    """Held-out documents are those that the corpus holds out."""
    out, outcome = finished
    settings = read_comparison(inputs / "pets.toml")
    plan = Planner(settings, settings.named_arms(), "float32").plan()
    (trained,) = [cell for cell in plan.of("pretraining") if cell.seed == 0]
    corpus = open_corpus(folder_of(out, trained.needs["corpus"]) / "corpus")
    texts = list(held_out(read_documents([str(inputs / "text.txt")], settings.reading, Skipped())))
    assert len(texts) == len(corpus.heldout)
    (inputs / "held.txt").write_text("\n\n".join(texts))
    report = unmask.evaluate(
        folder_of(out, trained) / "run", [inputs / "held.txt"], suite="bits", device="cpu", quiet=True
    )
    assert outcome.arm("bert").bits.mean == pytest.approx(report["metrics"]["bits_per_character"], rel=1e-4)
