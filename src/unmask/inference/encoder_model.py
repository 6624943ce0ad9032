"""What can be done with the encoder of a model, whatever task it was fine-tuned for: hidden states, vectors, masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.labelled.labelled_file import Row
from unmask.families.checkpoints.sentence_modules import Pooling, supported
from unmask.inference.backend import Backend
from unmask.inference.features import Features, collect_features, frame_words, write_features
from unmask.inference.fill import Filling, fill_masks
from unmask.inference.influence import Attention, Influence, measure_influence, read_attention
from unmask.inference.pooling import EXCLUDED, embed_samples, finished, frame_tokens, prompt_tokens
from unmask.model.model import Model
from unmask.nn.encoders.downstream import resolve_layers
from unmask.support.choices import PoolingKind, PromptName, as_texts, check_choice
from unmask.support.environment import check_memory
from unmask.support.errors import ShareNote, UserError
from unmask.support.messages import argument, call
from unmask.support.notices import note
from unmask.tasks.rows import as_rows, frame_rows
from unmask.tasks.token_vectors import VECTORS


class EncoderModel:
    """A model whose encoder is asked.

    Args:
        model: encoder, tokenizer, heads.
        backend: computes the outputs.

    Attributes:
        unread: number of special tokens around a text that neither its vector nor `Pooling.length` counts.
    """

    unread = 0

    def __init__(self, model: Model, backend: Backend) -> None:
        self.model, self.backend = model, backend

    def features(
        self, texts: str | Sequence[str], layers: Sequence[int] = (-1,), texts_b: str | Sequence[str] | None = None
    ) -> Features:
        """Return the hidden states of all tokens of texts or pairs.

        Args:
            texts: one or more texts; truncated at their end if longer than the model's maximum length.
            layers: layer numbers; 0 is the embeddings, negative numbers count from the last layer.
            texts_b: the second texts of pairs.

        An `InputNote` says what the vocabulary lacks.

        Raises:
            UserError: the model has no such layer.
        """
        encoder = self.model.encoder
        numbers = resolve_layers(layers, encoder.num_layers)
        rows = as_rows(as_texts(texts), None if texts_b is None else as_texts(texts_b))
        words = frame_words(self.model.tokenizer, rows, encoder.longest)
        if words.notes:
            note("; ".join(words.notes))
        return collect_features(self.backend, words, numbers, encoder.width)

    def attention(self, text: str, text_b: str | None = None) -> Attention:
        """Return what each attention head of the encoder attends to, computed in float32 on the CPU.

        Args:
            text: the text.
            text_b: the second text of a pair.

        Raises:
            UserError: the encoder has no attention (ELMo) or no weights (exported), or the text is too long.
        """
        encoder = self.model.encoder
        texts = [text] if text_b is None else [text, text_b]
        sample, tokens = frame_tokens(self.model.tokenizer, texts, encoder.longest)
        return Attention(tokens, read_attention(encoder, sample))

    def influence(self, text: str, layer: int = -1) -> Influence:
        """Return how much the vector of each word changes when each other word is left out, for any encoder.

        The text is read once as a whole and once without each word.

        Args:
            text: at least two words.
            layer: number of the layer whose vectors are compared; negative numbers count from the last layer.

        Raises:
            UserError: the model has no such layer, or the text has fewer than two words or too many tokens.
        """
        encoder = self.model.encoder
        (number,) = resolve_layers([layer], encoder.num_layers)
        return measure_influence(self.backend, self.model.tokenizer, text, number, encoder.longest)

    def fingerprint(self) -> str:
        """Return the fingerprint of the model."""
        return self.model.fingerprint()

    def write_features(self, examples: Sequence[Row], layers: Sequence[int], path: Path) -> tuple[int, list[str]]:
        """Stream the hidden states of examples to a safetensors file (see inference/features.py).

        Returns:
            The number of tokens written, and notes on texts that were truncated or are read badly.

        Raises:
            UserError: the model has no such layer.
        """
        encoder, backend = self.model.encoder, self.backend
        numbers = resolve_layers(layers, encoder.num_layers)
        words = frame_words(self.model.tokenizer, examples, encoder.longest)
        about = {"model": self.fingerprint(), "layers": ",".join(map(str, numbers)), "texts": str(len(examples))}
        about |= {"cut": str(words.cut), "precision": backend.precision}
        rows, shape = backend.layers(words.samples, numbers), (len(numbers), encoder.width)
        write_features(path, rows, words.offsets, shape, word_ids=words.word_ids, about=about)
        cut = f"texts are longer than {encoder.longest} tokens and were cut"
        notes = [*([ShareNote(words.cut, len(examples), cut)] if words.cut else []), *words.notes]
        return int(words.offsets[-1]), notes

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: PoolingKind | None = None,
        normalize: bool | None = None,
        prompt_name: PromptName | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray:
        """Return one vector per text, (texts, width) float32; see docs/embeddings.md.

        Truncated and empty texts are counted in an `InputWarning`. The prompt of the model begins each text.

        Args:
            texts: one or more texts.
            pooling: see `nn.encoders.pooled.pool`; None: that of the model, otherwise the mean. With a pooling that is
                named, the dense layers of the model are not used.
            normalize: whether vectors are divided by their norm; None: as the model specifies, otherwise yes.
            prompt_name: "query" or "document", if the model has a prompt for these; None: its default prompt.
            dimensions: number of first components that vectors are cut to, before they are normalized; None: as the
                model specifies, otherwise all.

        Raises:
            UserError: the model's own vectors have a step that is not supported or fewer dimensions, the pooling is
                unknown, or the model was trained for vectors of another kind and no pooling is named.
        """
        vectors, notes = self.vectors(
            texts, pooling=pooling, normalize=normalize, prompt_name=prompt_name, dimensions=dimensions
        )
        if notes:
            note("; ".join(notes))
        return vectors

    def embed_tokens(
        self, texts: str | Sequence[str], *, prompt_name: PromptName = "document", notes: list[str] | None = None
    ) -> list[np.ndarray]:
        """Return the vectors of the tokens of each text, (tokens, width) float32, of norm 1, for late interaction.

        Args:
            texts: one or more texts.
            prompt_name: whether they are queries or documents, which are read differently.
            notes: receives notes that count texts.

        Raises:
            UserError: the model was not trained for late interaction.
        """
        check_choice("prompt_name", prompt_name, PromptName)
        task = self.model.task
        tokens = None if task is None else task.vectors.tokens
        if task is None or tokens is None:
            kind = "not fine-tuned" if task is None else f"for {task.title}"
            raise UserError(
                f"this model is {kind}, and makes no vectors of tokens to compare",
                remedy=f"use {call('features', 'MODEL')}, or a model of the task late-interaction",
            )
        samples, _, own_notes = tokens.frame_texts(self.model.tokenizer, as_rows(as_texts(texts)), prompt_name)
        count = sum(len(sample.positions[VECTORS]) for sample in samples)
        check_memory(4 * count * tokens.width, f"{count:,} vectors of tokens", "embed several parts")
        if notes is not None:
            notes += own_notes
        return self.backend.logits(task.part, samples)

    def vectors(
        self,
        texts: str | Sequence[str],
        *,
        pooling: PoolingKind | None = None,
        normalize: bool | None = None,
        prompt_name: PromptName | None = None,
        dimensions: int | None = None,
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return what `embed` returns, and notes that count texts."""
        if pooling is not None:
            check_choice("pooling", pooling, PoolingKind)
        task = self.model.task
        if pooling is None and task is not None and (task.vectors.sparse or task.vectors.tokens is not None):
            kind, use = ("sparse vectors", "predict") if task.vectors.sparse else ("vectors of tokens", "embed_tokens")
            raise UserError(
                f"this model makes {kind}, which {use} returns; those of whole texts were not trained",
                remedy=f"pass {argument('pooling')} for the encoder's own",
            )
        encoder = self.model.encoder
        stated = self.model.pooling
        own = supported(stated) if pooling is None else (stated or Pooling()).of_kind(pooling)
        own = own.changed(encoder.width, normalize=normalize, dimensions=dimensions)
        prompt = own.prompt_of(prompt_name)
        rows = as_rows([prompt + text for text in as_texts(texts)])
        excluded = prompt_tokens(self.model.tokenizer, prompt, own)
        samples, _, notes = frame_rows(
            self.model.tokenizer,
            rows,
            min(own.length or encoder.longest, encoder.longest),
            labels={EXCLUDED: np.full((len(rows), 1), excluded)} if excluded else None,
        )
        return finished(self.framed_vectors(samples, own), own), notes

    def framed_vectors(self, samples: Sequence[Sample], pooling: Pooling) -> np.ndarray:
        """Return the vector of each text with its special tokens; see `embed_samples`."""
        return embed_samples(self.backend, self.model, samples, pooling)

    def fill(self, texts: Sequence[str], *, top: int = 5, targets: Sequence[str] | None = None) -> list[Filling]:
        """Return the `top` most probable tokens at each mask of a text, among `targets` if given; see `unmask.fill`.

        Raises:
            UserError: the model has no masked-LM head, a text has no mask or is too long, or a target is not a token.
        """
        among = None if targets is None else as_texts(targets)
        return fill_masks(self.model, self.backend, as_texts(texts), top, among)
