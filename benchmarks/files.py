"""What benchmarks make of the shared data first: excerpts, splits, moved questions, dialogues, rare labels."""

from __future__ import annotations

import json
import lzma
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import common
import msgspec
from dialogues import FORMS, held_out, write_made
from labelled import SST2, Labelled, every_paragraph, parted, read_texts

import unmask
from unmask.data.batches.rng import derive_rng
from unmask.data.corpus.corpus import Corpus
from unmask.data.labelled.labelled_file import TEXTS, read_rows
from unmask.data.labelled.question_files import Question, read_squad
from unmask.demo.documentation import documentation
from unmask.tasks import TASKS

WHOLE = 4
"""Number of words from which on a text of SST-2 that is part of no other one counts as a sentence."""
HELD = 1000
"""Number of sentences of SST-2's training set that are held out."""
MOVED = 3
"""One question in this many is moved to a passage without its answer."""
CHARACTERS = 100_000
"""Number of characters that are read at once of a file of which the start is needed."""


class MadeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is made; of `lines`, `blocks` and `make` one is given.

    Attributes:
        sources: files of the shared data that it is made of.
        lines: number of lines of an excerpt, or of training examples with a frequent label.
        blocks: number of blocks between blank lines, such as sentences of tagged files.
        make: "moved": a third of the questions are about passages without their answers; "texts", "sentences": the
            texts of examples, or the sentences of tagged files, one a line; "documentation": that of Python packages,
            without the paragraphs that "topics" holds out; "sst2": see `split_sst2`; "topics", "modules": see
            labelled.py; "rare": see `with_rare`; else a form of dialogues.py.
        label, each: the label that is made rare, and how many others there are for each example with it.
        held: whether it has what is held out of the data.
    """

    sources: tuple[str, ...] = msgspec.field(name="from")
    lines: int = 0
    blocks: int = 0
    make: str = ""
    label: str = ""
    each: int = 0
    held: bool = False

    def write(self, path: Path) -> None:
        """Write the file."""
        files = [common.SHARED / name for name in self.sources]
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.make == "moved":
            write_squad(path, move([*read_squad(files)]))
        elif self.make == "texts":
            examples = read_rows(files, columns={})
            write_lines(path, (one.values[name].strip() for one in examples for name in TEXTS if name in one.values))
        elif self.make == "sentences":
            write_lines(path, (" ".join(one.words) for one in TASKS["token-classification"]().read(files, columns={})))
        elif self.make == "documentation":
            held = {text for text, _ in parted("topics")[1]}
            texts = ("\n".join(line for line in text.split("\n") if line not in held) for text in documentation())
            write_lines(path, (json.dumps({"text": text}) for text in texts))
        elif self.make == "sst2":
            write_rows(path, split_sst2()[self.held])
        elif self.make in ("topics", "modules"):
            rows = parted(self.make)[self.held]
            write_rows(path, random.Random(0).sample(rows, len(rows)))  # an excerpt has many labels
        elif self.make in FORMS:
            *others, last = files
            rest, apart = held_out(read_squad([last]))
            write_made(self.make, path, apart if self.held else [*read_squad(others), *rest])
        elif self.make == "rare":
            rows = read_texts(*self.sources) if self.sources else every_paragraph()
            write_rows(path, with_rare(rows, self.label, self.each, self.lines)[self.held])
        else:
            excerpt(files[0], path, self.blocks or self.lines, blocks=bool(self.blocks))


def open_text(path: Path) -> TextIO:
    """Open a file of text, which may be compressed."""
    return lzma.open(path, "rt", encoding="utf8") if path.suffix == ".xz" else path.open(encoding="utf8")


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write lines."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    return path


def excerpt(source: Path, to: Path, amount: int, *, blocks: bool = False) -> Path:
    """Write the first lines of a file, or the first blocks between blank lines."""
    separator, text = "\n\n" if blocks else "\n", ""
    with open_text(source) as file:
        while text.count(separator) < amount and (more := file.read(CHARACTERS)):
            text += more
    parts = text.split(separator)[:amount]
    to.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(to, [separator.join(parts).rstrip("\n")])


def write_rows(path: Path, rows: Iterable[tuple[str, str]]) -> Path:
    """Write texts with labels."""
    return write_lines(path, ["text\tlabel", *(f"{text}\t{label}" for text, label in rows)])


def split_sst2(held: int = HELD) -> tuple[list[Labelled], list[Labelled]]:
    """Return texts of SST-2's training set with labels, in random order, to train on and to choose by.

    The set holds sentences and the phrases that they are made of: whole sentences are held out, and none of their
    phrases that is in no other sentence is trained on.
    """
    rows = read_texts(SST2)
    random.Random(0).shuffle(rows)
    sources = sources_of([text for text, _ in rows])
    apart = [row for row in rows if sources[row[0]] == [row[0]] and len(row[0].split()) >= WHOLE]
    apart = apart[: min(held, len(rows) // 4)]
    names = {text for text, _ in apart}
    return [row for row in rows if not names.issuperset(sources[row[0]])], apart


def with_rare(rows: Iterable[Labelled], label: str, each: int, train: int) -> tuple[list[Labelled], list[Labelled]]:
    """Return examples to train on and to test on; one label is rare in both, and comes first; others are "other".

    Args:
        rows: examples.
        label: the rare label.
        each: number of the others for each example with it.
        train: number of the others to train on.
    """
    shuffled = random.Random(0).sample(rows := list(dict.fromkeys(rows)), len(rows))
    rare = [row for row in shuffled if row[1] == label]
    others = [Labelled(text, "other") for text, of in shuffled if of != label]
    few, rest = train // each, others[train:]
    return rare[:few] + others[:train], rare[few:][: len(rest) // each] + rest


def sst2_files(examples: int, folder: Path) -> tuple[Path, Path]:
    """Write a number of texts of SST-2's training set to train on, and those to choose by."""
    train, held = split_sst2()
    return write_rows(folder / "train.tsv", train[:examples]), write_rows(folder / "held.tsv", held)


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


