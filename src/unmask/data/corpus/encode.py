"""Encoding of documents into the ids of their sentences: in several processes, in order, and in bounded memory.

Input: texts. Output: for each text its ids and the lengths of its sentences, in the same order, and the same for any
number of processes.

The reader divides documents into chunks, workers encode them, and the results are collected in the order of submission.
The number of pending chunks is limited, so a slow writer makes the reader wait. Workers are spawned, not forked, as
torch threads may be running in the main process.

Each worker first imports the main module, which is the user's script. A script that calls unmask at its top level would
do so in each worker again: there `refuse_unguarded` refuses it, and here the workers have ended before they began. The
function is in a file, not among the arguments of a worker: Python writes these to a pipe, and waits forever if there
are more than the pipe holds and the worker ends before it reads them.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unmask.data.corpus.manifest import INDEX, checksum
from unmask.data.text.sentences import cut_sentences
from unmask.data.tokenizers.counting import chunks
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.words import WordCache
from unmask.support.errors import UnmaskError, UserError
from unmask.support.messages import argument

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable by which Python does not import modules from the current folder."""

_GUARD = 'put the call under `if __name__ == "__main__":`, as each process that tokenizes imports the script'
_CHUNK = 1 << 18  # characters that are sent to a worker at a time
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_PAUSE = 0.2  # seconds after which a worker sees that the work has ended
_ENDED = "ended"  # file by which workers are told to exit
_UNDER_WAY = 4  # pending chunks per worker: enough that none is idle while a shard is written


class EncodedDocument(NamedTuple):
    """An encoded document, as it is sent from a worker to the writer.

    Attributes:
        ids: ids of all its tokens.
        lengths: int64: number of tokens per sentence; sentences without tokens are dropped.
        checksum: checksum of the document, as stored in the corpus.
    """

    ids: bytes
    lengths: bytes
    checksum: int


class DocumentEncoder:
    """Splits documents into sentences and encodes them, each with the space before it if tokens include it.

    Args:
        tokenizer: the tokenizer to encode with.
        dtype: data type of the ids.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self._words = WordCache(tokenizer, dtype)
        self._prefix = tokenizer.kind.word_prefix

    def __call__(self, texts: list[str]) -> list[EncodedDocument]:
        """Encode documents."""
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> EncodedDocument:
        sentences = [
            ids
            for number, (sentence, spaced) in enumerate(cut_sentences(text))
            if (ids := self._words.encode(self._prefix + sentence if number and spaced else sentence))
        ]
        ids = b"".join(sentences)
        sizes = [0, *map(len, sentences)]  # in bytes
        lengths = np.array(sizes, INDEX) // self._words.dtype.itemsize
        return EncodedDocument(
            ids, lengths[1:].tobytes(), checksum(np.frombuffer(ids, self._words.dtype), lengths.cumsum())
        )


def encode_documents(
    texts: Iterable[str], encoder: DocumentEncoder, workers: int
) -> Generator[EncodedDocument, None, None]:
    """Encode documents.

    Args:
        texts: the documents; a few chunks per worker are read ahead.
        encoder: the encoder, which is copied to each worker.
        workers: number of processes; with one, or if there is only one chunk, this process does the work.

    Yields:
        The encoded documents, in order.

    Raises:
        UserError: the workers ended before they began, as with a script that calls this at its top level.
        UnmaskError: a worker process was killed.
    """
    read = chunks(texts, _CHUNK)
    head = list(islice(read, workers))
    every = chain(head, read)
    done = map(encoder, every) if len(head) < 2 else map_in_processes(every, encoder, len(head))
    for documents in done:
        yield from documents


def refuse_unguarded() -> None:
    """Raise an error in a worker that is still importing the main module, before anything is computed there.

    Raises:
        UserError: the main module, a script, calls unmask at its top level.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # what multiprocessing itself refuses, later
        raise UserError("a process that the script has started runs the whole script again", remedy=_GUARD)


def map_in_processes(items: Iterable[_Item], function: Callable[[_Item], _Result], workers: int) -> Iterator[_Result]:
    """Yield what a function returns of each item, in order, computed in several processes.

    Args:
        items: the items; a few for each worker are read ahead.
        function: the function, which is copied to each worker.
        workers: number of processes.

    Raises:
        UserError: the workers ended before they began, as with a script that calls this at its top level.
        UnmaskError: a worker process was killed.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "function").write_bytes(pickle.dumps(function))
        with safe_path():  # it starts the process that keeps track of semaphores
            pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (folder,))
        pending: deque[Future[_Result]] = deque()
        try:
            for item in items:
                if len(pending) == workers * _UNDER_WAY:
                    yield pending.popleft().result()
                pending.append(_submit(pool, item))
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise _lost(has_begun=(folder / "begun").exists()) from error
        except BaseException:  # Ctrl-C, an error, or a caller that needs no more
            with suppress(OSError):
                (folder / _ENDED).touch()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _lost(*, has_begun: bool) -> UnmaskError:
    """Return the error for a worker that has ended, given whether any has begun."""
    if has_begun:
        return UnmaskError(f"a worker process was killed; if memory ran out, use fewer {argument('workers')}")
    return UserError(
        "the processes that tokenize ended before they began", remedy=f"in a script, {_GUARD}; or memory ran out"
    )


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
    """Submit an item, which may start a worker."""
    with _ignoring_interrupts(), safe_path():
        return pool.submit(_work, item)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let processes that are started inherit a signal mask by which they ignore Ctrl-C."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where workers handle Ctrl-C themselves
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def safe_path() -> Iterator[None]:
    """Keep Python processes that are started from importing modules in the current folder.

    A spawned worker runs `python -c`, which puts this folder before the standard library, so that a `pickle.py` in it
    would be executed.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


_function: Callable[[Any], Any]  # in a worker


def _start(folder: Path) -> None:
    """Initialize a worker: read the function from a folder, and leave word there that a worker has begun."""
    global _function
    threading.Thread(target=_exit_early, args=(folder / _ENDED,), daemon=True).start()
    _function = pickle.loads((folder / "function").read_bytes())
    (folder / "begun").touch()


def _exit_early(ended: Path) -> None:
    """Exit this worker when the main process is killed, or has ended the work, which its queue would not signal.

    Otherwise the main process would wait for all items that workers have been handed.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "this must run in a worker"
    while parent.is_alive() and not ended.exists():
        parent.join(_PAUSE)
    os._exit(1)


def _work(item: Any) -> Any:
    return _function(item)
