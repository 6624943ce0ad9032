"""References to parameters and settings in messages, which each front writes in its own way.

A message such as f"pass {argument('allow_pickle', True)}" is right in Python (`allow_pickle=True`) and on the command
line (`--allow-pickle`). The functions here return references as marked text, so that messages are composed as usual; a
front writes them out when it shows the message (`rendered`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """A parameter of a function.

    Attributes:
        name: its name.
        value: its value in the message; None: the parameter only.
    """

    name: str
    value: Any = None


class Settings(NamedTuple):
    """Settings of a recipe, by their dotted keys."""

    values: dict[str, Any]


class Call(NamedTuple):
    """A call of a public function.

    Attributes:
        verb: its name on the command line, such as "finetune" or "corpus build".
        words: values of its first parameters, which need no names.
        arguments: values of other parameters.
    """

    verb: str
    words: list[Any]
    arguments: dict[str, Any]


Reference = Argument | Settings | Call
Front = Callable[[Reference], str]
"""How references are written: in Python, on the command line, in a recipe, or in a request to the server."""

_REFERENCE = re.compile("\x02([^\x03]*)\x03")
_KINDS: dict[str, Callable[..., Reference]] = {kind.__name__: kind for kind in (Argument, Settings, Call)}


def argument(name: str, value: Any = None) -> str:
    """Return a reference to a parameter, such as `allow_pickle=True`.

    Values in capitals or with "…" stand for what users choose: f"pass {argument('dev', 'FILE')}".
    """
    return marked(Argument(name, value))


def setting(key: str, value: Any) -> str:
    """Return a reference to a setting of a recipe and its value, such as `masking.kind = "span"`."""
    return settings({key: value})


def settings(values: Mapping[str, Any]) -> str:
    """Return a reference to several settings of a recipe together; see `setting`."""
    return marked(Settings(dict(values)))


def call(verb: str, *words: Any, **arguments: Any) -> str:
    """Return a reference to a call, such as `unmask.finetune("classification", model="RUN")`."""
    return marked(Call(verb, [*words], arguments))


def marked(reference: Reference) -> str:
    """Return a reference as marked text, which `rendered` writes out."""
    return f"\x02{json.dumps([type(reference).__name__, *reference], default=str)}\x03"


def rendered(text: str, front: Front | None = None) -> str:
    """Return a message with its references written out for a front; None: that of this program (`speak`)."""
    write = front or _current[0]

    def written(match: re.Match[str]) -> str:
        try:
            kind, *values = json.loads(match[1])
            reference = _KINDS[kind](*values)
        except (ValueError, LookupError, TypeError):  # no reference: control characters of a text in the message
            return match[0]
        return write(reference)

    return _REFERENCE.sub(written, text)


def speak(front: Front) -> Front:
    """Let messages that are not errors be written for a front from now on; return the one before."""
    before, _current[0] = _current[0], front
    return before


def name_keys(text: str, names: Collection[str]) -> str:
    """Return a message in which parameters with these names are written as keys of a file (`in_table`)."""

    def write(reference: Reference) -> str:
        is_key = isinstance(reference, Argument) and reference.name in names
        return in_table(reference) if is_key else marked(reference)

    return rendered(text, write)


def in_python(reference: Reference) -> str:
    """Write a reference as Python code."""
    match reference:
        case Argument(name, None):
            return name
        case Argument(name, value):
            return f"{name}={_literal(value)}"
        case Settings(values):
            return f"settings={_literal(values)}"
        case Call(verb, words, arguments):
            inner = [*map(_literal, words), *(f"{name}={_literal(value)}" for name, value in arguments.items())]
            return f"unmask.{FUNCTIONS.get(verb, verb.replace(' ', '_'))}({', '.join(inner)})"


def in_command(reference: Reference, words: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write a reference as the command line does: flags, --set KEY=VALUE, and commands.

    Args:
        reference: the reference.
        words: what stands for the parameters that have no flag in the command that is running.
    """
    match reference:
        case Argument(name, None):
            return words.get(name, flag(name))
        case Argument(name, value):
            return " ".join(map(_quoted, flags(name, value)[name in words :]))
        case Settings(values):
            pairs = ((key, value if isinstance(value, str) else _json(value)) for key, value in values.items())
            return " ".join(f"--set {key}={value}" for key, value in pairs)
        case Call(verb, parts, arguments):
            named = [word for name, value in arguments.items() for word in flags(name, value)[name == "texts" :]]
            return " ".join(["unmask", verb, *map(_quoted, [*map(str, parts), *named])])


