"""The pipeline of labels that a model was not trained on, as transformers' and Hugging Face's inference API have it.

The scores are those of `inference.zero_shot`: by entailment, or by a masked language model, which that API has not.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from unmask.inference.zero_shot import by_labels
from unmask.serving.batcher import ComputeJob, Head
from unmask.serving.bodies import invalid, too_large, too_long
from unmask.serving.served import Served
from unmask.serving.types import Parameters, PipelineRequest
from unmask.support.messages import argument
from unmask.tasks.routes import Scored
from unmask.tasks.rows import as_rows


class LabelParameters(Parameters):
    """What texts are classified by.

    Attributes:
        candidate_labels: the names of the labels.
        hypothesis_template: a text with one {}, which stands for the label; None: the default.
        multi_label: whether a text may have any number of them; each score is then a probability of its own.
    """

    candidate_labels: Annotated[list[str], Meta(min_length=2)]
    hypothesis_template: str | None = None
    multi_label: bool | None = False


class LabelsRequest(PipelineRequest):
    """Texts to classify: one or several."""

    inputs: str | list[str]
    parameters: LabelParameters


def classify_by_names(served: Served, request: LabelsRequest) -> ComputeJob:
    """Return the job of `zero-shot-classification`; it reads the labels of a text, or of each, the best first.

    Raises:
        Refusal: there are too many texts or labels, or one is empty or too long.
        UserError: the labels or the template do not suit the model.
    """
    parameters = request.parameters
    labels, template = parameters.candidate_labels, parameters.hypothesis_template
    inputs = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    texts = served.texts(request, inputs)
    if len(labels) > served.limits.inputs:
        raise too_large(f"{argument('parameters')}: more than {served.limits.inputs} labels; send several requests")
    served.texts(request, [*labels, *([template] if template else [])], count=1)
    predictor = by_labels(served.predictor, labels, template, multi_label=bool(parameters.multi_label))
    task, backend = predictor.task, predictor.backend
    framed = task.frame(served.tokenizer, as_rows(texts), predictor.labels, gold=False)
    if any(framed.cut):
        raise invalid(too_long(request, f"{task.length} tokens, those of the template with a label included"))
    head: Head = task.part if backend is served.predictor.backend else partial(backend.logits, task.part)

    def read(rows: list[np.ndarray]) -> list[Scored] | list[list[Scored]]:
        answers = [
            sorted((Scored(score, label) for label, score in found.scores.items()), key=lambda of: -of.score)
            for found in framed.read(rows)
        ]
        return answers[0] if isinstance(request.inputs, str) else answers

    return ComputeJob(head, served.checked(request, framed.samples), read)
