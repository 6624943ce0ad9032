"""`unmask VERB …`: parse the command line, call the verb's function, and report errors as one line and an exit status.

A function is imported only when it is called, so that `unmask --help` does not import torch.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from unmask.cli.arguments import METAVARS, Parameter, add_parameters, parameters_of, parsed, summary
from unmask.cli.verbs import GROUPS, VERBS, Verb, print_json, print_text
from unmask.support import __version__
from unmask.support.environment import Times, busy_cores, is_out_of_memory, num_cores, read_times
from unmask.support.errors import (
    InputNote,
    InputWarning,
    UnmaskError,
    UserError,
    check_unicode,
    counted,
    printable,
)
from unmask.support.messages import argument, in_command, rendered, speak

THREADS = "OMP_NUM_THREADS"
"""Environment variable with the number of threads to compute with, whatever other programs do."""
GARBAGE = 20_000
"""Number of new objects after which Python's garbage collector runs. Importing torch creates 300,000 that all stay
alive: collecting after every 700 takes an eighth of the time until the first step."""
FALLBACK = "fall back to run on the CPU"
"""What torch says of an operator that Apple's GPUs do not have."""
JSON = Parameter("json", ("bool",), False, "print the result as one JSON object.")
"""The option of commands whose results are values (`Verb.json`)."""
PATH_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Operating system errors that a user can fix by giving another path."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    words, started = list(sys.argv[1:] if arguments is None else arguments), read_times()
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")  # read when torch is loaded
    os.environ["PYTHONSAFEPATH"] = "1"  # Python processes that this one starts import nothing from the current folder
    gc.set_threshold(GARBAGE)
    atexit.register(gc.freeze)  # else Python looks for garbage in all of torch at its end, for a quarter of a second
    _open_streams()
    before = speak(in_command)
    with _noting_interrupts() as interrupted:
        try:
            return _run(words, started)
        except UnmaskError as error:
            if not error.shown:
                _complain(rendered(error.message))
            return error.status
        except KeyboardInterrupt:
            _complain("interrupted")
            return 130
        except BrokenPipeError:  # the reader of our output has closed it
            return 0
        except OSError as error:
            file = _file_of(error) or ("standard output" if _discard_output() else "")
            _complain(f"{file}: {error.strerror or error}" if file else f"{error.strerror or error}")
            return 2 if isinstance(error, PATH_ERRORS) else 1
        except Exception as error:
            if interrupted:  # what C code that was being imported makes of Ctrl-C
                _complain("interrupted")
                return 130
            if is_out_of_memory(error):
                _complain("out of memory; choose smaller sizes, or a machine with more memory")
                return 1
            raise
        finally:
            speak(before)
            _discard_output()


def _run(words: list[str], started: Times | None) -> int:
    check_unicode(words)  # texts, and names of files, which are recorded
    options = parse(words)
    _check_folder()
    verb, parameters, shown = _command(options.command)
    speak(partial(in_command, words={name: METAVARS.get(name, name.upper()) for name in verb.words}))
    arguments = parsed(parameters, options)
    with warnings.catch_warnings():
        show_warning = warnings.showwarning
        warnings.showwarning = partial(_warn, show_warning)
        _leave_busy_cores(arguments, started)
        if "device" in arguments:  # it computes: what this processor is best at is tried while modules are imported
            import_module("unmask.support.capabilities").try_ahead()
        module, _, name = verb.function.partition(":")
        try:
            result = getattr(import_module(module), name)(**arguments)
        except OSError as error:
            if message := _describe_full_disk(error, resumes="resume" in arguments):
                raise UnmaskError(message) from error
            raise
        if verb.json and options.json:
            print_json(result)
        elif verb.show is not None:
            names = (parameter.name for parameter in shown if parameter is not JSON)
            verb.show(result, **{name: getattr(options, name) for name in names})
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnmaskError(f"standard output: {error.strerror or error}") from error
    return 0


def _file_of(error: OSError) -> str:
    """Return the file that an error is about, the new one of two; "" if it names none."""
    return str(error.filename2 or error.filename or "")


def _describe_full_disk(error: OSError, *, resumes: bool) -> str:
    """Return the message about a full disk with the remedy; "" for other errors, and those that name no file.

    Args:
        error: the error.
        resumes: whether the command can be resumed.
    """
    from unmask.support.durable import full_disk

    file = _file_of(error)
    if not file or full_disk(error) is None:
        return ""
    again = f"continue with {argument('resume', True)}" if resumes else "give the same command again"
    return f"{file}: {error.strerror}; free some space, then {again}"


