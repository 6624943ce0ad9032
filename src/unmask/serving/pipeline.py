"""Text in, answers out: a model ready for use, without any file or network around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from unmask.batches.batch import Sample, collate, split, total_length
from unmask.batches.frame import Frame
from unmask.encoders.downstream import number_layers
from unmask.encoders.encoder import Encoder
from unmask.errors import UserError
from unmask.labelled.labelled_file import Row
from unmask.labelled.sentence import Sentence, join_words, split_text
from unmask.labelled.squad_file import Question
from unmask.model import Model, load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import Objective
from unmask.runs.display import Display
from unmask.serving.features import Features, compute, frame_words, write_features
from unmask.tasks.question_answering import Answered, QuestionAnswering
from unmask.tasks.rows import as_rows
from unmask.tasks.task import Task
from unmask.tasks.token_classification import Tagged, TokenClassification
from unmask.text.unicode import check_unicode
from unmask.training.machine import Machine, choose_machine

PIECE_TOKENS = 8192
"""How many tokens are in memory at once."""


class Candidate(msgspec.Struct, frozen=True):
    """What may stand at a mask.

    Attributes:
        token: what is read; of WordPiece with the `##` that joins it to what stands before.
        probability: among all pieces.
        piece: the same as it stands in the vocabulary.
    """

    token: str
    probability: float
    piece: str


class Mask(msgspec.Struct, frozen=True):
    """A mask of a text.

    Attributes:
        position: the character where it starts.
        candidates: the most probable first.
    """

    position: int
    candidates: list[Candidate]


class Filling(msgspec.Struct, frozen=True):
    """A text with masks, as given, and what may stand there."""

    text: str
    masks: list[Mask]


class Pipeline:
    """A loaded model: `predict` and `run` do what it was fine-tuned for, `tag` finds entities, `fill` fills masks.

    Args:
        model: encoder, tokenizer, heads.
        machine: device and precision; None: float32 on the best device.
        display: shows how far long work is.
    """

    def __init__(self, model: Model, machine: Machine | None = None, display: Display | None = None) -> None:
        self.model = model
        self.display = display or Display(quiet=True)
        self.machine = machine or choose_machine(precision="float32")
        self.encoder = model.encoder.to(self.machine.device, self.machine.dtype).eval()

    @property
    def task(self) -> Task:
        """What the model was fine-tuned for.

        Raises:
            UserError: nothing.
        """
        if self.model.task is None:
            raise UserError(
                "this model was fine-tuned for no task",
                remedy="train one: unmask finetune classification --model MODEL --train FILE --out RUN",
            )
        return self.model.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are told apart, in order; empty where the model tells none apart."""
        return self.model.labels

    def predict(self, texts: str | Sequence[str], texts_b: str | Sequence[str] | None = None) -> list[Any]:
        """Classify texts, or pairs of them, give each its number, or find its entities, as the model was fine-tuned.

        Args:
            texts: what is cut at its end where it is longer than in training (but to find entities nothing is cut).
            texts_b: the other texts of pairs.

        Returns:
            `tasks.classification.Prediction`, `tasks.regression.Score` or `tasks.token_classification.Tagged` for each
            text.

        Raises:
            UserError: the model was fine-tuned for nothing of this kind.
        """
        first = [texts] if isinstance(texts, str) else texts
        second = [texts_b] if isinstance(texts_b, str) else texts_b
        return self.run(self.task.from_texts(first, second))

    def tag(self, text: str | Sequence[str]) -> Tagged:
        """Find the entities of a text, or of words (which are joined to a text); of many texts `predict` finds them.

        Raises:
            UserError: the model was not fine-tuned for this, or a word is empty.
        """
        if not isinstance(self.model.task, TokenClassification):
            raise UserError(
                "this model has no token classification head",
                remedy="train one: unmask finetune token-classification --model MODEL --train FILE --out RUN",
            )
        found: Tagged = self.run([_sentence(text)])[0]
        return found

    def answer(self, question: str, passage: str) -> Answered:
        """Answer a question from a passage.

        Args:
            question: what is cut at its end where it is longer than `task.question` tokens.
            passage: of any length.

        Raises:
            UserError: one of them is empty, or the model was not fine-tuned for this.
        """
        answered: Answered = self.run([self.question(question, passage)])[0]
        return answered

    def question(self, question: str, passage: str) -> Question:
        """Return a question and its passage as an example; see `answer`."""
        if not isinstance(self.model.task, QuestionAnswering):
            raise UserError(
                "this model answers no questions",
                remedy="train one: unmask finetune question-answering --model MODEL --train FILE --out RUN",
            )
        check_unicode((question, passage))
        if not question.strip() or not passage.strip():
            raise UserError("a question and a passage are needed, none of them empty")
        return Question("", question, passage)

    def run(self, examples: Sequence[Any], notes: list[str] | None = None) -> list[Any]:
        """Return the prediction of the model's task for each of its examples.

        Args:
            examples: of the task's type.
            notes: is told, a line each, what was mended, cut or left out.

        Raises:
            UserError: the model was not fine-tuned.
        """
        body = self.model.body()
        head = self.task.build(body.settings, self.labels)
        self.model.take(self.task.part, head)
        framed = self.task.frame(self.model.tokenizer, examples, self.labels, gold=False)
        if notes is not None:
            notes += framed.notes
        return framed.read(self._logits(head, self.task.part, framed.samples, body))

    def features(
        self, texts: str | Sequence[str], layers: Sequence[int] = (-1,), texts_b: str | Sequence[str] | None = None
    ) -> Features:
        """Return layers of texts, or of pairs of them, for all tokens.

        Args:
            texts: what is longer than the model reads is cut at its end.
            layers: 0 is the embeddings, negatives count from the end.
            texts_b: the other texts of pairs.

        Raises:
            UserError: the model has no such layer.
        """
        numbers = number_layers(layers, self.encoder.settings.layers)
        first = [texts] if isinstance(texts, str) else texts
        second = [texts_b] if isinstance(texts_b, str) else texts_b
        words = frame_words(self.model.tokenizer, as_rows(first, second), self.encoder.longest)
        offsets = words.offsets
        values = torch.empty(int(offsets[-1]), len(numbers), self.encoder.width)
        for number, rows in compute(self.encoder, words.samples, numbers, self.machine, self.display):
            values[offsets[number] : offsets[number + 1]] = rows
        return Features(values, torch.from_numpy(offsets), torch.from_numpy(words.word_ids), words.cut)

    def write_features(self, examples: Sequence[Row], layers: Sequence[int], path: Path) -> tuple[int, int]:
        """Stream layers of rows into a safetensors file (see serving/features.py).

        Returns:
            How many tokens were written, and how many texts were cut.

        Raises:
            UserError: the model has no such layer.
        """
        numbers = number_layers(layers, self.encoder.settings.layers)
        about = {"model": self.model.fingerprint(), "layers": ",".join(map(str, numbers)), "texts": str(len(examples))}
        words = frame_words(self.model.tokenizer, examples, self.encoder.longest)
        rows = compute(self.encoder, words.samples, numbers, self.machine, self.display)
        about |= {"cut": str(words.cut), "precision": self.machine.precision}
        shape = len(numbers), self.encoder.width
        write_features(path, rows, words.offsets, shape, word_ids=words.word_ids, about=about)
        return int(words.offsets[-1]), words.cut

    def fill(self, texts: Sequence[str], *, top: int = 5) -> list[Filling]:
        """Say what may stand at each mask of each text.

        Raises:
            UserError: the model has no masked-LM head, a text has no mask, or is too long.
        """
        if top < 1:
            raise UserError(f"{top} candidates cannot be shown", remedy="pass --top 1 or more")
        texts = [texts] if isinstance(texts, str) else texts
        check_unicode(texts)
        head = MaskedLM(self.encoder.settings, self.encoder.vocabulary)
        if not self.model.take("masked_lm", head):
            raise self._fills_nothing()
        masks = [self._masks(text) for text in texts]
        filled = []
        for text, (places, _), logits in zip(
            texts, masks, self._logits(head, "masked_lm", [sample for _, sample in masks]), strict=True
        ):
            size, special = self.model.tokenizer.size, list(self.model.tokenizer.special_ids)
            logits[:, size:] = -np.inf  # rows that pad the table have no piece
            shares = torch.from_numpy(logits).softmax(1)
            shares[:, special] = -1  # after the softmax: the others' probabilities stay the model's
            chances, ids = shares.topk(min(top, size - len(special)))
            rows = zip(places, chances.tolist(), ids.tolist(), strict=True)
            filled.append(Filling(text, [Mask(place, self._candidates(*row)) for place, *row in rows]))
        return filled

    def _fills_nothing(self) -> UserError:
        """Say why a model without a masked-LM head has none."""
        if self.encoder.settings.causal:
            return UserError("this model reads from left to right (GPT), and fills no masks", remedy="take another one")
        if "replaced_token" in self.model.heads:
            return UserError(
                "this model is a discriminator (ELECTRA): it tells which tokens were replaced, and fills no masks",
                remedy="take another one",
            )
        return UserError(
            "this model has no masked-LM head (fine-tuned models have none)",
            remedy="take a pretrained one, or adapt it: unmask pretrain RECIPE --init MODEL",
        )

    def _masks(self, text: str) -> tuple[list[int], Sample]:
        """Find a text's masks: their characters, and the sample with its hidden positions."""
        tokenizer = self.model.tokenizer
        ids = tokenizer.encode(text.replace("[MASK]", tokenizer.mask_token))
        hidden = np.flatnonzero(ids == tokenizer.mask)
        if not len(hidden):
            raise UserError(f"no mask in '{text[:60]}'", remedy=f"write {tokenizer.mask_token} where a word is missing")
        if len(ids) + 2 > self.encoder.longest:
            raise UserError(
                f"'{text[:40]}…' has {len(ids) + 2} tokens, the model reads {self.encoder.longest}", remedy="shorten it"
            )
        sample = Frame.of(tokenizer).wrap(ids)
        sample = sample.add(positions={"hidden": hidden + 1})
        # the mask may be written in two ways: count occurrences in the text as given
        places = [match.start() for match in re.finditer(f"{re.escape(tokenizer.mask_token)}|\\[MASK\\]", text)]
        return places, sample

    def _logits(
        self, head: Objective, name: str, samples: Sequence[Sample], body: Encoder | None = None
    ) -> list[np.ndarray]:
        """Return each sample's logits, (targets, classes), in float32; `body` is what the head sits on."""
        learner = Learner(body or self.encoder, {name: head}).to(self.machine.device, self.machine.dtype).eval()
        numbered = [sample.named((number,)) for number, sample in enumerate(samples)]
        found: dict[int, np.ndarray] = {}
        for piece in self.display.count(split(numbered, PIECE_TOKENS), total_length) if numbered else ():
            batch = collate(piece)
            with torch.inference_mode():
                encoded = learner.encoder((moved := batch.to(self.machine.device)).tokens)
                logits = head.predict(learner.encoder, encoded, moved).float().cpu().numpy()
            sizes = [len(numbered[number].positions[head.at]) for (number,) in batch.keys]
            parts = np.split(logits, np.cumsum(sizes)[:-1])
            found |= {number: part for (number,), part in zip(batch.keys, parts, strict=True)}
        return [found[number] for number in range(len(samples))]

    def _candidates(self, chances: Sequence[float], ids: Sequence[int]) -> list[Candidate]:
        tokenizer = self.model.tokenizer
        return [
            Candidate(tokenizer.decode([id]).strip() or piece, chance, piece)  # of a lone space nothing would be left
            for id, piece, chance in zip(ids, tokenizer.pieces(ids), chances, strict=True)
        ]


def _sentence(text: str | Sequence[str]) -> Sentence:
    check_unicode([text] if isinstance(text, str) else text)
    if isinstance(text, str):
        return split_text(text)
    try:
        return Sentence(*join_words(text))
    except ValueError as error:
        raise UserError(str(error)) from error


def load(
    source: str | Path, *, allow_pickle: bool = False, device: str = "auto", precision: str = "float32"
) -> Pipeline:
    """Load MODEL (a run or a Hugging Face directory) for use.

    Args:
        source: the directory.
        allow_pickle: read a `pytorch_model.bin`, tensors only.
        device: "cpu", "cuda" or "auto".
        precision: "float32", "bf16", or "auto": bf16 where the hardware multiplies it.

    Raises:
        UserError: no such model, or a damaged one.
    """
    return Pipeline(load_model(source, allow_pickle=allow_pickle), choose_machine(device, precision))
