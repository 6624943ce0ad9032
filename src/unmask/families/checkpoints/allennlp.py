"""ELMo as AllenNLP and bilm-tf publish it: `*options.json`, `*weights.hdf5`, and in some cases bilm-tf's `vocab.txt`.

Input: such a directory. Output: settings, and the encoder's tensors under our names; writing is the inverse. The format
has no softmax and no head. bilm-tf, `bilm/training.py` (`dump_weights`); AllenNLP, `modules/elmo.py`.

Gates of their LSTMs are in the order input, new, forget, output, and 1 is added to the bias of the forget gate when it
is used. Nothing in a file is followed to another one: external, soft and virtual links are refused, as are compressed
tensors, whose size says nothing about how much memory they take.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from unmask.data.text.whole_files import read_text
from unmask.data.tokenizers.words import CHARACTERS, LONGEST
from unmask.families.checkpoints.check import body_on_meta
from unmask.families.checkpoints.safetensors_file import checked
from unmask.families.elmo import ElmoSettings
from unmask.families.format import Pretrained
from unmask.nn.encoders.encoder import Encoder
from unmask.support.durable import replace_file
from unmask.support.errors import UserError

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
"""How the names of the two files end."""
INSTALL = "pip install 'unmask[elmo]'"
BOTH_PADDED = (CHARACTERS, CHARACTERS + 1)
"""Numbers of characters in options: in training, and in use, where 0 stands for words that are not there."""
OURS = (0, 2, 3, 1)
"""The order of our gates among theirs."""

Tree = dict[str, Any]
"""Names of datasets and groups, nested as they are: a dataset is the shape that it must have."""


class _Lstm(msgspec.Struct):
    dim: int
    projection_dim: int
    n_layers: int
    use_skip_connections: bool = False
    cell_clip: float | None = None
    proj_clip: float | None = None


class _Embedding(msgspec.Struct):
    dim: int


class _Characters(msgspec.Struct):
    embedding: _Embedding
    filters: tuple[tuple[int, int], ...]
    n_characters: int
    max_characters_per_token: int
    n_highway: int | None = None
    activation: Literal["relu", "tanh"] = "relu"


class _Options(msgspec.Struct):
    lstm: _Lstm
    char_cnn: _Characters
    dropout: float = 0.1


def is_directory(directory: Path) -> bool:
    """Return whether a directory is in this format: whether it has a file of such weights, and no config.json."""
    return not (directory / "config.json").exists() and any(directory.glob(f"*{WEIGHTS}"))


def read_settings(directory: Path) -> ElmoSettings:
    """Read the encoder settings of a directory from its options alone.

    Raises:
        UserError: see `read`.
    """
    path = _file(directory, OPTIONS)
    try:
        options = msgspec.json.decode(read_text(path), type=_Options)
        lstm, words = options.lstm, options.char_cnn
        if words.n_characters not in BOTH_PADDED or words.max_characters_per_token != LONGEST:
            raise ValueError(f"words must have {CHARACTERS + 1} characters, and {LONGEST} of them at most")
        if lstm.cell_clip != lstm.proj_clip:
            raise ValueError(f"cell_clip {lstm.cell_clip} and proj_clip {lstm.proj_clip} must be equal")
        return ElmoSettings(
            layers=lstm.n_layers,
            width=2 * lstm.projection_dim,
            cells=lstm.dim,
            characters=words.embedding.dim,
            filters=words.filters,
            highways=words.n_highway or 0,
            activation=words.activation,
            clip=lstm.cell_clip or None,
            residual=lstm.use_skip_connections,
            dropout=options.dropout,
        )
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, too
        raise UserError(f"not the options of an ELMo that reads characters ({error})", file=path) from error


def read(directory: Path, vocabulary: int) -> Pretrained:
    """Read a directory.

    Args:
        directory: contains one file of options, and one of weights.
        vocabulary: number of words that the tokenizer has.

    Raises:
        UserError: h5py is not installed; a file is damaged, incomplete, or has other content than the options imply, or
            refers to other files. Names the file and the tensor.
    """
    settings, path = read_settings(directory), _file(directory, WEIGHTS)
    expected: Tree = {}
    for name, value in _theirs(settings, body_on_meta(settings, vocabulary).state_dict()).items():
        *groups, last = name.split("/")
        inner = expected
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = tuple(value.shape)
    with _opened(path) as file:
        names = list(_check(file, expected, path.stat().st_size))
        tensors = {name: checked(torch.from_numpy(file[name].astype("float32")[()]), name, path) for name in names}
    return Pretrained(settings, vocabulary, _ours(settings, tensors), {})


def write(directory: Path, encoder: Encoder, vocabulary: Iterable[str]) -> None:
    """Write `options.json`, `weights.hdf5` and `vocab.txt`.

    Args:
        directory: directory to write to; created if missing.
        encoder: an ELMo; its state is not changed.
        vocabulary: the words of its tokenizer, in the order of their ids.

    Raises:
        UserError: the encoder is of another family, or h5py is not installed.
    """
    settings = encoder.settings
    if not isinstance(settings, ElmoSettings):
        raise UserError("only an ELMo can be written as AllenNLP's files", remedy="use its own directory")
    h5py = _h5py()
    directory.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name, value in _theirs(settings, encoder.state_dict()).items():
            file[name] = value.detach().cpu().float().numpy()
    replace_file(directory / WEIGHTS, content.getvalue())
    lstm = _Lstm(settings.cells, settings.width // 2, settings.layers, settings.residual, settings.clip, settings.clip)
    words = _Characters(
        embedding=_Embedding(settings.characters),
        filters=settings.filters,
        n_characters=CHARACTERS + 1,
        max_characters_per_token=LONGEST,
        n_highway=settings.highways,
        activation=settings.activation,
    )
    options = msgspec.to_builtins(_Options(lstm, words, settings.dropout))
    replace_file(directory / OPTIONS, f"{json.dumps(options, indent=2)}\n".encode())
    replace_file(directory / "vocab.txt", "".join(f"{word}\n" for word in vocabulary).encode())


def _theirs(settings: ElmoSettings, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of an encoder under their names."""
    tensors = {"char_embed": state["characters.characters.weight"]}
    for number, (size, filters) in enumerate(settings.filters):
        kernel = state[f"characters.filters.{number}.weight"].view(filters, settings.characters, size)
        tensors[f"CNN/W_cnn_{number}"] = kernel.permute(2, 1, 0)[None]  # (1, size, width of the embeddings, filters)
        tensors[f"CNN/b_cnn_{number}"] = state[f"characters.filters.{number}.bias"]
    for name, group, end in _linear(settings):
        tensors[f"{group}/W_{end}"] = state[f"{name}.weight"].t()
        tensors[f"{group}/b_{end}"] = state[f"{name}.bias"]
    for name, group in _lstms(settings):
        weights = torch.cat([state[f"{name}.input.weight"], state[f"{name}.recurrent.weight"]], 1)
        bias = state[f"{name}.input.bias"].clone()  # (4 * cells,)
        bias[settings.cells : 2 * settings.cells] -= 1
        tensors[f"{group}/W_0"], tensors[f"{group}/B"] = (
            _reordered(weights, (0, 3, 1, 2)).t(),
            _reordered(bias, (0, 3, 1, 2)),
        )
        tensors[f"{group}/W_P_0"] = state[f"{name}.project.weight"].t()
    return tensors