def in_recipe(reference: Reference) -> str:
    """Write a reference as a recipe does: settings as KEY = VALUE."""
    if not isinstance(reference, Settings):
        return in_python(reference)
    return " and ".join(f"{key} = {_json(value)}" for key, value in reference.values.items())


def in_table(reference: Reference) -> str:
    """Write a reference as a table of a TOML file does: parameters and settings as KEY = VALUE."""
    match reference:
        case Argument(name, None):
            return name
        case Argument(name, dict() as pairs):
            return f"{name} = {{{', '.join(f'{key} = {_json(value)}' for key, value in pairs.items())}}}"
        case Argument(name, value):
            return f"{name} = {_json(value)}"
        case _:
            return in_recipe(reference)


def in_request(reference: Reference) -> str:
    """Write a reference for clients of the server: parameters are fields of their request."""
    match reference:
        case Argument(name, None):
            return f"`{name}`"
        case Argument(name, value):
            return f'`"{name}": {json.dumps(value)}`'
        case _:
            return in_recipe(reference)


FLAGS = {"settings": "--set", "all_examples": "--all"}
"""Flags that are not spelled as their parameters."""
FUNCTIONS = {
    "corpus build": "build_corpus",
    "corpus diff": "diff_corpora",
    "corpus info": "describe_corpus",
    "corpus mix": "mix_corpora",
    "corpus report": "report_corpus",
    "corpus sample": "sample_corpus",
    "demo": "run_demo",
    "features": "write_features",
    "recipes diff": "diff_recipes",
    "recipes list": "list_recipes",
    "recipes schema": "recipe_schema",
    "recipes show": "show_recipe",
    "runs list": "list_runs",
    "runs plot": "plot_runs",
    "runs show": "describe_run",
    "tokenizer train": "train_tokenizer",
    "tokenizer extend": "extend_tokenizer",
    "tokenizer encode": "tokenize",
}
"""Names of functions that are not those of their commands."""

_current: list[Front] = [in_python]


def flag(name: str) -> str:
    """Return the flag of a parameter."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def flags(name: str, value: Any) -> list[str]:
    """Return the words of a command line that give a parameter a value; None: the flag only."""
    if value is None or value is True:
        return [flag(name)]
    if value is False:
        return [f"--no-{flag(name)[2:]}"]
    if isinstance(value, dict) and name == "settings":
        pairs = ((key, inner if isinstance(inner, str) else _json(inner)) for key, inner in value.items())
        return [word for key, text in pairs for word in (flag(name), f"{key}={text}")]
    if isinstance(value, dict):
        value = ",".join(f"{key}={inner}" for key, inner in value.items())
    return [flag(name), *map(str, value if isinstance(value, list | tuple) else [value])]


def _quoted(word: str) -> str:
    """Return a word in quotes if a shell would split it."""
    return f'"{word}"' if re.search(r"[\s*|;&<>()]", word) or not word else word


def _literal(value: Any) -> str:
    """Return a value as Python code; what stands for a choice of the user is left as it is."""
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(inner)}' for key, inner in value.items())}}}"
    return repr(value)


def _json(value: Any) -> str:
    stands = isinstance(value, str) and ("…" in value or value.isupper())
    return value if stands else json.dumps(value, ensure_ascii=False)
