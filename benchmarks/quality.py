"""Helpers of pretrain.py and finetune.py: where files and results are, splits and excerpts of data, toy size."""

from __future__ import annotations

import io
import json
import lzma
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import common
import msgspec

import unmask
from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.question_files import Answer, Question, read_squad
from unmask.data.labelled.tagged_file import read_sentences, write_columns
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.recipes.recipe import Recipe
from unmask.support.settings import parse_overrides
from unmask.support.settings import write as write_recipe

ROOT = common.HERE.parent
WHOLE = 4
"""Number of words from which on a text of SST-2 that is part of no other one counts as a sentence."""
MOVED = 3
"""One question in this many is moved to a passage without its answer."""
TOY_BODY: dict[str, Any] = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "positions": 1024}
TOY_BODY |= {"cells": 64, "filters": ((3, 32),)}
TOY_PRETRAINING = ("batch.tokens=256", "budget.steps=2")
TOY_STREAMS = ("layout.streams=8", "batch.sequences=8", "budget.steps=2")
TOY_FINETUNING = ("batch.sequences=4", "budget.steps=2")
TOY_ROWS, TOY_DOCUMENTS, TOY_CHARACTERS, TOY_PASSAGES = 80, 60, 250, 28
"""Of an excerpt: rows or sentences of a file, documents and characters of each, passages with their questions."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a TOML file."""