def _ours(settings: ElmoSettings, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file under our names; the inverse of `_theirs`."""
    state = {"characters.characters.weight": tensors["char_embed"]}
    for number in range(len(settings.filters)):
        kernel = tensors[f"CNN/W_cnn_{number}"][0]  # (size, width of the embeddings, filters)
        state[f"characters.filters.{number}.weight"] = kernel.permute(2, 1, 0).flatten(1)
        state[f"characters.filters.{number}.bias"] = tensors[f"CNN/b_cnn_{number}"]
    for own_name, group, end in _linear(settings):
        state[f"{own_name}.weight"], state[f"{own_name}.bias"] = (
            tensors[f"{group}/W_{end}"].t(),
            tensors[f"{group}/b_{end}"],
        )
    for own_name, group in _lstms(settings):
        weights = _reordered(tensors[f"{group}/W_0"].t(), OURS)  # (4 * cells, width)
        bias = _reordered(tensors[f"{group}/B"], OURS)  # (4 * cells,)
        bias[settings.cells : 2 * settings.cells] += 1
        state[f"{own_name}.input.weight"], state[f"{own_name}.recurrent.weight"] = weights.chunk(2, 1)
        state[f"{own_name}.input.bias"], state[f"{own_name}.project.weight"] = bias, tensors[f"{group}/W_P_0"].t()
    return {name: value.contiguous() for name, value in state.items()}


def _reordered(stacked: Tensor, order: tuple[int, ...]) -> Tensor:
    """Return the matrices or vectors of the gates in another order."""
    parts = stacked.chunk(4)
    return torch.cat([parts[number] for number in order])


def _linear(settings: ElmoSettings) -> Iterator[tuple[str, str, str]]:
    """Yield our name of each linear layer above the convolutions, and the group and the end of their names."""
    for number in range(settings.highways):
        yield f"characters.highways.{number}.gate", f"CNN_high_{number}", "carry"
        yield f"characters.highways.{number}.transform", f"CNN_high_{number}", "transform"
    yield "characters.project", "CNN_proj", "proj"


def _lstms(settings: ElmoSettings) -> Iterator[tuple[str, str]]:
    """Yield our name of each LSTM, and theirs."""
    for direction, model in enumerate(("forward_lm", "backward_lm")):
        for layer in range(settings.layers):
            yield f"{model}.{layer}", f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _file(directory: Path, end: str) -> Path:
    """Return the file of a directory whose name ends so.

    Raises:
        UserError: there is none, or there are several.
    """
    paths = sorted(directory.glob(f"*{end}"))
    if not paths:
        raise UserError(f"no {end} beside the weights", file=directory, remedy="download it, too")
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"several files of the same kind: {names}", file=directory, remedy="keep those of one model")
    return paths[0]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UserError("AllenNLP's files of weights need h5py, which is not installed", remedy=INSTALL) from error
    return h5py


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file of weights; whatever the library raises on a damaged one becomes a `UserError` that names it."""
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UserError as error:
        raise UserError(error.message, file=path) from error
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"not a valid HDF5 file, or damaged ({reason})", file=path, remedy="download it again"
        ) from error


