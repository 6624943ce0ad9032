"""`unmask completion bash|zsh|fish`: print the completion of a shell, made from the commands' own parsers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

BASH = """\
_unmask() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" verb="" words="" index
    for ((index = 1; index < COMP_CWORD && index < 3; index++)); do
        [[ "${{COMP_WORDS[index]}}" == -* ]] && break
        verb="${{verb:+$verb }}${{COMP_WORDS[index]}}"
    done
    case "$verb:$previous" in
{values}
    *)
        while :; do
            case "$verb" in
{words}
            *' '*) verb="${{verb% *}}"; continue ;;
            esac
            break
        done ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _unmask unmask
"""
ZSH = "#compdef unmask\nautoload -Uz bashcompinit && bashcompinit\n"
"""zsh runs completions of bash."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell to complete commands in")


def run(options: argparse.Namespace) -> None:
    """Print the completion."""
    from unmask.cli.main import command_parser

    found = list(commands(command_parser(all_verbs=True)))
    sys.stdout.write(
        _fish(found) if options.shell == "fish" else (ZSH if options.shell == "zsh" else "") + _bash(found)
    )


@dataclass(frozen=True)
class Command:
    """A command, such as `unmask corpus build`.

    Attributes:
        path: its words after `unmask`; empty for `unmask` itself.
        options: its options, each with its help and the values that it accepts, if they are listed.
        words: what may be its first argument, each with its help: actions, or listed values.
    """

    path: str
    options: dict[str, tuple[str, tuple[str, ...]]]
    words: dict[str, str]


def commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Command]:
    """Yield a command and all commands inside it."""
    options: dict[str, tuple[str, tuple[str, ...]]] = {}
    words: dict[str, str] = {}
    inner: list[Command] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action, argparse._SubParsersAction):
            words |= {one.dest: one.help or "" for one in action._choices_actions}
            for name, below in action.choices.items():
                inner += commands(below, f"{path} {name}".strip())
        elif action.option_strings:
            options |= {name: (_help(action), choices) for name in action.option_strings if name.startswith("--")}
        else:
            words |= dict.fromkeys(choices, "")
    yield Command(path, options, words)
    yield from inner


def _help(action: argparse.Action) -> str:
    text = action.help or ""
    return text.replace("%%", "%").partition(" (")[0].partition(";")[0] if text != argparse.SUPPRESS else ""


def _bash(found: list[Command]) -> str:
    values = [
        f"    {quote(command.path)}:{name}|{quote(command.path)}' '*:{name}) words={quote(' '.join(choices))} ;;"
        for command in found
        for name, (_, choices) in command.options.items()
        if choices
    ]
    words = [
        f"            {quote(command.path)}) words={quote(' '.join([*command.words, *command.options]))} ;;"
        for command in found
    ]
    return BASH.format(values="\n".join(values), words="\n".join(words))


def _fish(found: list[Command]) -> str:
    lines = ["complete -c unmask -f -n __fish_use_subcommand"]
    for command in found:
        names = command.path.split()
        where = "; and ".join(f"__fish_seen_subcommand_from {name}" for name in names) or "__fish_use_subcommand"
        start = f"complete -c unmask -n {quote(where)}"
        for word, text in command.words.items():
            lines.append(f"{start} -a {quote(word)}" + (f" -d {quote(text)}" if text else ""))
        for option, (text, choices) in command.options.items():
            accepted = f" -x -a {quote(' '.join(choices))}" if choices else ""
            lines.append(f"{start} -l {option[2:]}{accepted} -d {quote(text)}")
    return "\n".join(lines) + "\n"