def _check_folder() -> None:
    """Check that the current folder exists: without one, torch's libraries end the program.

    Raises:
        UserError: it was deleted.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UserError("the current folder was deleted", remedy="change to one that exists: cd FOLDER") from error


def _command(words: str) -> tuple[Verb, tuple[Parameter, ...], tuple[Parameter, ...]]:
    """Return a command, the parameters of its function, and those of what prints its result."""
    verb = VERBS[words]
    parameters = parameters_of(verb.function)
    if verb.show is None or verb.show.__module__ != Verb.__module__:
        return verb, parameters, ()
    shown = parameters_of(f"{Verb.__module__}:{verb.show.__name__}")[1:]
    return verb, parameters, (*shown, JSON) if verb.json else shown


def _leave_busy_cores(arguments: Mapping[str, Any], started: Times | None) -> None:
    """Compute with as many threads as there are cores that no other program has occupied since the start."""
    if arguments.get("device") not in ("auto", "cpu") or arguments.get("restarts") or THREADS in os.environ:
        return
    import torch

    if arguments["device"] == "auto" and torch.cuda.is_available():
        return
    busy, cores = busy_cores(started, read_times()), num_cores()
    free = max(1, cores - round(busy))
    if free < torch.get_num_threads():
        torch.set_num_threads(free)
        if not arguments.get("quiet"):
            how = f"computing with {counted(free, 'thread')} ({THREADS} overrides)"
            print_text(f"other programs use {busy:.1f} of {cores} cores: {how}", sys.stderr)


def _warn(shown: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a note or a warning to the user as one line; others, which are for programmers, as Python does."""
    falls_back = FALLBACK in str(message)
    if issubclass(category, InputWarning) or falls_back:
        kind = "note" if issubclass(category, InputNote) or falls_back else "warning"
        _complain(f"{kind}: {rendered(str(message))}")
    else:
        shown(message, category, *where)


def _complain(text: str) -> None:
    """Print an error, whatever is in it, as one line."""
    with suppress(OSError):
        print(f"unmask: {printable(text)}", file=sys.stderr, flush=True)


def _open_streams() -> None:
    """Replace streams that the caller has closed, and let characters that a stream cannot encode be escaped."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number, which no other file may get
            if number == 1:
                sys.stdout = open(1, "w", encoding="utf8", closefd=False)  # noqa: SIM115 (writing is an error)
            elif number == 2:
                sys.stderr = open(os.devnull, "w", encoding="utf8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> bool:
    """Return whether standard output cannot be written; what it still holds is then lost, so that the end is quiet."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Yield a list that is not empty once Ctrl-C was pressed, even if KeyboardInterrupt became another error."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    replaced = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        if replaced:
            signal.signal(signal.SIGINT, before)


def completion(shell: Literal["bash", "zsh", "fish"]) -> str:
    """Print the completion of a shell: bash, zsh or fish.

    Args:
        shell: shell to complete commands in.
    """
    import shtab

    return shtab.complete(command_parser(path_completion=shtab.FILE), shell)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, reading only the functions of the verb that is called."""
    called = next((word for word in arguments if not word.startswith("-")), None)
    first = called in {words.partition(" ")[0] for words in VERBS} and arguments[0] == called
    return command_parser(called, alone=first).parse_args(arguments)


def command_parser(
    called: str | None = None, *, alone: bool = False, path_completion: Any = None
) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Args:
        called: the verb that is called; the parser has its options.
        alone: whether it has no other verbs, which only the help of the program, and errors about a verb, name.
        path_completion: what completes names of files in shells; the parser then has the options of all verbs.
    """
    parser = argparse.ArgumentParser(
        prog="unmask", description="Pretrain, adapt, fine-tune and use language encoders on your own text."
    )
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    groups: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {}
    for words, verb in VERBS.items():
        name, _, action = words.partition(" ")
        wanted = path_completion is not None or name == called
        if alone and not wanted:
            continue
        if action and name not in groups:
            outer = verbs.add_parser(name, help=GROUPS[name], description=f"{_capitalized(GROUPS[name])}.")
            groups[name] = outer.add_subparsers(dest="action", required=True, metavar="ACTION")
        if action and not wanted:
            continue
        text = summary(verb.function)
        inner = (groups[name] if action else verbs).add_parser(
            action or name, help=text.replace("%", "%%"), description=f"{_capitalized(text)}."
        )
        inner.set_defaults(command=words)
        if wanted:
            _, parameters, shown = _command(words)
            values = {key: tuple(of()) for key, of in verb.values.items()}
            add_parameters(inner, parameters, verb.words, values, path_completion)
            add_parameters(inner, shown)
    return parser


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