def move(questions: Sequence[Question]) -> list[Question]:
    """Return the questions, every third one about another passage, which contains none of its answers."""
    passages = list(dict.fromkeys(question.passage for question in questions))
    moved = []
    for number, question in enumerate(questions):
        if number % MOVED == 0:
            order = derive_rng(0, "benchmark", number).permutation(len(passages))
            texts = [answer.text.lower() for answer in question.answers]
            others = (passages[index] for index in order if passages[index] != question.passage)
            passage = next((text for text in others if not any(answer in text.lower() for answer in texts)), None)
            if passage is not None:  # an answer like "a" is in every passage
                question = Question(question.id, question.question, passage, impossible=True)
        moved.append(question)
    return moved


def write_squad(path: Path, questions: Iterable[Question]) -> Path:
    """Write questions in SQuAD's format, each passage once."""
    paragraphs: dict[str, list[dict[str, object]]] = {}
    for question in questions:
        answers = [{"text": answer.text, "answer_start": answer.start or 0} for answer in question.answers]
        record = {"id": question.id, "question": question.question, "answers": answers}
        paragraphs.setdefault(question.passage, []).append({**record, "is_impossible": question.impossible})
    content = [{"context": passage, "qas": records} for passage, records in paragraphs.items()]
    path.write_text(json.dumps({"data": [{"paragraphs": content}]}, ensure_ascii=False), encoding="utf8")
    return path


def english_text() -> list[Path]:
    """Return the files of English Wikipedia and news."""
    folder = common.SHARED / "text"
    return [*sorted(folder.glob("wikipedia/train-*.jsonl.xz")), folder / "wikinews/train.jsonl.xz"]


def english_corpus(folder: Path, vocabulary: int, *, lowercase: bool = True) -> Corpus:
    """Return the corpus of English Wikipedia and news in a folder, which is built where it is not.

    Args:
        folder: of the corpus.
        vocabulary: number of tokens.
        lowercase: whether the tokens are lowercase.
    """
    if not (folder / "corpus").exists():
        text = english_text()
        unmask.train_tokenizer(text, folder / "tokenizer", vocab_size=vocabulary, lowercase=lowercase)
        unmask.build_corpus(text, unmask.load_tokenizer(folder / "tokenizer"), folder / "corpus")
    return unmask.open_corpus(folder / "corpus")
