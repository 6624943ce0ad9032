"""Messages name parameters and settings, and each front writes them in its own way."""

import ast
import pickle
import re
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from unmask.cli.arguments import parameters_of
from unmask.cli.main import main, parse
from unmask.cli.verbs import VERBS
from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.support.errors import UserError, keys_of
from unmask.support.messages import (
    FUNCTIONS,
    argument,
    call,
    flags,
    in_command,
    in_python,
    in_recipe,
    in_request,
    rendered,
    setting,
    speak,
)

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "unmask"
FLAG = re.compile(r"--[a-z]")
NO_FLAGS = re.compile(r"--(?:max-restarts|logdir|repo-type|head)\b")
"""Flags of other programs, which messages may name."""
FORMS = [
    (argument("allow_pickle", True), "allow_pickle=True", "--allow-pickle"),
    (argument("init"), "init", "--init"),
    (argument("texts"), "texts", "--texts"),
    (argument("normalize", False), "normalize=False", "--no-normalize"),
    (argument("dev", "FILE"), "dev=FILE", "--dev FILE"),
    (argument("precision", "float32"), 'precision="float32"', "--precision float32"),
    (argument("train", ["a.tsv", "b c.tsv"]), 'train=["a.tsv", "b c.tsv"]', '--train a.tsv "b c.tsv"'),
    (argument("columns", {"text": 0}), 'columns={"text": 0}', "--columns text=0"),
    (argument("all_examples"), "all_examples", "--all"),
    (setting("masking.kind", "span"), 'settings={"masking.kind": "span"}', "--set masking.kind=span"),
    (setting("objective.x", False), 'settings={"objective.x": False}', "--set objective.x=false"),
    (setting("layout.length", 64), 'settings={"layout.length": 64}', "--set layout.length=64"),
    (
        call("finetune", "classification", model="MODEL", train="FILE"),
        'unmask.finetune("classification", model=MODEL, train=FILE)',
        "unmask finetune classification --model MODEL --train FILE",
    ),
    (call("corpus build"), "unmask.build_corpus()", "unmask corpus build"),
]


@pytest.mark.parametrize(("reference", "python", "command"), FORMS)
def test_each_front_writes_references_in_its_own_way(reference, python, command):
    error = UserError("it is wrong", file="a.txt", line=3, remedy=f"pass {reference}")
    assert str(error) == f"a.txt:3: it is wrong; pass {python}"
    assert error.text(in_command) == f"a.txt:3: it is wrong; pass {command}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert pickle.loads(pickle.dumps(error)).text(in_command) == error.text(in_command)


def test_a_command_writes_parameters_without_a_flag_as_its_help_does():
    words = {"texts": "TEXT", "model": "MODEL"}
    for reference, expected in {
        argument("texts"): "TEXT",
        argument("model", "my run"): '"my run"',
        argument("texts", ["a", "b"]): "a b",
        argument("task"): "--task",
        argument("columns", {"text": 0}): "--columns text=0",
    }.items():
        assert rendered(reference, partial(in_command, words=words)) == expected


