"""How a directory of sentence-transformers makes vectors of texts: all of its files, read whole.

Input: `modules.json`, which lists the steps; the `config.json` of pooling, of dense layers and of normalization; the
encoder's `sentence_bert_config.json`; and `config_sentence_transformers.json` with the prompts. The encoder may be in a
folder of its own (`0_Transformer`). Output: a `Pooling`, and the weights of its dense layers. Whatever changes the
vectors and is not implemented is named in `Pooling.unsupported`, because the encoder can be used without it. The names
of classes are compared, never imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from unmask.data.text.whole_files import read_json, read_value
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.safetensors_file import read_shapes, read_tensors
from unmask.families.checkpoints.sentence_modules import (
    ACTIVATIONS,
    CROSS_ENCODER,
    DENSE_PART,
    LATE,
    LENGTH,
    MODES,
    MODULES,
    PREFIX,
    PYLATE_DENSE,
    PYLATE_KEY,
    SENTENCES,
    SPARSE_ENCODER,
    SPLADE,
    STATIC,
    Pooling,
)
from unmask.nn.encoders.pooled import Dense
from unmask.support.beside import DENSE, FILES, NORMALIZE, POOLING, SPLADE_POOLING
from unmask.support.choices import exists
from unmask.support.errors import UserError
from unmask.support.notices import warn

LENGTH_FILES = (
    LENGTH,
    *(f"sentence_{name}_config.json" for name in "roberta distilbert camembert albert xlm-roberta xlnet".split()),  # noqa: SIM905
)
"""Names of the file of the encoder's settings, of which the first that exists is read."""
SETFIT = ("model_head.pkl", "config_setfit.json")
"""Files of SetFit beside those of the encoder: its classifier, and its settings."""
METADATA = "artifact.metadata"
"""Settings of ColBERT; see colbert.py."""
STEP_FILES = ("config.json", "model.safetensors", "tokenizer.json")
PATTERNS = (MODULES, SENTENCES, SETFIT[1], *LENGTH_FILES, METADATA, *(f"[0-9]_*/{name}" for name in STEP_FILES))
"""The files beside a model that this module and colbert.py read; the last patterns are those of folders of steps."""
WEIGHTS = "model.safetensors"
ALONE = "copy config.json, model.safetensors and the files of the tokenizer alone, to use it as a masked language model"
READ = ("Transformer", "Pooling", "Dense", "Normalize", "Dropout")
"""The steps that are implemented, in their order; there may be several dense layers, and dropout anywhere."""
DOCUMENTS = ("document", "passage", "corpus")
"""Names of the prompt of documents, of which the first that is stated is used."""
OTHERS = (CROSS_ENCODER, SPARSE_ENCODER, *LATE)
"""Classes of models whose vectors are not of whole texts."""
TASKS = ("feature-extraction",)
ENDLESS = 1_000_000
"""A maximum length from which on it means that there is none."""


def root_of(directory: Path) -> Path:
    """Return the directory of sentence-transformers whose encoder is in this one: itself, or the one above."""
    above = directory.parent / MODULES
    if not (directory / MODULES).is_file() and above.is_file() and encoder_folder(directory.parent) == directory.name:
        return directory.parent
    return directory


def encoder_folder(directory: Path) -> str:
    """Return the name of the folder of the encoder in a directory of sentence-transformers; "" if there is none.

    Raises:
        UserError: modules.json is damaged.
    """
    path = directory / MODULES
    if not path.is_file():
        return ""
    kind, folder = next(iter(read_steps(path)), ("", ""))
    return folder if kind == "Transformer" and len(Path(folder).parts) == 1 else ""


