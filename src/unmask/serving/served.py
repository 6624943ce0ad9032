"""A model that is served: requests are converted to jobs for its batcher, and the rows of these to responses.

Framing is done outside of the computing thread. Texts are checked before they are tokenized: their number and length in
characters; then their tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from unmask.data.batches.batch import Sample, total_length
from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.tokenizer import Ids
from unmask.data.tokenizers.words import WordCache
from unmask.families.checkpoints.sentence_modules import supported
from unmask.inference.backend import in_order
from unmask.inference.entailment import knows_labels
from unmask.inference.explanation import explains
from unmask.inference.fill import HEADS, Mask, MaskFiller, find_masks, find_targets, mask_head, read_candidates
from unmask.inference.pooling import normalized
from unmask.inference.predictor import Predictor
from unmask.nn.encoders.encoder import CHARACTERS
from unmask.serving.batcher import Batcher, ComputeJob, Head
from unmask.serving.bodies import field_of, invalid, main_field, too_large, too_long
from unmask.serving.metrics import Meter
from unmask.serving.types import EmbedRequest, FillRequest, Limits
from unmask.support.choices import PromptName
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument
from unmask.tasks.routes import Request, Route, TaskRequest, Truncation, VectorsRequest
from unmask.tasks.rows import TextTask, as_rows, cut_longer
from unmask.tasks.task import Vectors
from unmask.tasks.token_vectors import TokenEncoder

OF_LAYERS = ("/embed_all", "/features", "/playground/influence")
"""Routes that need hidden states."""
OF_VECTORS = ("/embed", "/similarity")
"""Routes of models that make vectors of texts: of all with hidden states, but those trained for other vectors."""
OF_ALL = ("/tokenize", "/decode", "/playground/attention")
"""Routes of all models."""
ZERO_SHOT = "/pipeline/zero-shot-classification"
"""The route of models that classify texts by the names of labels."""
RERANK = "/rerank"
"""The route of models that order texts by how well they answer a query."""
OTHER_IDS = (
    "those of OpenAI's vocabularies, as LangChain sends without check_embedding_ctx_length=False, are other words here"
)
"""What refusals of token ids add: clients of OpenAI's API send such ids to any server."""


REFUSED, TRUNCATED = Truncation(wanted=False), Truncation(wanted=True)


def cut(ids: Ids, size: int | None, left: bool) -> Ids:
    """Return the first token ids, or the last ones; None: all."""
    if size is None or len(ids) <= size:
        return ids
    return ids[len(ids) - size :] if left else ids[:size]


