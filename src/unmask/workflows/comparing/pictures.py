"""Pictures of the report as SVG, which needs no library and follows the colors of the page.

Names of arms stand beside their points; where they would overlap they are moved apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from unmask.workflows.comparing.outcome import Estimate

WIDTH, LINE = 760, 17
BESIDE = 8.0
"""Distance of points that would be one upon the other, as arms of the same shape are equally fast."""
LEFT, RIGHT, TOP, BOTTOM = 52, 170, 14, 44
"""Margins, which hold numbers and names; that of names is wider where these are long."""
LONGEST_NAME, CHARACTER = 40, 8
"""Width of the longest name that is shown, in letters, and about how wide one of them is."""


@dataclass(frozen=True)
class Point:
    """An arm in a picture: where it is, its interval, and whether it stands out."""

    name: str
    x: float
    y: Estimate
    stands_out: bool


def front(points: Sequence[Point]) -> list[Point]:
    """Return the Pareto front: the points than which no other one is both cheaper and better, cheapest first."""
    best, chosen = -math.inf, []
    for point in sorted(points, key=lambda point: (point.x, -point.y.mean)):
        if point.y.mean > best:
            chosen.append(point)
            best = point.y.mean
    return chosen


def scatter(points: Sequence[Point], x_title: str, y_title: str) -> str:
    """Return quality over cost, on a logarithmic axis, with intervals and the Pareto front."""
    height, right = max(300, 60 + LINE * len(points)), _margin([point.name for point in points])
    xs = [point.x for point in points]
    low, high = math.log10(min(xs)) - 0.08, math.log10(max(xs)) + 0.08
    if high - low < 0.4:
        low, high = low - 0.15, high + 0.15
    place_y, marks_y = _scale([point.y for point in points], height)

    def place_x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - right)

    parts = _frame(height, right, x_title, y_title, marks_y, place_y)
    for mark in _log_marks(low, high):
        parts.append(_text(place_x(mark), height - BOTTOM + 16, f"{mark:g}", "middle", "number"))
    across = _beside([(place_x(point.x), point) for point in points])
    line = " ".join(f"{across[point.name]:.1f},{place_y(point.y.mean):.1f}" for point in front(points))
    parts.append(f'<polyline class="front" points="{line}"/>')
    labels = _apart([(place_y(point.y.mean), point) for point in points], height)
    for point in points:
        x, y = across[point.name], place_y(point.y.mean)
        kind = "best" if point.stands_out else "other"
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{place_y(point.y.low):.1f}" '
            f'y2="{place_y(point.y.high):.1f}"/><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
            f"<title>{escape(_caption(point))}</title></circle>"
        )
        at = labels[point.name]
        parts.append(f'<line class="leader" x1="{x + 6:.1f}" y1="{y:.1f}" x2="{WIDTH - right + 6}" y2="{at:.1f}"/>')
        parts.append(_text(WIDTH - right + 10, at + 4, _shown(point.name), "start", kind))
    return _svg(height, f"{y_title} over {x_title}", parts)


def intervals(points: Sequence[Point], title: str) -> str:
    """Return one line per arm, best first, with its interval."""
    height = TOP + BOTTOM + 22 * len(points)
    lows, highs = min(point.y.low for point in points), max(point.y.high for point in points)
    marks = _marks(lows, highs)
    low, high = min(lows, marks[0]), max(highs, marks[-1])
    names = _margin([point.name for point in points]) + 30

    def place(value: float) -> float:
        return names + (value - low) / max(high - low, 1e-9) * (WIDTH - names - 30)

    parts = []
    for mark in marks:
        x = place(mark)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(_text(x, height - BOTTOM + 16, f"{mark:g}", "middle", "number"))
    for number, point in enumerate(points):
        y, kind = TOP + 22 * number + 11, "best" if point.stands_out else "other"
        parts.append(_text(names - 10, y + 4, _shown(point.name), "end", kind))
        parts.append(
            f'<line class="{kind}" x1="{place(point.y.low):.1f}" x2="{place(point.y.high):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class="{kind}" cx="{place(point.y.mean):.1f}" cy="{y}" r="4.5">'
            f"<title>{escape(_caption(point))}</title></circle>"
        )
    parts.append(_text((names + WIDTH - 30) / 2, height - 8, title, "middle", "title"))
    return _svg(height, title, parts)


def curves(lines: Sequence[tuple[str, Sequence[tuple[float, float]], bool]], x_title: str, y_title: str) -> str:
    """Return learning curves: for each its name, its points and whether it stands out."""
    height, right = max(280, 60 + LINE * len(lines)), _margin([name for name, _, _ in lines])
    xs = [x for _, points, _ in lines for x, _ in points]
    ends = [Estimate(y, y, y) for _, points, _ in lines for _, y in points]
    place_y, marks_y = _scale(ends, height)
    most = max(xs) or 1.0

    def place_x(value: float) -> float:
        return LEFT + value / most * (WIDTH - LEFT - right)

    parts = _frame(height, right, x_title, y_title, marks_y, place_y)
    for mark in _marks(0, most):
        if mark <= most:
            parts.append(_text(place_x(mark), height - BOTTOM + 16, f"{mark:g}", "middle", "number"))
    named = [
        (place_y(points[-1][1]), Point(name, points[-1][0], Estimate(points[-1][1], 0, 0), stands_out))
        for name, points, stands_out in lines
    ]
    labels = _apart(named, height)
    for name, points, stands_out in lines:
        kind = "best" if stands_out else "other"
        drawn = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        end_x, end_y, at = place_x(points[-1][0]), place_y(points[-1][1]), labels[name]
        parts.append(f'<polyline class="curve {kind}" points="{drawn}"/>')
        parts.append(f'<line class="leader" x1="{end_x:.1f}" y1="{end_y:.1f}" x2="{WIDTH - right + 6}" y2="{at:.1f}"/>')
        parts.append(_text(WIDTH - right + 10, at + 4, _shown(name), "start", kind))
    return _svg(height, f"{y_title} over {x_title}", parts)


def histogram(counts: Sequence[int], starts: Sequence[str], x_title: str, y_title: str) -> str:
    """Return columns, one for each count, over the values with which they start."""
    height = 260
    place_y, marks_y = _scale([Estimate(0, 0, max(counts, default=1))], height)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(counts))
    parts = _frame(height, RIGHT, x_title, y_title, marks_y, place_y)
    for number, (count, start) in enumerate(zip(counts, starts, strict=True)):
        x, y = LEFT + number * step, place_y(count)
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{step - 2:.1f}" height="{place_y(0) - y:.1f}">'
            f"<title>{escape(start)}: {count:,}</title></rect>"
        )
        parts.append(_text(x, height - BOTTOM + 16, start, "start", "number"))
    return _svg(height, f"{y_title} over {x_title}", parts)


def _caption(point: Point) -> str:
    return f"{point.name}: {point.y.mean:.4g} ({point.y.low:.4g} to {point.y.high:.4g})"


def _shown(name: str) -> str:
    """Return a name, without its middle if it is long: arms of factors differ at their ends."""
    if (width := _columns(name)) <= LONGEST_NAME:
        return name
    half = LONGEST_NAME * len(name) // (2 * width)
    return f"{name[: half - 1]}…{name[-half:]}"


def _columns(text: str) -> int:
    """Return the width of a text in letters; Chinese ones count as two."""
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def _margin(names: Sequence[str]) -> int:
    """Return how wide the margin of names is."""
    return max(RIGHT, 10 + CHARACTER * max(_columns(_shown(name)) for name in names))


def _frame(
    height: int, right: int, x_title: str, y_title: str, marks: Sequence[float], place: Callable[[float], float]
) -> list[str]:
    """Return the grid and the titles of a picture, with a margin of names on the right."""
    parts = []
    for mark in marks:
        y = place(mark)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{mark:g}", "end", "number"))
    parts.append(_text((LEFT + WIDTH - right) / 2, height - 8, x_title, "middle", "title"))
    middle = (TOP + height - BOTTOM) / 2
    parts.append(
        f'<text class="title" text-anchor="middle" transform="translate(13 {middle:.0f}) rotate(-90)">'
        f"{escape(y_title)}</text>"
    )
    return parts


def _scale(values: Sequence[Estimate], height: int) -> tuple[Callable[[float], float], list[float]]:
    """Return the function from a value to its height in the picture, and the marks of the axis."""
    lows, highs = min(value.low for value in values), max(value.high for value in values)
    marks = _marks(lows, highs)
    low, high = min(lows, marks[0]), max(highs, marks[-1])
    return lambda value: height - BOTTOM - (value - low) / max(high - low, 1e-9) * (height - TOP - BOTTOM), marks


def _marks(low: float, high: float) -> list[float]:
    """Return round numbers from below one value to above another, four to eight of them."""
    span = max(high - low, 1e-4 * max(abs(low), abs(high)), 1e-6)  # marks have six digits
    size = 10 ** math.floor(math.log10(span / 4))
    step = next(factor * size for factor in (1, 2, 5, 10) if span / (factor * size) <= 7)
    first = math.floor(low / step)
    return [round(step * number, 10) for number in range(first, max(math.ceil(high / step), first + 1) + 1)]


def _log_marks(low: float, high: float) -> list[float]:
    marks = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in (1, 2, 5)]
    return [mark for mark in marks if low <= math.log10(mark) <= high]


def _apart(places: Sequence[tuple[float, Point]], height: int) -> dict[str, float]:
    """Return the heights of names, in the order of their points, at least a line apart."""
    ordered = sorted(places, key=lambda place: place[0])
    heights: list[float] = []
    for place, _ in ordered:
        heights.append(max(place, heights[-1] + LINE) if heights else place)
    over = heights[-1] - (height - BOTTOM) if heights else 0
    if over > 0:  # shift up, as far as names above allow
        last = float(height - BOTTOM + LINE)
        for number in range(len(heights) - 1, -1, -1):
            heights[number] = min(heights[number], last - LINE)
            last = heights[number]
    return {point.name: at for at, (_, point) in zip(heights, ordered, strict=True)}


def _beside(places: Sequence[tuple[float, Point]]) -> dict[str, float]:
    """Return where points are across, by their names: those that would overlap stand beside each other, best first."""
    groups: list[list[tuple[float, Point]]] = []
    for place, point in sorted(places, key=lambda each: each[0]):
        if groups and place - groups[-1][0][0] < BESIDE:
            groups[-1].append((place, point))
        else:
            groups.append([(place, point)])
    across = {}
    for group in groups:
        middle = sum(place for place, _ in group) / len(group)
        apart = min(BESIDE, 2 * LEFT / len(group))  # within the picture
        for number, (_, point) in enumerate(sorted(group, key=lambda each: -each[1].y.mean)):
            across[point.name] = middle + apart * (number - (len(group) - 1) / 2)
    return across


def _text(x: float, y: float, text: str, anchor: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}">'
    return f"{head}{''.join(parts)}</svg>"
