"""Tasks over annotated texts: what a tagger of words, a classifier of spans, and one of relations share.

Input: sentences of tagged words, or texts with spans (`data.labelled.annotations`). Output: examples, the split of
them, mistakes, and the route of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unmask.data.labelled.annotations import iterate_annotations, read_annotations
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.span_export import export_array, export_record, is_export
from unmask.data.labelled.spans import Inexact, Units
from unmask.data.labelled.table import Source
from unmask.data.labelled.tagged_sentence import TaggedSentence, join_words, split_text
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.metrics.token_classification import Chunk
from unmask.support.errors import UserError, check_unicode, counted, counted_as
from unmask.support.messages import argument
from unmask.tasks.holding_out import choose_enough_units, choose_units
from unmask.tasks.mistakes import Mark, Mistake, Passage
from unmask.tasks.routes import Route, TagRequest
from unmask.tasks.tagged import Entity, Tagged, marked
from unmask.tasks.task import Columns, Notes, Paths, Task, describe_nothing

TAG = Route(
    "/tag",
    "Find the entities of texts.",
    TagRequest,
    list[list[Entity]],
    lambda task, request: task.from_texts([text for (text,) in request.texts()]),
    lambda task, request, predictions, outputs: [prediction.entities for prediction in predictions],
    f"{argument('inputs')}: a text has characters that cannot be encoded",
    {"inputs": "Ada Lovelace lived in London."},
    view="entities",
)
"""The route of tasks that find entities."""


class AnnotatedTask(Task, frozen=True, kw_only=True):
    """Base class of tasks over sentences with annotated words or spans; see `Task`.

    Attributes:
        length: maximum length of a window in tokens, special tokens included.
        inexact: annotations by offsets that words cannot express: spans that begin or end inside a word are extended
            to whole words, and discontinuous ones omitted, both counted ("adapt"), or both are errors ("refuse").
        units: what offsets in files count: "characters", "utf-16" units, "bytes" of UTF-8, or "auto": what the texts
            of the spans prove, or else what cuts fewer words.
    """

    inexact: Inexact = "adapt"
    units: Units = "auto"

    exports = True

    def texts(self, example: TaggedSentence) -> tuple[str, ...]:
        """See `Task`."""
        return (example.text,)

    def undefined(self, examples: Sequence[TaggedSentence], predictions: Sequence[Any]) -> str:
        """See `Task`: recall and F1, if there is nothing to find."""
        return describe_nothing([self.labels_of(example) for example in examples])

    def choose_held(
        self, examples: Sequence[TaggedSentence], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """See `Task`: splits by document if documents are marked, because sentences of one document share names.

        If no documents hold about a tenth of the sentences, it splits by sentence, and says so.
        """
        documents = [(sentence.file, sentence.document) for sentence in examples]
        if all(document is not None for _, document in documents):
            held = choose_units(documents, seed, 0)
            if held.any():
                return held
            if notes is not None:
                notes.append(
                    f"{len(examples):,} sentences are in {counted(len(set(documents)), 'document')}, which cannot be "
                    "held out whole: sentences were, which share names with the others, so scores may be too high"
                )
        held = choose_units(identities.firsts().tolist(), seed, 0)
        if held.any():
            return held
        return choose_enough_units(examples, range(len(examples)), seed, 0, what="sentence")  # a few, each many times

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: JSON Lines or, depending on the suffix, an annotator's file."""
        return {path: export_array(records)} if is_export(path) and path.suffix == ".json" else {}