class Served:
    """A model with its name, its limits and its queue.

    Args:
        name: name by which requests select it.
        predictor: the model.
        limits: limits of the server.
        meter: metrics of the server.

    Attributes:
        readable: maximum number of tokens of a text that the encoder reads, for hidden states and masks.
        longest: maximum number of tokens of a text that vectors are made of.
        words: the ids of words of recent requests.

    Raises:
        UserError: the model states vectors of texts that are not supported.
    """

    def __init__(self, name: str, predictor: Predictor, limits: Limits, meter: Meter) -> None:
        self.name, self.predictor, self.limits = name, predictor, limits
        self.pooling = supported(predictor.model.pooling)
        self.batcher = Batcher(self.compute, limits, meter, name)
        self.model, self.tokenizer = predictor.model, predictor.model.tokenizer
        self.words = WordCache(self.tokenizer, "i4")
        self.readable = min(limits.batch_tokens, limits.request_tokens, self.model.encoder.longest)
        of_vectors = None if self.pooling.length is None else self.pooling.length + predictor.unread
        self.longest = self.readable if of_vectors is None else min(self.readable, of_vectors)
        self.mask_head = mask_head(self.model)
        self.route: Route | None = None
        task = self.model.task
        if task is not None and (task.vectors.sparse or task.vectors.tokens is not None):
            self.longest = min(self.longest, task.length)
        if task is not None and isinstance(task.route, Route) and predictor.backend.has_head(task.part):
            self.route = task.route

    @property
    def input_length(self) -> int:
        """Maximum number of tokens of what it is for: of a text, or a pair, of its task, or of a text for a vector."""
        task = self.model.task
        return task.longest if self.route is not None and isinstance(task, TextTask) else self.longest

    @property
    def reranks(self) -> bool:
        """Whether it is a cross-encoder."""
        return self.route is not None and self.predictor.task.reranks

    @property
    def token_vectors(self) -> TokenEncoder | None:
        """How it makes vectors of tokens to compare; None: it does not."""
        task = self.model.task
        return task.vectors.tokens if task is not None and self.predictor.backend.has_head(task.part) else None

    @property
    def compares(self) -> bool:
        """Whether it makes vectors of texts to compare by products: it was trained on this, or says how."""
        task, backend = self.model.task, self.predictor.backend
        stated = self.model.pooling is not None if task is None else task.vectors.pooling is not None
        return stated and backend.has_layers and self.pooling.is_compared_by_products

    def compute(self, head: Head, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the logits of each sample, (targets, classes), or its hidden states, (tokens, layers, width)."""
        if isinstance(head, str):
            return self.predictor.backend.logits(head, samples)
        if callable(head):
            return head(samples)
        return in_order(self.predictor.backend.layers(samples, head))

    def warm_up(self) -> None:
        """Compute something with each head, so that a damaged one is noticed before the first request.

        Raises:
            UserError: a head is damaged.
        """
        jobs = []
        if self.has("/embed"):
            ids = [np.zeros(1, np.int64)]
            jobs.append(self.embed_ids(EmbedRequest(inputs=""), ids, TRUNCATED, normalize=True, dimensions=None))
        if self.mask_head is not None:
            jobs.append(self.fill(FillRequest(inputs="[MASK]")))
        if self.route is not None:
            jobs.append(self.ask(self.route.request_to(self.model.task)))
        if self.token_vectors is not None:
            samples = self.frame_tokens(EmbedRequest(inputs=""), self.token_vectors, ["a"], "query", TRUNCATED)
            jobs.append(ComputeJob(self.predictor.task.part, samples, lambda rows: rows))
        for job in jobs:
            rows = self.compute(job.head, job.samples)
            if not job.sound(rows):
                raise UserError("its outputs are not numbers", remedy="train it again")
            job.read(rows)

    def has(self, path: str) -> bool:
        """Return whether the model can do what a route does."""
        vectors = Vectors() if self.model.task is None else self.model.task.vectors
        if path == "/embed_all" and vectors.tokens is not None:
            return self.token_vectors is not None
        if path in OF_LAYERS:
            return self.predictor.backend.has_layers
        if path in OF_VECTORS:
            return self.predictor.backend.has_layers and vectors.tokens is None and not vectors.sparse
        if path == RERANK:
            return self.reranks or self.compares or self.token_vectors is not None
        if path == "/explain":
            return self.route is not None and explains(self.predictor.task)
        if path == "/fill":
            return self.mask_head is not None
        if path == ZERO_SHOT:
            return knows_labels(self.model, self.predictor.backend)
        return path in OF_ALL or (self.route is not None and self.route.path == path)

    def embed(self, request: EmbedRequest) -> ComputeJob:
        """Return the job of `/embed`; it reads an array, (texts, dimensions)."""
        truncation = Truncation.of(request)
        ids = self.encode(request, request.inputs, truncation, prompt_name=request.prompt_name)
        return self.embed_ids(request, ids, truncation, normalize=request.normalize, dimensions=request.dimensions)

    def encode(
        self,
        request: Request,
        inputs: str | Sequence[str | int | list[int]],
        truncation: Truncation,
        *,
        prompt_name: PromptName | None = None,
    ) -> list[Ids]:
        """Return the token ids of texts after their prompt, without special tokens.

        Args:
            request: the request, whose fields refusals name.
            inputs: texts, or token ids with special ones.
            truncation: what is done with texts that are too long.
            prompt_name: see `EmbedRequest`.

        Raises:
            Refusal: see `texts` and `given_ids`; or ids have a prompt, or lack special tokens, as those that clients
                of OpenAI make by its vocabularies do, which mean other words here.
        """
        ids = self.given_ids(request, inputs)
        if ids is None:
            prompt = self.prompt_of(prompt_name)
            texts = self.texts(request, cast("str | list[str]", inputs), truncation)
            return self.words.encode_many([prompt + text for text in texts])
        if prompt_name is not None:
            raise invalid(f"{argument('prompt_name')}: token ids have no prompt; put it into a text")
        frame = replace(Frame.of(self.tokenizer), spell=lambda spelled: spelled)
        bare = [text_ids[frame.start : len(text_ids) - 2 + frame.start] for text_ids in ids]
        if any(not np.array_equal(frame.wrap(inner).ids, outer) for inner, outer in zip(bare, ids, strict=True)):
            raise invalid(
                f"{main_field(request)}: token ids need the special tokens, as /tokenize returns them; {OTHER_IDS}"
            )
        return bare

    def prompt_of(self, name: PromptName | None) -> str:
        """Return what a text begins with.

        Raises:
            Refusal: its tokens would have to be left out of the vector, which the server does not do.
        """
        prompt = self.pooling.prompt_of(name)
        if prompt and not self.pooling.include_prompt:
            raise invalid(
                f"{argument('prompt_name')}: the tokens of this model's prompts are not part of its vectors "
                "(include_prompt), which the server cannot leave out"
            )
        return prompt

    def given_ids(self, request: Request, inputs: str | Sequence[str | int | list[int]]) -> list[Ids] | None:
        """Return the token ids of a request, a list for each text; None if it has texts.

        Raises:
            Refusal: texts and ids are mixed, there are too many or none, the model has no such token, or it reads the
                characters of words, and an id stands for all that its vocabulary lacks.
        """
        if isinstance(inputs, str) or all(isinstance(item, str) for item in inputs):
            return None
        field, most = main_field(request), self.limits.inputs
        lists: list[Any] = [inputs] if all(isinstance(ids, int) for ids in inputs) else list(inputs)
        if not all(isinstance(ids, list) and ids for ids in lists):
            choices = "a text, a list of texts, a list of token ids, or a list of such lists, none empty"
            raise invalid(f"{field}: expected {choices}")
        if len(lists) > most:
            raise too_large(f"{field}: more than {most} inputs; send several requests")
        if not all(0 <= id < self.tokenizer.size for ids in lists for id in ids):
            raise invalid(f"{field}: token ids of this model are from 0 to {self.tokenizer.size - 1}; {OTHER_IDS}")
        if CHARACTERS in self.model.encoder.provides and any(self.tokenizer.unk in ids for ids in lists):
            raise invalid(f"{field}: {self.tokenizer.unk} is the token id of all unknown words; pass texts")
        return [np.array(text_ids, np.int32) for text_ids in lists]

    def embed_ids(
        self,
        request: Request,
        ids: Sequence[np.ndarray],
        truncation: Truncation,
        *,
        normalize: bool,
        dimensions: int | None,
        texts: Sequence[str] = (),
    ) -> ComputeJob:
        """Return the job of the vectors of texts that are tokenized already, without special tokens.

        Args:
            request: the request, whose fields refusals name.
            ids: the token ids of each text.
            truncation: what is done with texts that are too long.
            normalize: see `EmbedRequest`.
            dimensions: see `EmbedRequest`.
            texts: the texts, if they are in several fields.

        Raises:
            Refusal: a text is too long, or has fewer dimensions.
        """
        width = self.model.vector_width
        if dimensions is not None and dimensions > width:
            raise invalid(f"{argument('dimensions')}: the vectors of this model have {width} dimensions")
        samples = self.framed(request, ids, truncation, texts)

        length = dimensions or self.pooling.dimensions or width

        def read(rows: list[np.ndarray]) -> np.ndarray:
            vectors = np.stack(rows)[:, :length]
            return normalized(vectors) if normalize else vectors

        return ComputeJob(self.vectors, samples, read, normalized=length if normalize else 0)

    def framed(
        self, request: Request, ids: Sequence[np.ndarray], truncation: Truncation, texts: Sequence[str] = ()
    ) -> Sequence[Sample]:
        """Return texts, as token ids without special tokens, as samples; see `embed_ids`.

        Raises:
            Refusal: a text is too long.
        """
        frame = Frame.of(self.tokenizer)
        capacity = frame.capacity(self.longest, texts=1)
        if not truncation.wanted and (long := [number for number, of in enumerate(ids) if len(of) > capacity]):
            most = f"{capacity} tokens besides special ones"
            raise invalid(too_long(request, most, [texts[number] for number in long] if texts else ()))
        return self.checked(request, [frame.wrap(cut(text_ids, capacity, truncation.left)) for text_ids in ids])

    def frame_tokens(
        self,
        request: Request,
        encoder: TokenEncoder,
        texts: Sequence[str],
        name: PromptName,
        truncation: Truncation,
    ) -> Sequence[Sample]:
        """Return texts as samples whose tokens have vectors, for late interaction; see `embed_ids`.

        Raises:
            Refusal: a text is too long, or should be truncated at its beginning.
        """
        if truncation.left:
            raise invalid(f'{argument("truncation_direction")}: this model truncates texts at their end; pass "right"')
        samples, were_cut, _ = encoder.frame_texts(self.tokenizer, as_rows(texts), name)
        if not truncation.wanted and (long := [text for text, was_cut in zip(texts, were_cut, strict=True) if was_cut]):
            most = encoder.query_length if name == "query" else encoder.length
            raise invalid(too_long(request, f"{most} tokens, special ones included", long))
        return self.checked(request, samples)

    def vectors(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return the vector of each text, (width,); the hidden states of its tokens do not leave the batch."""
        return list(self.predictor.framed_vectors(samples, self.pooling))

    def ask(self, request: TaskRequest, of: Request | None = None) -> ComputeJob:
        """Return the job of the route of the model's task; it reads the response.

        Args:
            request: what is asked.
            of: the request whose fields refusals name; None: the same.

        Raises:
            Refusal: there are too many texts or none, or one is empty or too long.
            UserError: the task cannot be asked this.
        """
        task, route, of = self.predictor.task, self.route, of or request
        assert route is not None
        if isinstance(request, VectorsRequest):
            return self._vectors_of_task(request)
        assert route.examples is not None
        truncated = request.truncated(self.limits.characters)
        asked = truncated or request
        inputs = asked.texts()
        self.texts(of, [text for texts in inputs for text in texts], count=len(inputs))
        framed = task.frame(self.tokenizer, route.examples(task, asked), self.predictor.labels, gold=False)
        if truncated is None and any(framed.cut):
            raise invalid(too_long(of, f"{task.longest if isinstance(task, TextTask) else task.length} tokens"))
        targets = sum(max(map(len, sample.positions.values()), default=1) for sample in framed.samples)
        if targets * len(self.predictor.labels) > self.limits.logits:
            raise too_large(f"{main_field(of)}: more than {self.limits.logits:,} scores; send several requests")

        def read(rows: list[np.ndarray]) -> Any:
            outputs = framed.outputs(rows) if framed.outputs is not None else None
            return route.answer(task, asked, framed.read(rows), outputs)

        samples = self._ends(inputs) if truncated is not None and truncated.left else framed.samples
        return ComputeJob(task.part, self.checked(of, samples), read, infinite=task.infinite)

    def _vectors_of_task(self, request: VectorsRequest) -> ComputeJob:
        """Return the job of the model's task for texts or token ids; see `ask`."""
        task, route = self.predictor.task, self.route
        assert route is not None
        truncation = Truncation.of(request)
        ids = self.encode(request, request.inputs, truncation, prompt_name=request.prompt_name)
        samples = self.framed(request, ids, truncation)
        framed = task.frame(self.tokenizer, task.from_texts([""] * len(ids)), self.predictor.labels, gold=False)
        answer = route.answer
        return ComputeJob(task.part, samples, lambda rows: answer(task, request, framed.read(rows), None))

    def _ends(self, inputs: Sequence[Sequence[str]]) -> list[Sample]:
        """Return the ends of texts, or pairs, that are too long as samples of a task over whole texts.

        Raises:
            Refusal: the task reads texts otherwise, or in several windows.
        """
        task, frame = self.predictor.task, Frame.of(self.tokenizer)
        if not isinstance(task, TextTask) or task.windows > 1:
            windows = "this model reads texts in windows, from their beginning on"
            raise invalid(f'{argument("truncation_direction")}: {windows}; pass "right"')
        capacity = frame.capacity(task.length, texts=len(inputs[0]))
        samples = []
        for number, texts in enumerate(inputs):
            first, *second = self.tokenizer.encode_many(texts)
            sizes = cut_longer(len(first), len(second[0]) if second else 0, capacity)
            parts = (cut(ids, int(size), left=True) for ids, size in zip((first, *second), sizes, strict=False))
            samples.append(frame.wrap(*parts).named((0, number)))
        return samples

    def fill(self, request: FillRequest) -> ComputeJob:
        """Return the job of `/fill`; it reads the masks of each text with their candidates."""
        assert self.mask_head is not None
        texts = self.texts(request, request.inputs)
        framed = [find_masks(self.tokenizer, text, self.readable, HEADS[self.mask_head]) for text in texts]

        masks = sum(len(starts) for starts, _ in framed)
        most = min(self.limits.logits // self.tokenizer.size, self.limits.candidates // request.top)
        if masks > most:
            raise too_large(
                f"{main_field(request)}: {counted(masks, 'mask')}, more than {most:,} in a request to this model with "
                f"{request.top} candidates for each; send several requests"
            )

        def read(rows: list[np.ndarray]) -> list[list[Mask]]:
            pairs = zip(framed, rows, strict=True)
            return [list(map(Mask, starts, read_candidates(self.tokenizer, ranked))) for (starts, _), ranked in pairs]

        among = find_targets(self.tokenizer, request.targets)
        filler = MaskFiller(self.tokenizer, self.predictor.backend, self.mask_head, request.top, among)
        return ComputeJob(filler, self.checked(request, [sample for _, sample in framed]), read)

    def texts(
        self,
        request: Request,
        inputs: str | Sequence[str],
        truncation: Truncation = REFUSED,
        *,
        count: int | None = None,
    ) -> list[str]:
        """Return texts whose number and length are within the limits; truncated ones, if that is asked for.

        Args:
            request: the request, whose fields refusals name.
            inputs: its texts.
            truncation: what is done with texts that have too many characters.
            count: number of inputs; None: that of the texts.

        Raises:
            Refusal: there are too many or none, or one is empty or too long.
        """
        texts, limits = [inputs] if isinstance(inputs, str) else list(inputs), self.limits
        if not texts:
            raise invalid(f"{main_field(request)}: there is no text")
        if (len(texts) if count is None else count) > limits.inputs:
            raise too_large(f"{main_field(request)}: more than {limits.inputs} inputs; send several requests")
        if empty := [text for text in texts if not text.strip()]:
            raise invalid(f"{field_of(request, empty)}: a text is empty")
        long = [text for text in texts if len(text) > limits.characters]
        if long and not truncation.wanted:
            raise invalid(
                f"{field_of(request, long)}: a text has more than {limits.characters:,} characters; shorten it"
            )
        return [text[-limits.characters :] if truncation.left else text[: limits.characters] for text in texts]

    def checked(self, request: Request, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return samples whose number of tokens is within the limits.

        Raises:
            Refusal: there are too many tokens.
        """
        if total_length(samples) > self.limits.request_tokens:
            most = f"{self.limits.request_tokens:,} tokens in a request"
            raise too_large(f"{main_field(request)}: more than {most}; send several requests")
        return samples
