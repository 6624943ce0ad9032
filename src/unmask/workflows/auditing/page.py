"""The page on which one looks through labels that are probably wrong: one HTML file that needs no server.

Input: the records of an audit, the first to look at first. Output: HTML that contains its style, its script and all
records, and loads nothing. One clicks the right labels, and the page writes the corrected records as JSON Lines.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import msgspec

from unmask.support.errors import counted
from unmask.workflows.auditing.suspects import Ranking

FILES = resources.files("unmask.workflows.auditing") / "page"
PLAYGROUND = resources.files("unmask.serving") / "page"
SHARED = ("dom.js", "examples.js")
"""Modules of the playground that the page contains, in the order in which they refer to each other."""


def audit_page(kind: str, ranking: Ranking, records: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the page.

    Args:
        kind: the task.
        ranking: the audit.
        records: all examples in the order of their ranks; see `corrections.text_records` and `sentence_records`.
        name: name of the file that it writes.
    """
    style = (FILES / "audit.css").read_text(encoding="utf8")
    script = _script()
    suspects = sum(example.is_suspect for example in ranking.examples)
    content = {"kind": kind, "labels": ranking.labels, "suspects": suspects, "name": name, "records": records}
    data = msgspec.json.encode(content).decode().replace("<", "\\u003c")  # ends no element
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = "Labels to look at"
    about = (
        f"{counted(suspects, 'example')} of {len(records):,}. The classifier agrees with {100 * ranking.agreement:.1f} "
        f"% of all labels; the estimated share of wrong ones is {100 * ranking.noise:.1f} %."
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'sha256-{digest}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{escape(about)} Choose the right label of each; one that is right stays as it is.</p>
<div class="bar"><span id="count" role="status"></span><button id="save" type="button">Save the file</button></div>
</header>
<main id="examples"></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _script() -> str:
    """Return the script: a page without a server cannot import modules, so they are joined."""
    files = (*(PLAYGROUND / file for file in SHARED), FILES / "audit.js")
    joined = "\n".join(file.read_text(encoding="utf8") for file in files)
    return '"use strict";\n' + re.sub(r"^(import .*\n|export )", "", joined, flags=re.MULTILINE)
