"""Notes and warnings to users.

A warning is of what may make results wrong, a note of all else that is worth knowing. What has a display prints both
(`Display.say`, `Display.warn`), and results have them in their `notes` and `warnings`. Everything else issues them
here, by Python's `warnings`, so that programs can filter them; the command line, also that of the server, prints
each as one line that begins with "note" or "warning".
"""

from __future__ import annotations

import warnings

from unmask.support.errors import InputNote, InputWarning
from unmask.support.messages import rendered


def warn(text: str, stacklevel: int = 2) -> None:
    """Issue a warning.

    Args:
        text: its text, with references to parameters and settings (`support.messages`).
        stacklevel: whose line it is about: 1 is the caller's, 2 that of the caller's caller, and so on.
    """
    warnings.warn(rendered(text), InputWarning, stacklevel=stacklevel + 1)


def note(text: str, stacklevel: int = 2) -> None:
    """Issue a note; see `warn`."""
    warnings.warn(rendered(text), InputNote, stacklevel=stacklevel + 1)
