"""Checks of the weights of a directory: that they are undamaged, and that they match its config.

Checksums are of the files of a model directory that unmask wrote, so that damage to them is not taken for weights.
Input: a directory. Output: `checksums.json` in it, with the sha256 of its files. Directories of other programs have no
such file, and are not checked; transformers ignores it.

Whether weights match their config is checked before memory is allocated, on bodies without memory (`body_on_meta`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unmask.data.text.files import read_whole
from unmask.families.checkpoints.heads import OWN, OWN_POOLER, head_name
from unmask.families.checkpoints.safetensors_file import CHECKSUMS
from unmask.families.format import TASK_HEADS, Format
from unmask.nn.encoders.encoder import Encoder
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext, decoder_of
from unmask.support.durable import replace_file
from unmask.support.environment import check_memory
from unmask.support.errors import UserError, counted
from unmask.support.fingerprint import sha256
from unmask.support.model_card import NAME as CARD
from unmask.support.notices import note

if TYPE_CHECKING:
    from unmask.families import BodySettings

BUFFERS = ("position_ids", "token_type_ids", "inv_freq", ".attn.bias", ".attn.masked_bias")
"""Ends of names of tensors that some versions of transformers store, and that are computed from the settings."""
ADAPTERS = ("lora_", "adapter", "ia3", "prompt", "base_layer", "modules_to_save", "original_module")
"""Parts of names of tensors by which adapters are known."""
REMEDY = f"copy the directory again, or, if the change was made on purpose, remove {CHECKSUMS}"


def write_checksums(directory: Path) -> None:
    """Record the checksums of all files of a directory, but of its card, which people edit, and of hidden ones."""
    files = {path.relative_to(directory): path for path in directory.rglob("*") if path.is_file()}
    checksums = {
        name.as_posix(): sha256(path)
        for name, path in sorted(files.items())
        if name.name not in (CHECKSUMS, CARD) and not any(part.startswith(".") for part in name.parts)
    }
    replace_file(directory / CHECKSUMS, msgspec.json.format(msgspec.json.encode(checksums)) + b"\n")


def check_checksums(directory: Path) -> None:
    """Check the files of a directory against its checksums, if it has any.

    Raises:
        UserError: a file is missing or differs; the message names it.
    """
    path = directory / CHECKSUMS
    if not path.is_file():
        return
    try:
        wanted = msgspec.json.decode(read_whole(path), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"the file is damaged ({error})", file=path, remedy=REMEDY) from error
    for name, digest in wanted.items():
        file = directory / (name if _is_inside(name) else Path(name).name)
        if not file.is_file():  # reading a pipe could block forever
            raise UserError("cannot be read: there is no such file", file=file, remedy=REMEDY)
        try:
            same = sha256(file) == digest
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", file=file, remedy=REMEDY) from error
        if not same:
            raise UserError(
                f"is damaged or was changed: its sha256 is not that in {CHECKSUMS}", file=file, remedy=REMEDY
            )


def _is_inside(name: str) -> bool:
    """Return whether a relative path stays in its directory."""
    path = Path(name)
    return not path.anchor and ".." not in path.parts


Shapes = Mapping[str, tuple[int, ...]]
T = TypeVar("T", bound=nn.Module)


class _WithoutDraws(TorchFunctionMode):
    """Skips random initialization, for which torch would first load its decompositions, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def on_meta() -> Iterator[None]:
    """Build modules on the meta device, without memory and without initialization."""
    with torch.device("meta"), _WithoutDraws():
        yield


def body_on_meta(settings: BodySettings, vocabulary: int) -> Encoder:
    """Return a body on the meta device, without memory, for the names and shapes of its tensors.

    It is shared by all who ask for it, and is not to be changed.
    """
    return _body_on_meta(type(settings), msgspec.msgpack.encode(settings), vocabulary)


@lru_cache(maxsize=8)
def _body_on_meta(kind: type[BodySettings], content: bytes, vocabulary: int) -> Encoder:
    """Return such a body, given its settings as bytes, which have a hash where a field of a plug-in's has none."""
    with on_meta():
        return msgspec.msgpack.decode(content, type=kind).build(vocabulary)


def check_size(build: Callable[[], T], what: str) -> T:
    """Check that the weights of a module fit into the memory of the machine, before they are allocated.

    Returns:
        The module on the meta device.

    Raises:
        UserError: they do not.
    """
    try:
        with on_meta():
            module = build()
            parameters = sum(value.numel() for value in module.parameters())
    except (RuntimeError, OverflowError, TypeError) as error:  # a tensor of more than 2**63 elements
        raise UserError(f"{what} is too large ({str(error).splitlines()[0]})", remedy="choose smaller sizes") from error
    check_memory(4 * parameters, f"{what} of {parameters:,} parameters", "choose smaller sizes")
    return module


