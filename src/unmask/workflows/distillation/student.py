"""The student before it learns: its shape, and the weights of the teacher that it begins with.

Input: the teacher, and the shape of the student. Output: a model with the teacher's vocabulary.

Sanh et al. 2019 (DistilBERT), section 3: the student begins with layers of the teacher at equal distances, and has
neither its segments nor its pooler. Here this holds for all families, wherever shapes and kinds of layers agree; the
rest is newly initialized, and the log says so. A student whose embeddings are of another kind, or narrower, begins with
the teacher's vectors of words alone, along their principal directions: text enough for all of its layers still has too
few of the rare words. The row of segment 0 is added to all positions of a DistilBERT, whose
embeddings are then those of the teacher; in the authors' code it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from unmask.data.tokenizers.extend import difference
from unmask.families import BodySettings
from unmask.families.bert import BertSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.model.model import WORDS, Model, build_encoder
from unmask.nn.encoders.encoder import SEPARATE_LAYERS, Encoder
from unmask.support.errors import UserError, refuse_idle
from unmask.support.messages import argument
from unmask.workflows.pretraining.checks import check_vocabulary
from unmask.workflows.pretraining.start import select_tensors, spread

PARTS = {"embeddings.": "the embeddings", "blocks.": "the layers", "pooler.": "the pooler"}
"""Prefixes of the tensors that are taken from the teacher together, and what they are called."""
FREE = {"layers", "positions", "segments", "memory", "window", "dropout", "head_dropout", "init_std", "initial_offsets"}
"""Settings in which bodies with the same kind of layers may differ."""


def check_start(init: object, layers: int | None) -> None:
    """Raise an error if a student is given in two ways."""
    if init is not None:
        refuse_idle(f"with {argument('init')}, which determines the student", layers=layers is not None)


def student_settings(shape: BodySettings, teacher: BodySettings, layers: int | None) -> BodySettings:
    """Return the shape of a student: that of the recipe, or with `layers`, that of the teacher with fewer layers.

    Of a BERT, a recipe for DistilBERT makes a DistilBERT; otherwise the student is of the teacher's family.

    Raises:
        UserError: the teacher does not have as many layers.
    """
    if layers is None:
        return shape
    if not 1 <= layers <= teacher.layers:
        raise UserError(
            f"{argument('layers', layers)}, but the teacher has {teacher.layers} layers", remedy="choose fewer"
        )
    if _drops_segments(shape, teacher):
        settings = {name: getattr(teacher, name) for name in shape.__struct_fields__}
        return DistilBertSettings(**{**settings, "layers": layers, "dropout": shape.dropout, "head_dropout": None})
    return msgspec.structs.replace(teacher, layers=layers, dropout=shape.dropout)


def student_of(teacher: Model, settings: BodySettings, source: str, *, seed: int = 0) -> tuple[Model, str]:
    """Return a model with as many of a teacher's weights as its shape allows, and a line about them.

    Args:
        teacher: the teacher.
        settings: shape of the student.
        source: name of the teacher in the line.
        seed: seed of newly initialized weights.

    Raises:
        UserError: such a body cannot read the vocabulary of the teacher.
    """
    tokenizer = copy(teacher.tokenizer)
    tokenizer.summary = settings.summary
    check_vocabulary(settings, tokenizer.pad, tokenizer.kind.name)
    encoder = build_encoder(settings, teacher.encoder.vocabulary, seed=seed)
    numbers = _first_layers(settings, teacher.encoder.settings)
    tensors = _first_tensors(encoder, teacher.encoder, numbers)
    state = encoder.state_dict()
    parts = [part for part in PARTS if _fits(part, state, tensors) and (part != "blocks." or numbers)]
    taken = {name: tensors[name] for name in state if name.startswith(tuple(parts))}
    names = [_layers(numbers, teacher) if part == "blocks." else PARTS[part] for part in parts]
    words = None if WORDS in taken else _narrowed(teacher.encoder.state_dict().get(WORDS), state.get(WORDS))
    if words is not None:
        taken[WORDS] = words
        names.insert(0, "the vectors of words")
    encoder.load_state_dict(state | taken)
    size = sum(value.numel() for value in encoder.parameters())
    about = f"the student has {settings.shape} and {size / 1e6:.1f} million parameters; it begins with "
    about += f"{' and '.join(names)} of {source}" if names else f"random weights, as its shape is not that of {source}"
    inherits = "blocks." in parts and teacher.downstream is None
    heads = {name: head for name, head in teacher.heads.items() if not any("blocks." in part for part in head)}
    return (
        replace(
            teacher,
            encoder=encoder,
            tokenizer=tokenizer,
            heads=heads if inherits else {},
            labels=teacher.labels if inherits else (),
            created=(),
            downstream=None,
            tokens=teacher.tokens if inherits else 0,
            revision=teacher.revision if names else "",
            card=teacher.card if names else "",
        ),
        about,
    )


def framed_as(student: Model, teacher: Model) -> Model:
    """Return a student without segments that marks the second text of a pair if a teacher with its vocabulary does.

    A DistilBERT ignores the marks, but a BERT that is its teacher reads the same pairs.
    """
    if student.encoder.settings.segments > 1 or vocabulary_difference(teacher, student):
        return student
    tokenizer = copy(student.tokenizer)
    tokenizer.segments = teacher.tokenizer.segments
    return replace(student, tokenizer=tokenizer)


def _drops_segments(student: BodySettings, teacher: BodySettings) -> bool:
    """Return whether a student is a DistilBERT, and its teacher a BERT."""
    return isinstance(student, DistilBertSettings) and type(teacher) is BertSettings


def _layers(numbers: list[int], teacher: Model) -> str:
    """Return what layers of a teacher are called, by their numbers from 0."""
    if SEPARATE_LAYERS not in teacher.encoder.provides:
        return "the shared layers"
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(str(number + 1) for number in numbers)}"


def _first_layers(student: BodySettings, teacher: BodySettings) -> list[int]:
    """Return the teacher's layers, from 0, that the student's begin with; none if their kinds differ."""
    period = teacher.period
    if student.layers > teacher.layers or (student.layers - 1) % period or (teacher.layers - 1) % period:
        return []
    if _drops_segments(student, teacher):
        names = {"width", "heads", "feed_forward", "activation", "epsilon"}
    elif type(student) is type(teacher):
        names = set(student.__struct_fields__) - FREE
    else:
        return []
    alike = all(getattr(student, name) == getattr(teacher, name) for name in names)
    return spread(student.layers, teacher.layers, period) if alike else []


def _first_tensors(student: Encoder, teacher: Encoder, numbers: list[int]) -> Mapping[str, Tensor]:
    """Return the teacher's tensors by the student's names."""
    of_student, of_teacher = student.settings, teacher.settings
    tensors = dict(teacher.state_dict())
    if _drops_segments(of_student, of_teacher):
        tensors["embeddings.positions.weight"] = (
            tensors["embeddings.positions.weight"] + tensors.pop("embeddings.segments.weight")[0]
        )
        return _without_pooler(select_tensors(tensors, numbers, of_teacher.layers))
    return select_tensors(tensors, numbers, of_teacher.layers) if type(of_student) is type(of_teacher) else {}


def _narrowed(teacher: Tensor | None, student: Tensor | None) -> Tensor | None:
    """Return vectors of words along their principal directions, as many as the student's have; None: the tables do
    not agree.

    Args:
        teacher, student: the tables of both, (words, width); None: it has none.
    """
    if teacher is None or student is None or len(teacher) != len(student) or teacher.shape[1] < student.shape[1]:
        return None
    if teacher.shape == student.shape:
        return teacher
    wide = teacher.double()
    directions = torch.linalg.eigh(wide.T @ wide).eigenvectors.flip(1)  # from the largest eigenvalue on
    return (wide @ directions[:, : student.shape[1]]).to(student.dtype)


def _without_pooler(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return {name: value for name, value in tensors.items() if not name.startswith("pooler.")}


def _fits(part: str, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor]) -> bool:
    """Return whether the teacher has all tensors of a part of the student, in the same shapes."""
    names = [name for name in student if name.startswith(part)]
    return bool(names) and all(name in teacher and teacher[name].shape == student[name].shape for name in names)


def vocabulary_difference(teacher: Model, student: Model) -> str:
    """Return why the ids of a student are not those of a teacher; "" if they are."""
    if why := difference(teacher.tokenizer, student.tokenizer):
        return why
    sizes = student.tokenizer.size, teacher.tokenizer.size
    return "" if len(set(sizes)) == 1 else f"it has {sizes[0]:,} tokens instead of {sizes[1]:,}"
