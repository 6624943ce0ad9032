"""Pages of HTML that load nothing: one file with its style and, if it has one, its script."""

from __future__ import annotations

import base64
import hashlib
from html import escape


def html_page(title: str, style: str, body: str, *, script: str = "") -> str:
    """Return a page, which a browser lets load nothing, and run no script but this one.

    Args:
        title: its title, as text.
        style: its CSS.
        body: the HTML of its content.
        script: JavaScript that runs after the content; "": none.
    """
    allowed = ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed, body = f"; script-src 'sha256-{digest}'", f"{body}\n<script>{script}</script>"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{allowed}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
