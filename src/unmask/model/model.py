"""A model in memory: an encoder, a tokenizer and heads; loading, building and saving.

MODEL is what has a directory (directory.py), or `random:RECIPE` with a tokenizer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from unmask.data.batches.rng import derive_seed
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families import BodySettings
from unmask.families.checkpoints import hub, huggingface
from unmask.families.checkpoints.check import body_on_meta, check_size, on_meta, write_checksums
from unmask.families.checkpoints.heads import POOLED
from unmask.families.checkpoints.sentence_files import read_dense, read_pooling
from unmask.families.checkpoints.sentence_modules import DENSE, DENSE_PART, Pooling, width_of, write_pooling
from unmask.model.directory import find, find_tokenizer, num_new, read_beside, read_directory, read_task
from unmask.nn.encoders.downstream import Downstream, DownstreamSettings
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS, Encoder
from unmask.objectives.objective import Objective, decoder_of
from unmask.recipes.recipe import read_recipe
from unmask.support.durable import replace_file
from unmask.support.environment import SMALLER, naming_shortage
from unmask.support.errors import UserError, refuse_idle
from unmask.support.fingerprint import fingerprint, fingerprint_values
from unmask.support.messages import argument
from unmask.support.model_card import NAME as CARD
from unmask.support.model_card import BaseModel, read_card
from unmask.tasks.task import ModelFiles, Task

WORDS = "embeddings.words.weight"
"""Name of the token embeddings among the tensors of an encoder."""
NEW_POOLER = "the pooler"
"""What `Model.created` has if the pooler is newly initialized: files of models that do not use it lack it."""
NEW_TOKENS = "special tokens"
"""What ends the description in `Model.created` of tokens whose embeddings are newly initialized, after their number."""


@dataclass(frozen=True)
class Model:
    """A model as it is loaded, fine-tuned and saved.

    Attributes:
        encoder: the body.
        tokenizer: the tokenizer.
        heads: tensors by head ("masked_lm", "next_sentence", a task's `part`) and part.
        labels: labels of the classification or token classification head, in order.
        task: the task that the model was fine-tuned for, if any.
        created: descriptions of the weights that the source lacked and that are newly initialized, for the log.
        downstream: settings of the small model between encoder and head, if any; its tensors are the head "downstream".
        tokens: number of tokens that it was pretrained on; 0 for random weights, None if unknown.
        revision: NAMESPACE/NAME@COMMIT on the Hugging Face Hub, if it comes from there.
        pooling: how it makes vectors of texts, if its directory is one of sentence-transformers.
        card: README.md of its directory; "": it has none.
    """

    encoder: Encoder
    tokenizer: Tokenizer
    heads: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    task: Task | None = None
    created: tuple[str, ...] = ()
    downstream: DownstreamSettings | None = None
    tokens: int | None = None
    revision: str = ""
    pooling: Pooling | None = None
    card: str = ""

    @property
    def marks_pairs(self) -> bool:
        """Whether segment ids tell the texts of a pair apart, also after it is saved and loaded."""
        return self.tokenizer.segments and self.encoder.settings.segments > 1

    @property
    def vector_width(self) -> int:
        """Width of the vectors of texts, before they are cut."""
        return width_of(self.pooling, self.encoder.width)

    @property
    def new_tokens(self) -> str:
        """The tokens that the source has no weights of, such as "4 special tokens"; "" if there are none."""
        return next((description for description in self.created if description.endswith(NEW_TOKENS)), "")

    def with_dimensions(self, dimensions: int) -> Model:
        """Return a model whose vectors of texts are cut to so many first components.

        Raises:
            UserError: they have fewer, or it makes no vectors.
        """
        if self.task is not None and self.task.vectors.pooling is None:
            refuse_idle(f": this model is for {self.task.title}", dimensions=True)
        pooling = (self.pooling or Pooling()).changed(self.encoder.width, dimensions=dimensions)
        return replace(self, pooling=pooling, task=None if self.task is None else self.task.cut(dimensions))

    @property
    def parts(self) -> tuple[object, object]:
        """What defines its body and its tokenizer, whose papers are cited; see `papers_of`."""
        return type(self.encoder.settings), self.tokenizer.kind.starts

    @property
    def as_base(self) -> BaseModel:
        """What the card of a model that is made of it states of it."""
        return BaseModel.read(self.revision, self.card)

    def inputs(self, role: str) -> dict[str, str]:
        """Return what identifies it among the inputs of a run, in which it has this role, such as "init"."""
        pinned = {f"{role}_revision": self.revision} if self.revision else {}
        return {role: self.fingerprint(), **pinned}

    def fingerprint(self) -> str:
        """Return the sha256 of everything that outputs depend on, but for dropout; it is the same on any device.

        These are the weights, the settings of encoder, task, downstream model and pooling, the labels, and the
        tokenizer with the special tokens and segment ids that it adds.
        """
        shape = msgspec.structs.replace(self.encoder.settings, dropout=0.0, head_dropout=None)
        words = [self.tokenizer.sha256, self.tokenizer.summary, self.tokenizer.ends_twice, self.marks_pairs]
        parts = [shape, self.task, self.downstream, self.pooling, self.labels, words]
        return fingerprint_values([fingerprint(self.weights()), *parts])

    def weights(self) -> dict[str, Tensor]:
        """Return all weights, including those of the heads, by names that are unique."""
        weights = {f"encoder.{name}": value for name, value in self.encoder.state_dict().items()}
        for head, tensors in self.heads.items():
            weights |= {f"{head}.{name}": value for name, value in tensors.items()}
        return weights

    def take(self, name: str, objective: Objective) -> list[str]:
        """Load a head's tensors into an objective.

        Args:
            name: name of the head.
            objective: the objective; it keeps its own weights where the model has none.

        Returns:
            Descriptions of what the model lacks: nothing, the whole head, or optional parts (`Objective.optional`).

        Raises:
            UserError: required tensors are missing, or shapes differ.
        """
        wanted = objective.state_dict()
        if name not in self.heads:
            return [f"the {name} head"] if wanted else []
        state, lacking = dict(self.heads[name]), []
        for prefix, description in objective.optional.items():
            if not any(part.startswith(prefix) for part in state):
                state |= {part: value for part, value in wanted.items() if part.startswith(prefix)}
                lacking.append(description)
        for part in sorted(state.keys() ^ wanted.keys()):
            raise UserError(
                f"{part} of the {name} head is {'missing' if part in wanted else 'unknown'}",
                remedy="use the objective's settings of the model; if they are the same, the model is damaged",
            )
        for part, value in state.items():
            if value.shape != wanted[part].shape:
                raise UserError(
                    f"{part} of the {name} head has shape {tuple(value.shape)}, but its settings imply "
                    f"{tuple(wanted[part].shape)}",
                    remedy="use the settings of the model, or a model that matches",
                )
        objective.adopt(state)
        return lacking

    def take_head(self, head: Objective) -> list[str]:
        """Load the head of the model's task; see `take`."""
        assert self.task is not None
        return self.take(self.task.head.adopts or self.task.part, head)

    def with_tokens(self, tokens: Sequence[str], seed: int = 0) -> Model:
        """Return a model with further special tokens, which are newly initialized.

        Raises:
            UserError: its vocabulary cannot be extended.
        """
        if not tokens:
            return self
        if TOKEN_EMBEDDINGS not in self.encoder.provides:
            raise UserError(
                f"the vocabulary of this model lacks {tokens[0].strip()}, and cannot be extended",
                remedy="use a model with token embeddings",
            )
        words, encoder, heads = self.tokenizer.with_tokens(tokens), self.encoder, self.heads
        created = (*self.created, *(token.strip() for token in tokens))
        if words.size > encoder.vocabulary:
            encoder = build_encoder(encoder.settings, words.size, seed=seed)
            rows = decoder_of(encoder).detach()
            tensors, heads = _extend(self.encoder.state_dict(), heads, self.encoder.vocabulary, rows)
            encoder.load_state_dict(tensors)
        return replace(self, encoder=encoder, tokenizer=words, heads=heads, created=created)

    def body(self) -> Encoder:
        """Return the body below the task head: the encoder, or the downstream model on it."""
        if self.downstream is None:
            return self.encoder
        body = Downstream(self.downstream, self.encoder)
        body.load_own(self.heads["downstream"])
        return body


def load_model(
    source: str | Path,
    *,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    dropout: float | None = None,
    keep_head_dropout: bool = False,
    seed: int = 0,
) -> Model:
    """Load MODEL.

    Args:
        source: the model; see the module.
        tokenizer: a tokenizer, or a model or run with one; see `find_tokenizer`. Only for `random:RECIPE`.
        allow_pickle: whether to read a `pytorch_model.bin` (tensors only).
        dropout: dropout rate that replaces the model's own.
        keep_head_dropout: whether the rate before the last layer of new heads stays (continued pretraining has none).
        seed: seed of newly initialized weights.

    Raises:
        UserError: the model does not exist or is damaged.
    """
    if str(source).startswith("random:"):
        return _untrained(str(source), tokenizer, dropout, seed)
    refuse_idle(": the model has its own", tokenizer=tokenizer)
    directory = find(source, allow_pickle=allow_pickle)
    pretrained, words = read_directory(directory, allow_pickle=allow_pickle)
    new = num_new(pretrained, words, directory)
    encoder = build_encoder(
        pretrained.settings,
        pretrained.vocabulary + new,
        dropout=dropout,
        keep_head_dropout=keep_head_dropout,
        seed=seed,
        loaded=() if new else pretrained.encoder.keys(),
    )
    body, heads = pretrained.encoder, pretrained.heads
    if new:
        body, heads = _extend(body, heads, pretrained.vocabulary, decoder_of(encoder).detach())
    copies = {name: value.clone() for name, value in body.items()}  # what is read refers to the file
    missing = encoder.load_state_dict(copies, strict=False, assign=True).missing_keys
    if missing and (reads := sorted(POOLED & pretrained.heads.keys())):
        raise UserError(
            f"the pooler that the {reads[0]} head reads is missing",
            file=directory / "model.safetensors",
            remedy="the file is incomplete: copy it again",
        )
    created = (*((NEW_POOLER,) if missing else ()), *((f"{new} {NEW_TOKENS}",) if new else ()))
    task, downstream = read_task(pretrained, words, directory)
    task, beside = read_beside(task, ModelFiles(directory, words, pretrained.settings, frozenset(heads)))
    heads = {**heads, **{part: {**heads.get(part, {}), **tensors} for part, tensors in beside.items()}}
    heads = {"downstream": {}, **heads} if downstream else heads  # averaging has no tensors
    revision, pooling = hub.revision_of(directory), read_pooling(directory, words)
    if pooling is not None and pooling.dense:
        heads = {**heads, DENSE: read_dense(directory, pooling.dense, pretrained.settings.width)}
    card, tokens = read_card(directory), pretrained.tokens
    model = Model(encoder, words, heads, pretrained.labels, task, created, downstream, tokens, revision, pooling, card)
    if downstream is not None:
        _check_downstream(model, directory)
    return model


def _untrained(source: str, tokenizer: str | Path | None, dropout: float | None, seed: int) -> Model:
    """Return the newly initialized model of `random:RECIPE`."""
    recipe = read_recipe(source.removeprefix("random:"))
    if tokenizer is None:
        raise UserError(
            f"{source} needs a vocabulary", remedy=f"pass {argument('tokenizer', 'DIR')} (to finetune, or to features)"
        )
    words = load_tokenizer(find_tokenizer(tokenizer))
    words.summary = recipe.encoder.summary
    if not recipe.encoder.reads(words.kind.name):
        raise UserError(f"{source} cannot read a vocabulary of the kind {words.kind.name}", remedy="use another one")
    if wanted := recipe.encoder.mismatch(words.pad):
        raise UserError(
            f"[encoder] of {recipe.name} does not match the padding id of this vocabulary, {words.pad}",
            remedy=f"use another vocabulary, or random:FILE with a recipe of your own that sets {wanted}",
        )
    encoder = build_encoder(recipe.encoder, words.size, dropout=dropout, seed=seed)
    return Model(encoder, words, created=("all weights",), tokens=0)


def _extend(
    encoder: Mapping[str, Tensor], heads: Mapping[str, Mapping[str, Tensor]], vocabulary: int, words: Tensor
) -> tuple[Mapping[str, Tensor], Mapping[str, Mapping[str, Tensor]]]:
    """Return the tensors of an encoder and of heads with additional rows for special tokens.

    Args:
        encoder: tensors of the encoder.
        heads: tensors by head and part.
        vocabulary: number of rows that they have.
        words: newly initialized token embeddings, (extended vocabulary, width).
    """
    rows = words.clone()
    rows[:vocabulary] = encoder[WORDS]
    count = len(words) - vocabulary
    extended = {
        head: {
            name: torch.cat([value, value.new_zeros(count, *value.shape[1:])])
            if value.shape == (vocabulary,) or name == "decoder.weight"
            else value
            for name, value in tensors.items()
        }
        for head, tensors in heads.items()
    }
    return {**encoder, WORDS: rows}, extended


def _check_downstream(model: Model, directory: Path) -> None:
    """Check that the tensors of a downstream model and the head on it are those that their settings imply.

    Raises:
        UserError: they are not.
    """
    assert model.task is not None
    try:
        model.take_head(model.task.build_on(model.body(), model.labels))
    except (RuntimeError, UserError) as error:
        raise UserError(
            "the settings under 'unmask' do not match the weights", file=directory / "config.json"
        ) from error


def build_encoder(
    settings: BodySettings,
    vocabulary: int,
    *,
    dropout: float | None = None,
    keep_head_dropout: bool = False,
    seed: int = 0,
    loaded: Collection[str] = (),
) -> Encoder:
    """Return a newly initialized encoder, which depends only on the seed; see `load_model`.

    If all of its tensors are to be `loaded`, it is on the meta device.
    """
    if dropout is not None:
        head = settings.before_last if keep_head_dropout else None
        settings = msgspec.structs.replace(settings, dropout=dropout, head_dropout=head)
    names = check_size(lambda: body_on_meta(settings, vocabulary), "an encoder").state_dict().keys()
    torch.manual_seed(derive_seed(seed, "encoder"))
    where = on_meta() if names <= set(loaded) else nullcontext()
    with naming_shortage("while the encoder was built", SMALLER), where:
        return settings.build(vocabulary)


def save_model(directory: str | Path, model: Model, card: str) -> None:
    """Write a directory that `load_model` and transformers can load, with `card` as its README.md."""
    directory = Path(directory)
    task = None if model.task is None else msgspec.to_builtins(model.task)
    if task is not None and model.downstream is not None:
        task["downstream"] = msgspec.to_builtins(model.downstream)
    heads, shape = {**model.heads}, model.encoder.settings
    length = model.task.length if model.task else model.encoder.longest
    directory.mkdir(parents=True, exist_ok=True)
    model.tokenizer.save(directory, length=length, summary=shape.summary, segments=shape.segments > 1)
    dense = {name: value for name, value in heads.get(DENSE, {}).items() if name.startswith(DENSE_PART)}
    if dense:  # stored as sentence-transformers does; the head of the task has no other tensors
        heads[DENSE] = {}
    beside = None
    if model.task is not None:
        part = model.task.part
        beside = model.task.write_files(directory, model.encoder, model.heads.get(part, {}))
        if beside:
            heads[part] = {name: value for name, value in heads[part].items() if name not in beside}
    if beside is None and model.pooling is not None:
        write_pooling(directory, model.pooling, model.encoder.width, shape.summary, dense)
    huggingface.write(directory, model.encoder, heads, model.labels, task, model.tokenizer.pad, model.tokens)
    replace_file(directory / CARD, card.encode())
    write_checksums(directory)