@dataclass(frozen=True)
class Workspace:
    """Where a call reads and writes.

    Attributes:
        runs: folder of run directories.
        toy: whether to work at toy size.
    """

    runs: Path
    toy: bool = False

    def files(self, names: Sequence[str]) -> list[Path]:
        """Return files of the shared data (or "src/…" of the repository); at toy size an excerpt of the first one."""
        if self.toy:
            return [self._excerpt(name) for name in names[:1]]
        bases = [(ROOT if name.startswith("src/") else common.SHARED, name) for name in names]
        return [path for base, name in bases for path in sorted(base.glob(name)) or [base / name]]

    def recipe(self, name: str, settings: Sequence[str]) -> Recipe:
        """Return a recipe with settings put over it; at toy size with a tiny body, small steps and a tiny budget."""
        recipe = unmask.read_recipe(name, parse_overrides(settings))
        if not self.toy:
            return recipe
        small = TOY_STREAMS if recipe.layout.num_streams else TOY_PRETRAINING
        recipe = unmask.read_recipe(name, parse_overrides([*settings, *small]))
        return msgspec.structs.replace(recipe, encoder=toy_body(recipe.encoder))

    def random(self, name: str) -> str:
        """Return the MODEL that is a recipe's body with random weights."""
        if not self.toy:
            return f"random:{name}"
        path = self.runs / f"random-{name}.toml"
        path.write_text(write_recipe(self.recipe(name, ())), encoding="utf8")
        return f"random:{path}"

    def find(self, result: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the record of a run, if there is one; `set` and `choosing`, which few records have, must agree too."""
        key = {"set": [], "choosing": False, **key}
        runs = common.read(common.RESULTS / f"{result}.json").get("runs", [])
        return next((run for run in runs if key.items() <= {"set": [], "choosing": False, **run}.items()), None)

    def _excerpt(self, name: str) -> Path:
        name = name.replace("*", "0")
        source = (ROOT if name.startswith("src/") else common.SHARED) / name
        path = self.runs / "excerpts" / name.removesuffix(".xz").replace("/", "-")
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        if ".json" in path.suffixes:
            questions = [*read_squad([source])] if source.exists() else list(_made_up_questions())
            return write_squad(path, limit(questions, TOY_PASSAGES))
        if not source.exists():
            path.write_text(_made_up(name), encoding="utf8")
            return path
        with _opened(source) as file:
            if name.startswith("ner/"):
                text = "\n\n".join(file.read().split("\n\n")[:TOY_ROWS]) + "\n\n"
            elif name.startswith("text/"):
                text = "".join(map(_shortened, islice(file, TOY_DOCUMENTS)))
            else:
                text = "".join(islice(file, TOY_ROWS))
        path.write_text(text, encoding="utf8")
        return path


@contextmanager
def workspace(runs: Path | None, *, toy: bool) -> Iterator[Workspace]:
    """Yield where to work; at toy size nothing is left behind, and nothing is added to benchmarks/results."""
    if not toy:
        yield Workspace(runs or Path("runs"))
        return
    results = common.RESULTS
    with tempfile.TemporaryDirectory() as name:
        folder = runs or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            common.RESULTS = folder / "results"
            yield Workspace(folder, toy=True)
        finally:
            common.RESULTS = results


def pick(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return some of the values; "a=b" is the value b under the name a. What there is none of is left out."""
    pairs = [(name.partition("=")[0], name.rpartition("=")[2]) for name in names]
    return {name: values[source] for name, source in pairs if source in values}


def toy_body(body: Any) -> Any:
    """Return the settings of an encoder of one narrow layer of the same family."""
    known = {field.name for field in msgspec.structs.fields(body)}
    small = {name: value for name, value in TOY_BODY.items() if name in known}
    if "embedding" in known:
        small["embedding"] = TOY_BODY["width"] if body.embedding == body.width else TOY_BODY["width"] // 2
    return msgspec.structs.replace(body, **small)


SPLITS: dict[str, tuple[str, dict[str, str], int]] = {
    "reviews": ("src/unmask/demo/reviews/train.tsv", {}, 150),
    "sst2": ("classification/sst2/train.tsv.xz", {}, 1000),
    "cola": ("classification/cola/in_domain_train.tsv", {"text": "3", "label": "1"}, 1500),
}
"""Training sets that are split: their file, its columns, and the number of examples that are held out."""


def split(name: str, examples: int, folder: Path, work: Workspace | None = None) -> tuple[Path, Path]:
    """Write a seeded split of a training set as two files, to train on and to choose by.

    SST-2's training set holds sentences and the phrases that they are made of: its split holds whole sentences out, and
    none of their phrases that is in no other sentence is trained on.
    """
    file, columns, dev = SPLITS[name]
    files = (work or Workspace(Path())).files([file])
    rows = [(row.values["text"].strip(), row.values["label"]) for row in read_rows(files, columns=columns)]
    random.Random(0).shuffle(rows)
    dev = min(dev, len(rows) // 4)
    train, held = rows[dev:], rows[:dev]
    if name == "sst2":
        sources = sources_of([text for text, _ in rows])
        held = [row for row in rows if sources[row[0]] == [row[0]] and len(row[0].split()) >= WHOLE][:dev]
        apart = {text for text, _ in held}
        train = [row for row in rows if not apart.issuperset(sources[row[0]])]
    written = folder / f"{name}-train.tsv", folder / f"{name}-dev.tsv"
    for path, part in zip(written, (train[:examples], held), strict=True):
        lines = [f"{text}\t{label}\n" for text, label in part]
        path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
    return written


def sample(source: Path, examples: int, to: Path) -> Path:
    """Write this many training examples, the same for every run."""
    with _opened(source) as file:
        header, *lines = file.read().splitlines()
    random.Random(0).shuffle(lines)
    to.write_text("\n".join([header, *lines[:examples]]) + "\n", encoding="utf8")
    return to


def excerpt(source: Path, to: Path, *, each: int = 1, most: int | None = None) -> Path:
    """Write one sentence in `each` of a file, and at most `most` of them."""
    return _write_sentences(to, read_sentences([source], columns={})[::each][:most])


def split_sentences(source: Path, folder: Path) -> tuple[Path, Path]:
    """Write the sentences of a file as two files, to train on and, its last tenth, to choose by.

    The last tenth has other documents, whose names are not those that were trained on.
    """
    sentences = read_sentences([source], columns={})
    most = len(sentences) - len(sentences) // 10
    train = _write_sentences(folder / "train.conll", sentences[:most])
    return train, _write_sentences(folder / "held.conll", sentences[most:])


def _write_sentences(path: Path, sentences: Sequence[TaggedSentence]) -> Path:
    path.write_text("".join(write_columns(sentence, sentence.tags) for sentence in sentences), encoding="utf8")
    return path


def move(questions: list[Question]) -> list[Question]:
    """Return the questions, every third one about another passage, which contains none of its answers."""
    passages = list(dict.fromkeys(question.passage for question in questions))
    moved = []
    for number, question in enumerate(questions):
        if number % MOVED == 0:
            order = derive_rng(0, "benchmark", number).permutation(len(passages))
            texts = [answer.text.lower() for answer in question.answers]
            other = (passages[index] for index in order if passages[index] != question.passage)
            passage = next((text for text in other if not any(answer in text.lower() for answer in texts)), None)
            if passage is not None:  # an answer like "a" is in every passage
                question = Question(question.id, question.question, passage, impossible=True)
        moved.append(question)
    return moved


def limit(questions: Sequence[Question], passages: int) -> list[Question]:
    """Return the questions about the first passages."""
    chosen = set(list(dict.fromkeys(question.passage for question in questions))[:passages])
    return [question for question in questions if question.passage in chosen]


def write_squad(path: Path, questions: Sequence[Question]) -> Path:
    """Write questions in SQuAD's format, each passage once."""
    paragraphs: dict[str, list[dict[str, object]]] = {}
    for question in questions:
        answers = [{"text": answer.text, "answer_start": answer.start or 0} for answer in question.answers]
        record = {"id": question.id, "question": question.question, "answers": answers}
        paragraphs.setdefault(question.passage, []).append({**record, "is_impossible": question.impossible})
    content = [{"context": passage, "qas": records} for passage, records in paragraphs.items()]
    path.write_text(json.dumps({"data": [{"paragraphs": content}]}, ensure_ascii=False), encoding="utf8")
    return path


def _opened(path: Path) -> TextIO:
    return io.TextIOWrapper(lzma.open(path) if path.suffix == ".xz" else path.open("rb"), encoding="utf8")


def sources_of(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return for each text the longest ones that it is a part of; itself if it is a part of no other."""
    sources: dict[str, list[str]] = {}
    by_word: dict[str, list[str]] = defaultdict(list)
    for text in sorted(set(texts), key=len, reverse=True):
        words = set(text.split())
        candidates = min((by_word[word] for word in words), key=len, default=[])
        sources[text] = [longer for longer in candidates if f" {text} " in f" {longer} "] or [text]
        if sources[text] == [text]:
            for word in words:
                by_word[word].append(text)
    return sources


def _shortened(line: str) -> str:
    return json.dumps({"text": json.loads(line)["text"][:TOY_CHARACTERS]}, ensure_ascii=False) + "\n"


WORDS = "the old dog sees a river near our house and she finds many small gardens there while rain falls on it".split()  # noqa: SIM905
MADE_UP = {
    "text/": ("", '{{"text": "{long}. {text}. {other}. {long}."}}'),
    "cola": ("", "x\t{binary}\t\t{text}"),
    "sick": (
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
        "{n}\t{text}\t{other}\t{binary}.5\t{word}",
    ),
    "rte": ("sentence1\tsentence2\tlabel\tidx\n", "{text}\t{other}\t{binary}\t{n}"),
    "snli": ("", '{{"gold_label": "{word}", "sentence1": "{text}", "sentence2": "{other}"}}'),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "{binary}\t{n}\t{n}\t{text}\t{other}"),
    "bmes": ("", "{binary} B-NAME\n{n} E-NAME\nx O\n"),
    "ner/": ("", "{n} CD O I-PER\nruns VB O O\nBerlin NN O I-LOC\n"),
    "": ("text\tlabel\n", "{long}\t{binary}"),
}
"""Headers and rows in the formats of the data sets, by a part of the file's path: used where these are missing."""


def _made_up(name: str) -> str:
    head, row = next(pattern for part, pattern in MADE_UP.items() if part in name)
    rng = random.Random(name)
    lines = [head]
    for number in range(TOY_ROWS):
        texts = {"long": 18, "text": 6, "other": 5}
        values = {key: " ".join(rng.choices(WORDS, k=length)) for key, length in texts.items()}
        labels = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
        lines.append(row.format(n=number, binary=number % 2, word=labels[number % 3], **values) + "\n")
    return "".join(lines)


def _made_up_questions() -> Iterator[Question]:
    for number in range(2 * TOY_PASSAGES):
        year = "" if number // 8 % 2 else f" in {1900 + number // 2}"
        passage = f"The dog Rex{number // 2:02} sees Avon{number // 2 + 500} near a house{year}."
        text = passage.split()[2 + 2 * (number % 2)]
        yield Question(str(number), f"Which {number % 2} is it?", passage, (Answer(text, passage.index(text)),))