class EntityTask(AnnotatedTask, frozen=True, kw_only=True):
    """Base class of tasks that find entities; see `AnnotatedTask`.

    Attributes:
        overlapping: whether entities may overlap.
    """

    overlapping: ClassVar[bool] = False
    route = TAG

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[TaggedSentence]:
        """See `Task`; `notes` reports the entities that deviate from the tagging scheme of their file."""
        sentences = read_annotations(
            paths,
            columns=columns,
            kind=kind,
            gold=gold,
            notes=notes,
            inexact=self.inexact,
            units=self.units,
            overlapping=self.overlapping,
        )
        for file in dict.fromkeys(sentence.file for sentence in sentences if sentence.irregular):
            irregular = [sentence for sentence in sentences if sentence.file == file and sentence.irregular]
            number = sum(sentence.irregular for sentence in irregular)
            if notes is not None:
                notes.append(
                    f"{file}: {counted_as(number, 'entities')} outside the tagging scheme of the file (I- without B-, "
                    f"for example), the first in the sentence of line {irregular[0].line}; read as conlleval does"
                )
        return sentences

    def iterate(
        self, source: Source, *, columns: Columns, kind: str | None = None, notes: Notes = None
    ) -> Iterator[TaggedSentence]:
        """See `Task`."""
        return iterate_annotations(source, columns=columns, kind=kind, notes=notes)

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[TaggedSentence]:
        """See `Task`; the texts are split into words."""
        if texts_b is not None:
            raise UserError("second texts have no effect: this model reads single texts")
        texts = list(texts)
        check_unicode(texts)
        return [split_text(text) for text in texts]

    def pose(self, text: str | Sequence[str]) -> TaggedSentence:
        """Return a text, or words that are joined into one, asked from a program, as an example.

        Raises:
            UserError: a word is empty.
        """
        if isinstance(text, str):
            return self.from_texts([text])[0]
        check_unicode(text)
        try:
            return TaggedSentence(*join_words(text))
        except ValueError as error:
            raise UserError(str(error)) from error

    def mistakes(
        self, examples: Sequence[TaggedSentence], predictions: Sequence[Tagged], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: sentences with missed or spurious entities, by their number."""
        mistakes = []
        for sentence, prediction in zip(examples, predictions, strict=True):
            gold = {(kind, start, end) for kind, start, end in sentence.entities}
            predicted = {(entity.label, entity.start, entity.end) for entity in prediction.entities}
            if gold != predicted:
                marked = Passage(
                    sentence.text,
                    gold=tuple(Mark(start, end, kind) for kind, start, end in sorted(gold, key=itemgetter(1, 2))),
                    predicted=tuple(
                        Mark(start, end, kind) for kind, start, end in sorted(predicted, key=itemgetter(1, 2))
                    ),
                )
                caption = f"{sentence.file}:{sentence.line}"
                mistakes.append(
                    Mistake((marked,), caption, score=len(gold ^ predicted), measure="missed or spurious entities")
                )
        return mistakes

    def record(self, path: Path, example: TaggedSentence, prediction: Tagged) -> Any:
        """See `Task`: a prediction or, depending on the suffix, an annotator's record."""
        return export_record(path, prediction.text, marked(prediction)) if is_export(path) else prediction

    def line(self, prediction: Tagged) -> str:
        """See `Task`."""
        entities = (f"{entity.label} {entity.probability:.3f} {entity.text}" for entity in prediction.entities)
        return "\t".join((prediction.text, *entities))


def in_code_points(
    examples: Sequence[TaggedSentence], predictions: Sequence[Tagged]
) -> tuple[list[list[Chunk]], list[list[Chunk]]]:
    """Return the gold and the predicted entities of each sentence, with offsets in code points."""
    predicted = [
        [Chunk(entity.label, entity.start, entity.end) for entity in prediction.entities] for prediction in predictions
    ]
    return [sentence.entities for sentence in examples], predicted


def encode_words(tokenizer: Tokenizer, examples: Sequence[TaggedSentence]) -> dict[str, Ids]:
    """Return the token ids of each word; [UNK] for words that the tokenizer reduces to nothing."""
    words = list(dict.fromkeys(word for sentence in examples for word in sentence.words))
    unknown = np.array([tokenizer.unk], np.int32)
    return {
        word: ids if len(ids) else unknown for word, ids in zip(words, tokenizer.encode_separately(words), strict=True)
    }