def _check(group: Any, expected: Tree, size: int, prefix: str = "") -> Iterator[str]:
    """Yield the names of all datasets of a group, after checking that it has what is expected and nothing else.

    Args:
        group: an open group; links are looked at before they are followed.
        expected: what it must have.
        size: size of the file in bytes, which no dataset can exceed.
        prefix: path of the group.

    Raises:
        UserError: it has something else.
    """
    h5py, links = _h5py(), group.id.links
    for name in group:
        if name not in expected:
            raise UserError(f"{prefix}{name} belongs to no ELMo with these options")
    for name, inside in expected.items():
        path, key = f"{prefix}{name}", name.encode()
        if not links.exists(key):
            raise UserError(f"{path} is missing, which the options imply")
        if links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise UserError(f"{path} is a link to another place or file, which is not followed")
        wanted = h5py.Group if isinstance(inside, dict) else h5py.Dataset
        part = group[name]
        if not isinstance(part, wanted):
            raise UserError(f"{path} is not a {wanted.__name__.lower()}")
        if isinstance(inside, dict):
            yield from _check(part, inside, size, f"{path}/")
            continue
        _check_dataset(part, inside, size, path)
        yield path


def _check_dataset(dataset: Any, shape: tuple[int, ...], size: int, name: str) -> None:
    """Check, before its values are read, that a dataset has floating-point numbers of this shape, in this file."""
    h5d = _h5py().h5d
    plan = dataset.id.get_create_plist()
    if plan.get_layout() == h5d.VIRTUAL or plan.get_external_count():
        raise UserError(f"{name} has its values in another file, which is not read")
    if plan.get_nfilters():
        raise UserError(f"{name} is compressed", remedy="store it plainly: h5repack -f NONE OLD NEW")
    if dataset.dtype.kind != "f" or dataset.dtype.itemsize > 8:
        raise UserError(f"{name} has type {dataset.dtype}, not a supported floating-point type")
    if dataset.shape != shape:
        raise UserError(f"{name} has shape {dataset.shape}, but the options imply {shape}")
    wanted = dataset.size * dataset.dtype.itemsize
    if not wanted <= dataset.id.get_storage_size() or wanted > size:
        raise UserError(f"{name} is larger than what is stored of it", remedy="download the file again")