def test_calls_in_messages_are_those_of_commands():
    """A call is written as a command and as a function: both exist, and have the parameters that it names."""
    names = {words: FUNCTIONS.get(words, words.replace(" ", "_")) for words in VERBS}
    functions = {words: verb.function.partition(":")[2] for words, verb in VERBS.items()}
    assert names == functions
    nodes = chain.from_iterable(ast.walk(ast.parse(path.read_text(encoding="utf8"))) for path in PACKAGE.rglob("*.py"))
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "call" and node.args:
            verb = ast.literal_eval(node.args[0])
            known = {parameter.name for parameter in parameters_of(VERBS[verb].function)}
            assert {keyword.arg for keyword in node.keywords if keyword.arg} <= known, ast.unparse(node)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["audit", "--model", "MODEL", "--data", "DATA"], "say what the labels are: --task of classification, "),
        (["finetune", "classification", "--recipe", "x", "--frozen"], "--frozen has no effect with --recipe"),
        (["predict", "--model", "MODEL", "--data", "DATA", "--text-b", "x"], "--text-b has no effect without TEXT"),
    ],
)
def test_each_command_has_its_own_words(words, expected, tokenizer, tmp_path, capsys):
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32)
    save_model(tmp_path / "model", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    (tmp_path / "data.tsv").write_text("text\tlabel\na\tb\nc\td\n")
    given = [{"MODEL": str(tmp_path / "model"), "DATA": str(tmp_path / "data.tsv")}.get(word, word) for word in words]
    given += ["--out", str(tmp_path / "out")] if words[0] != "predict" else []
    if words[0] == "finetune":
        given += ["--model", str(tmp_path / "model"), "--train", str(tmp_path / "data.tsv")]
    assert main(given) == 2
    assert expected in capsys.readouterr().err


def test_a_recipe_writes_its_settings_as_toml():
    assert rendered(setting("masking.kind", "span"), in_recipe) == 'masking.kind = "span"'
    assert rendered(setting("objective.x", False), in_recipe) == "objective.x = false"
    assert rendered(argument("init"), in_recipe) == "init"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (argument("encoding"), "encoding"),
        (argument("format", "csv"), 'format = "csv"'),
        (argument("columns", {"text": "NAME"}), "columns = {text = NAME}"),
        (argument("columns", {"text": "a b"}), 'columns = {text = "a b"}'),
        (argument("train", ["a.tsv"]), 'train = ["a.tsv"]'),
    ],
)
def test_parameters_that_are_keys_of_a_file_are_written_as_it_does(reference, expected):
    """`unmask multitask tasks.toml` named --encoding, which it does not have."""
    text = f"wrong; pass {reference}, or {argument('out', 'DIR')}"
    with pytest.raises(UserError) as caught, keys_of("tasks.toml", "encoding", "format", "columns", "train"):
        assert rendered(text) == f"wrong; pass {expected}, or out=DIR"
        raise UserError(text)
    assert str(caught.value) == f"wrong; pass {expected}, or out=DIR (in tasks.toml)"
    assert caught.value.text(in_command) == f"wrong; pass {expected}, or --out DIR (in tasks.toml)"
    assert rendered(reference) == rendered(reference, in_python)
    with pytest.raises(UserError) as caught, keys_of({"tables": "in memory"}, "encoding", "format"):
        raise UserError(text)
    assert str(caught.value) == rendered(text, in_python)


def test_the_server_names_fields_of_requests():
    assert rendered(f"{argument('inputs')}: too long", in_request) == "`inputs`: too long"
    assert rendered(argument("truncate", True), in_request) == '`"truncate": true`'
    assert "--" not in rendered(setting("masking.kind", "span") + call("predict", model="RUN"), in_request)


def test_what_is_printed_is_written_for_the_front_that_speaks():
    before = speak(in_command)
    try:
        assert rendered(f"see {argument('out')}") == "see --out"
    finally:
        speak(before)
    assert rendered(f"see {argument('out')}", in_python) == "see out"


def test_a_text_in_a_message_is_no_reference():
    assert rendered('a \x02["x"]\x03 b') == 'a \x02["x"]\x03 b'


@pytest.mark.parametrize("verb", ["finetune", "corpus build"])
def test_words_of_a_call_are_those_of_its_command(verb):
    assert verb in VERBS
    options = {"model": "m", "train": ["a", "b"], "out": "o"} if verb == "finetune" else {"tokenizer": "t", "out": "o"}
    words = [word for name, value in options.items() for word in flags(name, value)]
    parsed = parse([*verb.split(), *(["classification"] if verb == "finetune" else ["f"]), *words])
    assert {name: getattr(parsed, name) for name in options if name != "train"} == {
        name: value for name, value in options.items() if name != "train"
    }


OTHERS = ("support/messages.py", "inference/evaluation/errors_page.py")
"""Modules that write flags, and with a style sheet."""


def literals(path):
    """Yield the strings of a file that may have flags, with their lines."""
    source = path.read_text(encoding="utf8")
    for node in ast.walk(ast.parse(source)) if FLAG.search(source) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_message_names_a_flag(path):
    name = path.relative_to(PACKAGE).as_posix()
    if name.startswith("cli/") or name in OTHERS:
        return
    for line, text in literals(path):
        assert not FLAG.search(NO_FLAGS.sub("", text)), (name, line, text)


def test_errors_are_passed_on_with_their_references():
    """`str(error)` is what Python users read: in the message of another error, the command line would show it, too."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if (
                isinstance(node, ast.ExceptHandler)
                and node.type
                and ast.unparse(node.type) in ("UserError", "UnmaskError")
            ):
                raised = [ast.unparse(inner) for inner in ast.walk(node) if isinstance(inner, ast.Raise)]
                for text in raised:
                    assert f"str({node.name})" not in text and f"{{{node.name}}}" not in text, (path.name, text)


def test_what_a_shell_would_read_otherwise_is_quoted():
    text = argument("columns", {"label": "topics", "separator": "|"})
    assert rendered(text, in_command) == '--columns "label=topics,separator=|"'
