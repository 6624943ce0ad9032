"""Calls that are killed just before they change a file: from then on nothing more is written, as after `kill -9`.

Python reports each change of a file to an audit hook, which raises an error in place of the change, and of all later
ones of that call and of its threads.
"""

import gc
import os
import sys
import threading
import weakref
from contextlib import suppress
from functools import cache

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree"}
DEAD = weakref.WeakSet()
"""Threads of calls that were killed."""


class Killed(BaseException):
    """Raised in place of a change of a file."""


class _Watch:
    folder = ""
    seen = 0
    act = None


def _hook(event, args, changes=CHANGES):  # at the end of the process, the names of modules are None
    if not (event == "open" or event in changes) or not isinstance(args[0], str | bytes | os.PathLike):
        return
    if event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return
    if threading.current_thread() in DEAD:
        raise Killed
    if _Watch.folder and os.fsdecode(args[0]).startswith(_Watch.folder):
        _Watch.seen += 1
        if _Watch.act is not None:
            _Watch.act(_Watch.seen)


def count_changes(folder, call, act=None):
    """Call a function that changes files; return how many changes it makes.

    Args:
        folder: the folder in which changes are counted, an absolute path.
        call: the function, without arguments.
        act: called with the number of each change before it is made, from 1; it may raise `Killed`.
    """
    _listen()
    before = set(threading.enumerate())
    _Watch.folder, _Watch.seen, _Watch.act = f"{folder}", 0, act
    try:
        call()
    except Killed:
        DEAD.update(set(threading.enumerate()) - before)
        raise
    finally:
        _Watch.folder = ""
    return _Watch.seen


def kill(folder, call, changes):
    """Call a function that changes files, and kill it after some changes, if it makes more; see `count_changes`."""

    def end(number):
        if number > changes:
            raise Killed

    gc.freeze()  # a collection goes through what the call leaves, not through all that the tests have loaded
    with suppress(Killed):
        count_changes(folder, call, end)
    gc.collect()  # locks that a killed program would not hold


@cache
def _listen():
    """Add the hook, which cannot be removed, where it is first needed: each `id()` is an event, too."""
    sys.addaudithook(_hook)