def read_pooling(directory: Path, tokenizer: Tokenizer | None = None) -> Pooling | None:
    """Read the files of sentence-transformers for the encoder in a directory.

    Args:
        directory: the directory of the encoder.
        tokenizer: its tokenizer, if known.

    Returns:
        How vectors are made; None if there are no such files, or if the model makes no vectors of whole texts.

    Raises:
        UserError: a file is damaged.
    """
    root = root_of(directory)
    path = root / MODULES
    settings = read_json(root / SENTENCES)
    if not path.exists() or settings.get("model_type") in OTHERS or PYLATE_KEY in settings:
        return None
    steps = list(read_steps(path))
    kinds = [kind for kind, _ in steps]
    problems = [f"a module {kind}" for kind in kinds if kind not in READ]
    if not problems and not _in_order([kind for kind in kinds if kind != "Dropout"]):
        problems.append(f"the modules {', '.join(kinds)} in this order")
    if steps and (root / steps[0][1]).resolve() != directory.resolve() and not problems:
        problems.append(f"the encoder in {steps[0][1] or 'this folder'}")
    kind, include, dense = "mean", True, list[Dense]()
    for name, folder in steps:
        if name == "Pooling":
            kind, include, unsupported = _pooling(root / folder / "config.json", tokenizer)
            problems += unsupported
        if name == "Dense" and not problems:
            layer, unsupported = read_layer(root / folder)
            dense += layer
            problems += unsupported
        if name == "Normalize" and folder:
            step = root / folder / "config.json"
            problems += unusual(NORMALIZE, read_json(step), step)
    length, unsupported = read_encoder(directory, tokenizer)
    problems += unsupported
    stated, unsupported = _stated(settings, root / SENTENCES)
    problems += unsupported
    return msgspec.structs.replace(
        stated,
        kind=dict(MODES.values()).get(kind, "mean"),
        dense=() if problems else tuple(dense),
        dimensions=None if problems else stated.dimensions,
        normalize="Normalize" in kinds,
        length=length,
        include_prompt=include,
        unsupported=next(iter(problems), ""),
    )


def warn_of_classifier(directory: Path) -> None:
    """Warn of a directory of SetFit, whose classifier is a pickle of scikit-learn, which is never opened.

    Args:
        directory: the directory of the encoder.
    """
    root = root_of(directory)
    if any((root / name).exists() for name in SETFIT):
        warn(
            f"{root}: SetFit's classifier ({SETFIT[0]}) is not read, as a pickle can execute code: the model makes "
            "vectors of texts alone; to classify, fine-tune it for classification on the examples of that classifier",
        )


def static_folder(directory: Path) -> tuple[Path, Pooling] | None:
    """Return the folder of the table of a static encoder, and what follows it; None if a directory is none.

    Raises:
        UserError: modules.json is damaged.
    """
    path = directory / MODULES
    if not exists(path):
        return None
    kinds, folders = zip(*(list(read_steps(path)) or [("", "")]), strict=True)
    if kinds[0] != STATIC:
        return None
    stated, problems = _stated(read_json(directory / SENTENCES), directory / SENTENCES)
    if kinds not in ((STATIC,), (STATIC, "Normalize")):
        problems.append(f"the modules {', '.join(kinds)}")
    length, unsupported = _truncation(directory / folders[0])
    problems += unsupported
    pooling = msgspec.structs.replace(
        stated, normalize="Normalize" in kinds, length=length, unsupported=next(iter(problems), "")
    )
    return directory / folders[0], pooling


def read_splade(directory: Path) -> int | None:
    """Return the maximum length of the texts of a sparse encoder; None if a directory is none.

    Raises:
        UserError: a file is damaged, or the weights of tokens are not those of SPLADE with the maximum over the text.
    """
    root = root_of(directory)
    path = root / MODULES
    settings = read_json(root / SENTENCES)
    if not path.exists() or settings.get("model_type") != SPARSE_ENCODER:
        return None
    steps = list(read_steps(path))
    kinds = [kind for kind, _ in steps]
    encoder = read_json(directory / LENGTH)
    task = encoder.get("transformer_task", "fill-mask" if kinds[:1] == [SPLADE[0]] else TASKS[0])
    problems = []
    if kinds not in ([*SPLADE], ["Transformer", SPLADE[1]]) or task != "fill-mask":
        problems.append(f"the modules {', '.join(kinds)} ({task})")
    else:
        config = read_json(root / steps[1][1] / "config.json")
        problems += unusual(SPLADE_POOLING, config, root / steps[1][1] / "config.json")
    length, unsupported = read_encoder(directory, None, tasks=("fill-mask", *TASKS))
    prompt, more = _prompt(settings, root / SENTENCES, kind=SPARSE_ENCODER)
    prompts = [text for text in (prompt, *role_prompts(settings)) if text]
    problems += [*unsupported, *more, *(f"the prompt '{text}'" for text in prompts)]
    if problems:
        raise UserError(
            f"the sparse vectors of this model need {problems[0]}, which is not supported", file=root, remedy=ALONE
        )
    return length or ENDLESS


