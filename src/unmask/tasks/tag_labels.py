"""The labels of a tagger: those that examples need, those that a model may have, and predictions as tags.

Input: sentences with tags; the labels of a model; predictions. Output: labels, tags, and entities for annotators.
"""

from __future__ import annotations

from collections.abc import Sequence

from unmask.data.labelled.span_export import Marked
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.metrics.token_classification import are_word_tags, is_word_tag, split_tag
from unmask.support.errors import UserError
from unmask.tasks.tagged import Tagged, tags_of


def labels_of(examples: Sequence[TaggedSentence]) -> tuple[str, ...]:
    """Return the labels that sentences need: O, then B- and I- of each type, or all tags without prefixes.

    Raises:
        UserError: no entity is tagged, all words have the same tag, or tags of words and of entities are mixed.
    """
    tags = {tag for sentence in examples for tag in sentence.tags}
    if are_word_tags(tags):
        if len(tags) == 1:
            raise UserError(
                f"all words have the tag '{min(tags)}'", file=examples[0].file, remedy="is it the right column?"
            )
        return tuple(sorted(tags))
    if wrong := sorted(filter(is_word_tag, tags)):
        raise UserError(f"'{wrong[0]}' is a tag of words, but other files have tags of entities", file=examples[0].file)
    kinds = sorted({split_tag(tag)[1] for tag in tags} - {""})
    if not kinds:
        raise UserError(
            f"no entity is tagged in {len(examples)} sentences",
            file=examples[0].file,
            remedy="is it the right column?",
        )
    return ("O", *(f"{role}-{kind}" for kind in kinds for role in "BI"))


def check_labels(labels: Sequence[str]) -> None:
    """Raise an error if the labels of a model are not tags, as in models for other tasks."""
    plain = [label for label in labels if is_word_tag(label)]
    prefixed = any(label != "O" for label in labels if not is_word_tag(label))
    try:
        for label in labels:
            split_tag(label)
            if label in plain and prefixed:
                raise ValueError(f"'{label}' is not a tag such as O, B-PER or I-PER")
    except ValueError as error:
        raise UserError(
            f"a label of this model: {error}", remedy="name its labels under id2label in config.json"
        ) from error


def all_tags(
    examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]
) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    """Return the gold and the predicted tags of each sentence."""
    return [sentence.tags for sentence in examples], [
        tags_of(*pair) for pair in zip(examples, predictions, strict=True)
    ]


def marked(prediction: Tagged) -> list[Marked]:
    """Return the entities of a prediction as annotators import them."""
    return [
        Marked(entity.start, entity.end, entity.label, entity.text, entity.probability)
        for entity in prediction.entities
    ]
