"""The route `/explain`: what each word of a text contributes to what is predicted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from unmask.data.batches.batch import total_length
from unmask.inference.explanation import Explainer
from unmask.serving.batcher import ComputeJob
from unmask.serving.refusals import invalid, main_field, too_large, too_long
from unmask.serving.served import Served
from unmask.serving.types import ExplainRequest
from unmask.tasks.explained import Explanation


def explain(served: Served, request: ExplainRequest) -> ComputeJob:
    """Return the job of `/explain`; it reads the explanations of what is predicted of a text, by occlusion.

    Raises:
        Refusal: the text is empty or too long, or there are too many words or logits without each of them.
        UserError: the task or the encoder cannot be explained on it.
    """
    task, labels, limits = served.predictor.task, served.predictor.labels, served.limits
    texts = served.texts(request, request.inputs)
    framed = task.frame(served.tokenizer, task.from_texts(*([text] for text in texts)), labels, gold=False)
    if any(framed.cut):
        raise invalid(too_long(request, f"{task.length} tokens"))
    explainer = Explainer(served.model, task, served.predictor.backend)
    words = [explainer.words(framed, number) for number in range(len(framed.samples))]
    if (count := sum(len(of.words) for of in words)) > limits.words:
        raise too_large(f"{main_field(request)}: {count:,} words, more than {limits.words} that can be explained")
    occluded = [explainer.occluded(*pair) for pair in zip(framed.samples, words, strict=True)]
    targets = sum(len(of) * max(map(len, of[0].positions.values()), default=1) for of in occluded)
    if targets * len(labels) > limits.logits:
        raise too_large(f"{main_field(request)}: more than {limits.logits:,} scores; shorten the text")
    samples = [sample for of in occluded for sample in of]
    if total_length(samples) > limits.request_tokens:
        raise too_large(f"{main_field(request)}: the text is too long to be read once without each word; shorten it")
    ends = np.cumsum([0, *map(len, occluded)]).tolist()

    def read(rows: list[np.ndarray]) -> list[Explanation]:
        parts = zip(framed.samples, words, pairwise(ends), strict=True)
        return [
            explanation
            for sample, of, (start, end) in parts
            for explanation in explainer.read_occlusion(sample, of, rows[start:end])
        ]

    return ComputeJob(task.part, samples, read)