def read_cross_encoder(directory: Path, tokenizer: Tokenizer) -> int | None:
    """Return the maximum length of the pairs of a cross-encoder; None if a directory is none with modules.

    Raises:
        UserError: a file is damaged, or the scores need a step or a setting that is not supported.
    """
    root = root_of(directory)
    if not (root / MODULES).exists() or read_json(root / SENTENCES).get("model_type") != CROSS_ENCODER:
        return None
    kinds = [kind for kind, _ in read_steps(root / MODULES)]
    problems = [] if kinds == ["Transformer"] else [f"the modules {', '.join(kinds)}"]
    length, unsupported = read_encoder(directory, tokenizer, tasks=("sequence-classification",))
    if problems := [*problems, *unsupported]:
        raise UserError(f"the scores of this model need {problems[0]}, which is not supported", file=root, remedy=ALONE)
    return length or ENDLESS


def read_dense(directory: Path, dense: Sequence[Dense], width: int) -> dict[str, Tensor]:
    """Return the tensors of dense layers, as the part of the head that has them.

    Args:
        directory: the directory of the encoder.
        dense: the layers.
        width: width of the encoder.

    Raises:
        UserError: a file is damaged, or its tensors are not those of the settings beside it.
    """
    if not dense:
        return {}
    root, tensors = root_of(directory), dict[str, Tensor]()
    folders = [root / folder for kind, folder in read_steps(root / MODULES) if kind == "Dense"]
    for number, (folder, layer) in enumerate(zip(folders, dense, strict=True)):
        names = ["weight", *(["bias"] if layer.bias else [])]
        path, stored = folder / WEIGHTS, {f"linear.{name}": name for name in names}
        expected = {name: (layer.width, width) if name.endswith("weight") else (layer.width,) for name in stored}
        if read_shapes(path) != expected:
            raise UserError(
                f"the tensors are not those of a layer from {width} to {layer.width} numbers",
                file=path,
                remedy="download all files of the model again",
            )
        width = layer.width
        for name, value in read_tensors(path, stored).items():
            tensors[f"{DENSE_PART}.{number}.{stored[name]}"] = value
    return tensors


def _in_order(kinds: Sequence[str]) -> bool:
    """Return whether steps are an encoder, pooling, any number of dense layers, and normalization, if any."""
    dense = kinds.count("Dense")
    return kinds in ([*READ[:2], *("Dense",) * dense], [*READ[:2], *("Dense",) * dense, "Normalize"])


