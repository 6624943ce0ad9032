"""Pictures as SVG, which needs no library: in the pages of reports, whose colors they follow, and as files.

Names stand beside their points and at the ends of their lines; where they would overlap they are moved apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from unicodedata import east_asian_width

from unmask.support.durable import replace_file

WIDTH, LINE = 760, 17
BESIDE = 8.0
"""Distance of points that would be one upon the other, as arms of the same shape are equally fast."""
LEFT, RIGHT, TOP, BOTTOM = 52, 170, 14, 44
"""Margins, which hold numbers and names; that of names is wider where these are long."""
LONGEST_NAME, CHARACTER = 40, 8
"""Width of the longest name that is shown, in letters, and about how wide one of them is."""
COLORS = {
    "ink": "#1b1b1b",
    "paper": "#fff",
    "line": "#c9c9c4",
    "muted": "#5b5b57",
    "best": "#00688b",
    "warn": "#b34700",
}
"""Colors of pictures in files; those of a page are its variables of the same names."""
_RULES = Template("""svg text { fill: $muted; }
svg text.best { fill: $best; font-weight: 600; } svg text.other { fill: $ink; }
svg text.constant { fill: $warn; } svg text.pale { fill: $muted; }
svg line.grid { stroke: $line; stroke-width: .5; } svg line.leader { stroke: $line; stroke-width: .6; }
svg line.best { stroke: $best; stroke-width: 2.5; } svg line.other { stroke: $muted; stroke-width: 1.5; }
svg rect { fill: $best; } svg text.inverse { fill: $paper; }
svg circle { fill: $muted; } svg circle.best { fill: $best; }
svg polyline { fill: none; } svg polyline.front { stroke: $best; stroke-width: 1.2; stroke-dasharray: 5 4; }
svg polyline.curve { stroke: $muted; stroke-width: 1.3; }
svg polyline.best { stroke: $best; stroke-width: 2.4; } svg polyline.pale { stroke-opacity: .45; }
svg polyline.constant { stroke: $warn; stroke-dasharray: 5 4; }
""")
STYLE = _RULES.substitute({name: f"var(--{name})" for name in COLORS})
"""How the parts of pictures look on a page, by their classes."""


@dataclass(frozen=True)
class Picture:
    """A picture.

    Attributes:
        height, width: its size, in pixels.
        label: what it shows, for those who cannot see it.
        parts: elements of SVG.
    """

    height: float
    label: str
    parts: Sequence[str]
    width: float = WIDTH

    def __str__(self) -> str:
        """Return the element of a page."""
        return self.drawn()

    def drawn(self, at: float | None = None) -> str:
        """Return the element of a page, or of a file, at a height in it."""
        where = "" if at is None else f' y="{at:g}" width="{self.width:g}" height="{self.height:g}"'
        head = f'<svg{where} viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
        return f'{head} aria-label="{escape(self.label, quote=True)}">{"".join(self.parts)}</svg>'


@dataclass(frozen=True)
class Point:
    """A point of a picture.

    Attributes:
        name: what stands beside it.
        x, y: where it is.
        interval: ends of the interval of y; None: it has none.
        kind: class of its parts, "best" or "other".
    """

    name: str
    x: float
    y: float
    interval: Sequence[float] | None = None
    kind: str = "other"

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.interval[0] if self.interval else self.y

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.interval[1] if self.interval else self.y


@dataclass(frozen=True)
class Curve:
    """A line of a picture.

    Attributes:
        name: what stands beside its end; "": nothing does.
        points: x and y of each point.
        kind: class of its parts, "best", "other", "pale" or "constant".
        color: of the line and its name, if it is not that of the kind.
        dots: whether points are marked.
    """

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = "other"
    color: str = ""
    dots: bool = False


def write(path: Path, *pictures: Picture) -> None:
    """Write pictures, one below the other, to a file that viewers of images and browsers show; atomically."""
    width, height = max(picture.width for picture in pictures), sum(picture.height for picture in pictures)
    parts, at = [], 0.0
    for picture in pictures:
        parts.append(picture.drawn(at))
        at += picture.height
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="12.5">'
        f"<style>{_RULES.substitute(COLORS)}</style>"
        f'<rect width="100%" height="100%" style="fill:{COLORS["paper"]}"/>{"".join(parts)}</svg>\n'
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())


def front(points: Sequence[Point]) -> list[Point]:
    """Return the Pareto front: the points than which no other one is both cheaper and better, cheapest first."""
    best, chosen = -math.inf, []
    for point in sorted(points, key=lambda point: (point.x, -point.y)):
        if point.y > best:
            chosen.append(point)
            best = point.y
    return chosen


def scatter(points: Sequence[Point], x_title: str, y_title: str) -> Picture:
    """Return quality over cost, on a logarithmic axis, with intervals and the Pareto front."""
    height, right = max(300, 60 + LINE * len(points)), _margin([point.name for point in points])
    xs = [point.x for point in points]
    low, high = math.log10(min(xs)) - 0.08, math.log10(max(xs)) + 0.08
    if high - low < 0.4:
        low, high = low - 0.15, high + 0.15
    place_y, marks_y = _scale(_ends(points), height)

    def place_x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - right)

    parts = _frame(height, right, x_title, y_title, marks_y, place_y)
    for mark in _log_marks(low, high):
        parts.append(_text(place_x(mark), height - BOTTOM + 16, f"{mark:g}", "middle", "number"))
    across = _beside([(place_x(point.x), point) for point in points])
    line = " ".join(f"{across[point.name]:.1f},{place_y(point.y):.1f}" for point in front(points))
    parts.append(f'<polyline class="front" points="{line}"/>')
    labels = _apart([(place_y(point.y), point.name) for point in points], height)
    for point in points:
        x, y, kind = across[point.name], place_y(point.y), point.kind
        parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{place_y(point.low):.1f}" '
            f'y2="{place_y(point.high):.1f}"/><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
            f"<title>{escape(_caption(point))}</title></circle>"
        )
        at = labels[point.name]
        parts.append(f'<line class="leader" x1="{x + 6:.1f}" y1="{y:.1f}" x2="{WIDTH - right + 6}" y2="{at:.1f}"/>')
        parts.append(_text(WIDTH - right + 10, at + 4, _shown(point.name), "start", kind))
    return Picture(height, f"{y_title} over {x_title}", parts)


def intervals(points: Sequence[Point], title: str) -> Picture:
    """Return one line per arm, best first, with its interval."""
    height = TOP + BOTTOM + 22 * len(points)
    lows, highs = min(point.low for point in points), max(point.high for point in points)
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
        y, kind = TOP + 22 * number + 11, point.kind
        parts.append(_text(names - 10, y + 4, _shown(point.name), "end", kind))
        parts.append(
            f'<line class="{kind}" x1="{place(point.low):.1f}" x2="{place(point.high):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class="{kind}" cx="{place(point.y):.1f}" cy="{y}" r="4.5">'
            f"<title>{escape(_caption(point))}</title></circle>"
        )
    parts.append(_text((names + WIDTH - 30) / 2, height - 8, title, "middle", "title"))
    return Picture(height, title, parts)


def curves(lines: Sequence[Curve], x_title: str, y_title: str, x_marks: Mapping[float, str] | None = None) -> Picture:
    """Return lines over an axis that begins at 0.

    Args:
        lines: the lines, each of one point or more.
        x_title, y_title: titles of the axes.
        x_marks: the marks of the horizontal axis, which then begins and ends with them.
    """
    named = [line for line in lines if line.name]
    height, right = max(280, 60 + LINE * len(named)), _margin([line.name for line in named])
    place_y, marks_y = _scale([y for line in lines for _, y in line.points], height)
    low, most = (min(x_marks), max(x_marks)) if x_marks else (0.0, max(x for line in lines for x, _ in line.points))
    marks = x_marks or {mark: f"{mark:g}" for mark in _marks(0, most or 1.0) if mark <= (most or 1.0)}

    def place_x(value: float) -> float:
        return LEFT + (value - low) / ((most - low) or 1.0) * (WIDTH - LEFT - right)

    parts = _frame(height, right, x_title, y_title, marks_y, place_y)
    parts += [_text(place_x(mark), height - BOTTOM + 16, shown, "middle", "number") for mark, shown in marks.items()]
    labels = _apart([(place_y(line.points[-1][1]), line.name) for line in named], height)
    for line in lines:
        places = [(place_x(x), place_y(y)) for x, y in line.points]
        stroke, fill = (f' style="{part}:{line.color}"' if line.color else "" for part in ("stroke", "fill"))
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="curve {line.kind}"{stroke} points="{drawn}"/>')
        if line.dots:
            parts += [f'<circle class="{line.kind}"{fill} cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in places]
        if line.name:
            (x, y), at = places[-1], labels[line.name]
            parts.append(f'<line class="leader" x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - right + 6}" y2="{at:.1f}"/>')
            parts.append(_text(WIDTH - right + 10, at + 4, _shown(line.name), "start", line.kind, fill))
    return Picture(height, f"{y_title} over {x_title}", parts)


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]], x_title: str, y_title: str) -> Picture:
    """Return a matrix of counts, each as dark as its share of its row, with the label of each row and column.

    Args:
        labels: the labels in order.
        counts: the counts by row, (labels, labels).
        x_title, y_title: what columns and rows are.
    """
    size, names = 44 if len(labels) <= 20 else 18, _margin(labels)
    top = TOP + int(0.7 * names)  # names of columns are inclined
    width, height = 2 * names + size * len(labels), top + size * len(labels) + BOTTOM
    parts = []
    for row, (label, numbers) in enumerate(zip(labels, counts, strict=True)):
        y, total = top + size * row, max(1, sum(numbers))
        parts.append(_text(names - 8, y + size / 2 + 4, _shown(label), "end", "other"))
        turn = f' transform="rotate(-40 {names + size * (row + 0.5):g} {top - 8})"'
        parts.append(_text(names + size * (row + 0.5), top - 8, _shown(label), "start", "other", turn))
        for column, number in enumerate(numbers):
            x, share = names + size * column, number / total
            caption, place = escape(f"{label} → {labels[column]}: {number:,}"), f'x="{x}" y="{y}"'
            parts.append(
                f'<rect {place} width="{size - 1}" height="{size - 1}" fill-opacity="{0.04 + 0.96 * share:.2f}">'
                f"<title>{caption}</title></rect>"
            )
            if size > LINE + 2:
                kind = "inverse" if share > 0.5 else "other"
                parts.append(_text(x + size / 2, y + size / 2 + 4, f"{number}", "middle", kind))
    parts.append(_text(names + size * len(labels) / 2, height - 14, x_title, "middle", "title"))
    parts.append(_text(names - 8, top - 8, y_title, "end", "title"))
    return Picture(height, f"{y_title} by {x_title}", parts, width)


def histogram(counts: Sequence[int], starts: Sequence[str], x_title: str, y_title: str) -> Picture:
    """Return columns, one for each count, over the values with which they start."""
    height = 260
    place_y, marks_y = _scale([0, max(counts, default=1)], height)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(counts))
    parts = _frame(height, RIGHT, x_title, y_title, marks_y, place_y)
    for number, (count, start) in enumerate(zip(counts, starts, strict=True)):
        x, y = LEFT + number * step, place_y(count)
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{step - 2:.1f}" height="{place_y(0) - y:.1f}">'
            f"<title>{escape(start)}: {count:,}</title></rect>"
        )
        parts.append(_text(x, height - BOTTOM + 16, start, "start", "number"))
    return Picture(height, f"{y_title} over {x_title}", parts)


def _caption(point: Point) -> str:
    interval = f" ({point.low:.4g} to {point.high:.4g})" if point.interval else ""
    return f"{point.name}: {point.y:.4g}{interval}"


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
    return max(RIGHT, 10 + CHARACTER * max((_columns(_shown(name)) for name in names), default=0))


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


def _ends(points: Sequence[Point]) -> list[float]:
    return [end for point in points for end in (point.low, point.high)]


def _scale(values: Sequence[float], height: int) -> tuple[Callable[[float], float], list[float]]:
    """Return the function from a value to its height in the picture, and the marks of the axis."""
    lows, highs = min(values), max(values)
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


def _apart(places: Sequence[tuple[float, str]], height: int) -> dict[str, float]:
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
    return {name: at for at, (_, name) in zip(heights, ordered, strict=True)}


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
        for number, (_, point) in enumerate(sorted(group, key=lambda each: -each[1].y)):
            across[point.name] = middle + apart * (number - (len(group) - 1) / 2)
    return across


def _text(x: float, y: float, text: str, anchor: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
