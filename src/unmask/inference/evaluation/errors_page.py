"""Human-readable page of a model's worst mistakes: one HTML file without scripts or external fonts and images.

Input: mistakes of any task, worst first. Output: HTML. All texts are escaped, and each has its own writing direction
(`dir="auto"`). Gold spans are underlined and predicted spans have a dashed overline, so that they can be distinguished
without color too, for example on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from unmask.support.html_page import html_page
from unmask.tasks.mistakes import Mark, Mistake, Passage

WORST = 100
"""Maximum number of mistakes on a page."""
PROBABILITIES = 5
"""Number of the largest probabilities shown per mistake; that of the gold label is always shown."""

LEGEND = 'Marks: <mark class="gold">true</mark>, <mark class="predicted">predicted</mark>, both lines where they agree.'
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --pale: #f3f3f1; --line: #c9c9c4;
  --gold: #00688b; --gold-pale: #d8eef6; --predicted: #b34700; --predicted-pale: #fde6d6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e3; --paper: #17181a; --pale: #222427; --line: #46494e;
  --gold: #6cc5e8; --gold-pale: #12394a; --predicted: #ff9f5a; --predicted-pale: #4a2a12; } }
* { box-sizing: border-box; }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "PingFang SC", sans-serif; }
h1 { font-size: 1.5em; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
header p { margin: .2rem 0; overflow-wrap: anywhere; }
article { border: 1px solid var(--line); border-radius: .5rem; margin: 1.2rem 0; padding: .8rem 1rem; }
.top { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; font-size: .85em; }
.top span { overflow-wrap: anywhere; }
h2 { font-size: .85em; font-weight: 600; margin: .6rem 0 0; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--pale); border-radius: .3rem;
  margin: .3rem 0 .6rem; padding: .5rem .7rem; line-height: 2; }
mark { color: inherit; background: none; padding: .1em 0; border: 0 solid; }
mark.gold { background: var(--gold-pale); border-bottom: 3px solid var(--gold); }
mark.predicted { background: var(--predicted-pale); border-top: 2px dashed var(--predicted); }
mark.gold.predicted { background: none; }
sup { font-size: .7em; font-weight: 600; line-height: 0; margin: 0 .2em; unicode-bidi: isolate; }
.gold > sup, .word.gold { color: var(--gold); } .predicted > sup, .word.predicted { color: var(--predicted); }
sup.gold { color: var(--gold); } sup.predicted { color: var(--predicted); }
.word { font-weight: 600; }
table { border-collapse: collapse; margin: .4rem 0 0; font-size: .9em; }
td { padding: .05rem .8rem .05rem 0; overflow-wrap: anywhere; } td.number { font-variant-numeric: tabular-nums; }
td.bar { min-width: 8rem; padding-right: .8rem; } td.bar i { display: block; border-top: .5rem solid var(--line); }
@media print { body { max-width: none; margin: 0; font-size: 10pt; } article { break-inside: avoid; }
  mark, .text { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def errors_page(title: str, about: Sequence[str], mistakes: Sequence[Mistake]) -> str:
    """Return the page as HTML.

    Args:
        title: the title of the page.
        about: lines below the title.
        mistakes: the mistakes, worst first; the first `WORST` are shown.
    """
    shown = mistakes[:WORST]
    count = f"The {len(shown):,} worst of {len(mistakes):,} mistakes:" if shown else "There are no mistakes."
    paragraphs = [*map(escape, about), count]
    if any(passage.gold or passage.predicted for mistake in shown for passage in mistake.passages):
        paragraphs.append(LEGEND)
    header = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    body = "\n".join(_article(number, mistake) for number, mistake in enumerate(shown, start=1))
    content = f"<header>\n<h1>{escape(title)}</h1>\n{header}\n</header>\n<main>\n{body}\n</main>"
    return html_page(title, STYLE, content)


def _article(number: int, mistake: Mistake) -> str:
    lines = [
        "<article>",
        f'<div class="top"><span>{number}. <bdi>{escape(mistake.caption)}</bdi></span>'
        f"<span>{escape(mistake.measure)}: {mistake.score:.3g}</span></div>",
    ]
    for passage in mistake.passages:
        lines += [f"<h2>{escape(passage.name)}</h2>"] if passage.name else []
        lines.append(f'<div class="text" dir="auto">{_marked(passage)}</div>')
    for name, words, kind in (("true", mistake.gold, "gold"), ("predicted", mistake.predicted, "predicted")):
        if words:
            lines.append(f'<div>{name}: <bdi class="word {kind}">{escape(words)}</bdi></div>')
    if mistake.probabilities:
        lines.append(_table(mistake))
    return "\n".join([*lines, "</article>"])


def _table(mistake: Mistake) -> str:
    """Return a table of the largest probabilities and that of the gold label."""
    ranked = sorted(mistake.probabilities.items(), key=lambda pair: -pair[1])
    rows = [pair for rank, pair in enumerate(ranked) if rank < PROBABILITIES or pair[0] == mistake.gold]
    left = len(ranked) - len(rows)
    cells = [
        f"<tr><td><bdi>{escape(name)}</bdi></td>"
        f'<td class="bar"><i style="width: {100 * probability:.1f}%"></i></td>'
        f'<td class="number">{probability:.3f}</td></tr>'
        for name, probability in rows
    ]
    return f"<table>{''.join(cells)}</table>" + (f"<div>and {left:,} others</div>" if left else "")


def _marked(passage: Passage) -> str:
    """Return the text with its marks, which may overlap; the label of a mark precedes it."""
    marks = [*passage.gold, *passage.predicted]
    ends = {0, len(passage.text), *(mark.start for mark in marks), *(mark.end for mark in marks)}
    parts = []
    for start, end in pairwise(sorted(ends)):
        gold, predicted = (_covering(marks, start, end) for marks in (passage.gold, passage.predicted))
        classes = " ".join(name for name, covering in (("gold", gold), ("predicted", predicted)) if covering)
        text = escape(passage.text[start:end])
        parts.append(_labels(gold, predicted, start) + (f'<mark class="{classes}">{text}</mark>' if classes else text))
    return "".join(parts)


def _covering(marks: Sequence[Mark], start: int, end: int) -> list[Mark]:
    return [mark for mark in marks if mark.start <= start and end <= mark.end]


def _labels(gold: Sequence[Mark], predicted: Sequence[Mark], start: int) -> str:
    """Return the labels of the marks that start at `start`."""
    return "".join(
        f'<sup class="{kind}">{escape(mark.label)}</sup>'
        for kind, marks in (("gold", gold), ("predicted", predicted))
        for mark in marks
        if mark.label and mark.start == start
    )