def read_steps(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the class and the folder of each step; a class of another package keeps its full name.

    Raises:
        UserError: the file is damaged, or names a folder outside of the directory.
    """
    steps = read_value(path)
    try:
        listed = [(str(step["type"]), str(step["path"])) for step in steps]
    except (TypeError, KeyError) as error:
        raise UserError("not a list of modules with a type and a path", file=path) from error
    for kind, folder in listed:
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise UserError(f"the path '{folder}' is outside of the directory", file=path)
        known = kind.startswith("sentence_transformers.") or kind == PYLATE_DENSE
        yield kind.rpartition(".")[2] if known else kind, folder


def _pooling(path: Path, tokenizer: Tokenizer | None) -> tuple[str, bool, list[str]]:
    """Return the kind of pooling, whether the tokens of a prompt are included, and what is not supported."""
    config = read_json(path)
    stated = config.get("pooling_mode")
    if stated is None:
        modes = [mode for name, (mode, _) in MODES.items() if config.get(PREFIX + name)]
        if not modes and any(PREFIX + name in config for name in MODES):
            modes = ["mean"]
    else:
        modes = [str(mode) for mode in stated] if isinstance(stated, list) else [str(stated)]
    kind = modes[0] if len(modes) == 1 else ""
    if tokenizer is not None and tokenizer.summary != "first":  # the vector of a text is not at its first token
        kind = {"lasttoken": "cls", "cls": "first token"}.get(kind, kind)
    known = {mode for mode, _ in MODES.values()}
    problems = [] if kind in known else [f"pooling by {kind or ' and '.join(modes) or 'nothing'}"]
    return kind, bool(config.get("include_prompt", True)), [*problems, *unusual(POOLING, config, path)]


def read_layer(folder: Path, table: str = DENSE) -> tuple[list[Dense], list[str]]:
    """Return the dense layer in a folder, and what is not supported, by a table of `support.beside.FILES`."""
    path = folder / "config.json"
    config = read_json(path)
    problems = unusual(table, config, path)
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        problems.append(f"activation_function: {activation!r:.80} ({path.parent.name}/{path.name})")
    if not (folder / WEIGHTS).is_file():
        problems.append(f"weights of {folder.name} that are not in {WEIGHTS}")
    width = config.get("out_features")
    if type(width) is not int or width < 1:
        raise UserError(f"out_features: {width!r} is not the width of a layer", file=path)
    if problems:
        return [], problems
    return [Dense(width=width, activation=ACTIVATIONS[activation], bias=bool(config.get("bias", True)))], []


def read_encoder(
    directory: Path, tokenizer: Tokenizer | None, tasks: Sequence[str] = TASKS, obeyed: Sequence[str] = ()
) -> tuple[int | None, list[str]]:
    """Return the maximum length, and what is not supported, among it no key in `obeyed`."""
    path = next((file for name in LENGTH_FILES if (file := directory / name).exists()), directory / LENGTH)
    config = read_json(path)
    problems = unusual(LENGTH, {key: value for key, value in config.items() if key not in obeyed}, path)
    task = config.get("transformer_task", "feature-extraction")
    if task not in tasks:
        problems.append(f"transformer_task: {task!r} ({path.name})")
    if config.get("do_lower_case") and (tokenizer is None or not tokenizer.lowercase):
        problems.append(f"texts in lower case (do_lower_case in {path.name}), which the tokenizer does not change")
    length, source = config.get("max_seq_length"), path.name
    if length is None:
        source = "tokenizer_config.json"
        words = read_json(directory / source)
        length = words.get("model_max_length", words.get("max_len"))
    if length is None or (isinstance(length, int | float) and length >= ENDLESS):
        return None, problems
    if isinstance(length, int) and not isinstance(length, bool) and length > 2:
        return length, problems
    return None, [*problems, f"a maximum length of {length!r} tokens ({source})"]


def _stated(settings: Mapping[str, Any], path: Path) -> tuple[Pooling, list[str]]:
    """Return prompts, dimensions and similarity of vectors, and what of them is not supported."""
    prompt, problems = _prompt(settings, path)
    query, document = role_prompts(settings)
    dimensions, unsupported = _dimensions(settings)
    similarity = _similarity(settings)
    stated = Pooling(dimensions=dimensions, prompt=prompt, query=query, document=document, similarity=similarity)
    return stated, [*problems, *unsupported]


def _prompt(settings: Mapping[str, Any], path: Path, kind: str = "SentenceTransformer") -> tuple[str, list[str]]:
    """Return the text that every text begins with, and what is not supported."""
    problems = unusual(SENTENCES, settings, path)
    stated = settings.get("model_type", kind)
    if stated != kind:
        problems.append(f"model_type: {stated!r} ({path.name})")
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None:
        return "", problems
    if not isinstance(prompts, dict) or not isinstance(name, str) or not isinstance(prompts.get(name, ""), str):
        return "", [*problems, f"the prompt {name!r}, which {path.name} does not state as a text"]
    if name not in prompts and name not in ("query", "document"):
        return "", [*problems, f"the prompt '{name}', which {path.name} does not have"]
    return prompts.get(name, ""), problems


def _dimensions(settings: Mapping[str, Any]) -> tuple[int | None, list[str]]:
    """Return the number of dimensions that vectors are cut to, if they are, and what is not supported."""
    dimensions = settings.get("truncate_dim")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        return None, [f"truncate_dim: {dimensions!r} ({SENTENCES})"]
    return dimensions, []


def _truncation(folder: Path) -> tuple[int | None, list[str]]:
    """Return the number of tokens that a static encoder reads at most, if it is limited, and what is not supported.

    `StaticEmbedding` of sentence-transformers removes the padding that tokenizer.json states, but obeys its truncation.
    """
    stated = read_json(folder / "tokenizer.json").get("truncation")
    if stated is None:
        return None, []
    length = stated.get("max_length") if isinstance(stated, dict) else None
    if type(length) is not int or length < 1 or stated.get("direction", "Right") != "Right":
        return None, [f"truncation: {stated!r:.80} (tokenizer.json)"]
    return length, []


def _similarity(settings: Mapping[str, Any]) -> str | None:
    """Return the name of the function by which vectors are compared, if one is stated."""
    name = settings.get("similarity_fn_name")
    return None if name is None else str(name)


def role_prompts(settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the texts that queries and documents begin with; None: they are not stated.

    sentence-transformers has an empty prompt where none is stated, also for documents with a prompt named passage.
    """
    prompts = settings.get("prompts")
    stated = (
        {name: text for name, text in prompts.items() if isinstance(text, str)} if isinstance(prompts, dict) else {}
    )
    return stated.get("query"), next((stated[name] for name in DOCUMENTS if name in stated), None)


def unusual(table: str, config: Mapping[str, Any], path: Path) -> list[str]:
    """Return the settings of a file that are not implemented, by a table of `support.beside.FILES`."""
    return [f"{setting} ({path.name})" for setting in FILES[table].unusual(config)]