def check(form: Format, settings: BodySettings, body: Encoder, shapes: Shapes, path: Path) -> None:
    """Check that the weights match the config.

    Args:
        form: format of the family's directories.
        settings: contents of the config.
        body: the body that has them, on the meta device.
        shapes: shapes of the stored tensors, by their names.
        path: file of the tensors.

    Raises:
        UserError: a tensor is missing or has the wrong shape; the message names it.
    """
    shapes_of_body = {name: tuple(value.shape) for name, value in body.state_dict().items()}
    with torch.device("meta"):
        stored = form.stored(settings, body.state_dict())
    wanted = {name: tuple(value.shape) for name, value in stored.items()}
    pattern = re.compile(re.escape(form.layer).replace(r"\{\}", r"(\d+)") + r"\.")
    expected, layers = ({match[1] for name in names if (match := pattern.match(name))} for names in (wanted, shapes))
    if not layers and (inner := next(filter(None, map(pattern.search, shapes)), None)):
        prefix = inner.string[: inner.start()]
        raise UserError(
            f"the tensors are not named as those of a {form.model_type} model: {inner.string}",
            file=path,
            remedy=f"correct model_type in config.json, or remove '{prefix}' from the names: call save_pretrained of "
            "the model itself, not of what it is a part of",
        )
    if layers != expected:
        specified = counted(len(expected), "layer")
        raise UserError(f"config.json specifies {specified}, but the weights have {len(layers)}", file=path)
    for pooler in filter(None, (form.pooler, form.head_pooler, OWN_POOLER)):
        if any(name.startswith(f"{pooler}.") for name in shapes):
            wanted |= {f"{pooler}.{part}": shapes_of_body[f"pooler.{part}"] for part in form.pooler_parts}
    _check_read(form, wanted, shapes, path)
    missing = [name for name in wanted if name not in shapes and name not in form.optional]
    if missing:
        raise UserError(
            f"{len(missing)} tensors of the encoder are missing, first {missing[0]}",
            file=path,
            remedy=f"the file is incomplete or not of a {form.model_type} model: download it again",
        )
    for name, shape in {**wanted, **_head_shapes(form, body)}.items():
        if name in shapes and shapes[name] != shape:
            raise UserError(f"tensor {name} has shape {shapes[name]}, but config.json implies {shape}", file=path)
    for head in {form.heads[name]["out"] for name in TASK_HEADS if name in form.heads}:
        rows = shapes.get(f"{head}.weight", (0, 0))
        bias = (rows[0],) if head in form.unbiased else shapes.get(f"{head}.bias")
        if len(rows) != 2 or (rows[0] and (rows[1] != settings.width or bias != (rows[0],))):
            raise UserError(f"the shape {rows} of {head}.weight does not match the encoder or the bias", file=path)
    if shapes.get("qa_outputs.weight", (2,))[0] != 2:
        raise UserError("qa_outputs must have two rows, one for the start and one for the end", file=path)


def _check_read(form: Format, wanted: Collection[str], shapes: Iterable[str], path: Path) -> None:
    """Refuse tensors in the body that are not read, such as those of adapters, and adapters of heads.

    Raises:
        UserError: there is one; the message names it.
    """
    read = {*wanted, *form.optional, form.decoder}
    modules = tuple({f"{name.rpartition('.')[0]}." for name in wanted if "." in name})
    layer = re.compile(re.escape(form.layer).replace(r"\{\}", r"\d+") + r"\.")
    unread = [
        name
        for name in shapes
        if name not in read and (layer.match(name) or name.startswith(modules)) and not name.endswith(BUFFERS)
    ]
    heads = tuple(f"{theirs}." for parts in form.heads.values() for theirs in parts.values())
    unread = [name for name in unread if layer.match(name) or not name.startswith((OWN, *heads))]
    adapted = [name for name in shapes if name.startswith(heads) and any(part in name for part in ADAPTERS)]
    if unread or adapted:
        adapter = bool(adapted) or any(part in name for name in unread for part in ADAPTERS)
        raise UserError(
            f"{counted(len(unread) or len(adapted), 'tensor')} in the {'encoder' if unread else 'head'} "
            f"{'is' if len(unread or adapted) == 1 else 'are'} not read, first {(unread or adapted)[0]}",
            file=path,
            remedy="merge the adapter into the weights (merge_and_unload of PEFT) and save the model again"
            if adapter
            else f"they are not of a {form.model_type} model that is implemented",
        )


def _head_shapes(form: Format, body: Encoder) -> dict[str, tuple[int, ...]]:
    """Return the expected shapes of the tensors of pretraining heads, by their names."""
    context = BuildContext(body)
    shapes: dict[str, tuple[int, ...]] = {form.decoder: tuple(decoder_of(body).shape)} if form.decoder else {}
    for head in form.heads.keys() & OBJECTIVES.keys():
        with on_meta():
            state = OBJECTIVES[head]().build(context).state_dict()
        named = {head_name(form, head, part): tuple(value.shape) for part, value in state.items()}
        shapes |= {name: shape for name, shape in named.items() if name}
    return shapes


def take_decoder(form: Format, config: Mapping[str, Any], tensors: dict[str, Tensor], path: Path) -> bool:
    """Remove the vocabulary decoder from the tensors; return whether it is one of its own, not the token embeddings.

    A note says that the heads of the pretraining are left out then, as they are not implemented.

    Raises:
        UserError: it differs from the token embeddings, but config.json states that they are tied.
    """
    decoder = tensors.pop(form.decoder, None)
    if decoder is None or torch.equal(decoder, tensors[form.words]):
        return False
    if config.get("tie_word_embeddings", True):
        raise UserError(
            "the decoder is not the word embeddings, to which config.json ties it",
            file=path,
            remedy="if it was trained apart from them, set tie_word_embeddings to false in config.json",
        )
    note(
        f"{path}: the decoder has weights of its own, which is not implemented for {form.model_type}; the heads of the "
        "pretraining are left out",
        stacklevel=3,
    )
    return True
