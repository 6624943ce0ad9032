"""Documents to the ids of their sentences: in several processes, in order, in bounded memory.

In: texts. Out: for each, its ids and how long its sentences are, in the same order and the same for any number of
processes.

The reader makes chunks of documents, workers encode them, and what they give is taken in the order in which it was
asked for. Only so many chunks are under way at once: a writer that is slow makes the reader wait. Workers are spawned,
not forked, because torch's threads may live in the process that builds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from unmask.corpus.manifest import INDEX, checksum
from unmask.errors import UnmaskError
from unmask.text.sentences import cut_sentences
from unmask.tokenizers.tokenizer import Tokenizer
from unmask.tokenizers.word_cache import WordCache

_CHUNK = 1 << 18  # characters that go to a worker at once
_UNDER_WAY = 4  # chunks for each worker: enough that none waits while a shard is written


class Encoded(NamedTuple):
    """A document, as it is sent from worker to writer.

    Attributes:
        ids: of all its tokens.
        lengths: int64: how many tokens each sentence has; sentences without any are left out.
        checksum: of the document, as it lies in the corpus.
    """

    ids: bytes
    lengths: bytes
    checksum: int


class Encoder:
    """Cuts documents into sentences and encodes these, with the space before each where the vocabulary has words so.

    Args:
        tokenizer: gives the ids.
        dtype: of the ids.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        self._words = WordCache(tokenizer, dtype)
        self._prefix = tokenizer.kind.word_prefix

    def __call__(self, texts: list[str]) -> list[Encoded]:
        """Encode documents."""
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Encoded:
        sentences = [
            ids
            for number, (sentence, spaced) in enumerate(cut_sentences(text))
            if (ids := self._words.encode(self._prefix + sentence if number and spaced else sentence))
        ]
        ids = b"".join(sentences)
        sizes = [0, *map(len, sentences)]  # in bytes
        lengths = np.array(sizes, INDEX) // self._words.dtype.itemsize
        return Encoded(ids, lengths[1:].tobytes(), checksum(np.frombuffer(ids, self._words.dtype), lengths.cumsum()))


def encode_documents(texts: Iterable[str], encoder: Encoder, workers: int) -> Generator[Encoded, None, None]:
    """Encode documents.

    Args:
        texts: the documents; read ahead by a few chunks of each worker.
        encoder: is copied to each worker.
        workers: how many processes; with one, or where there is work for one only, this one does it.

    Yields:
        What becomes of each document, in order.

    Raises:
        UnmaskError: a worker was killed.
    """
    chunks = _chunks(texts)
    head = list(islice(chunks, workers))
    chunks = chain(head, chunks)
    done = map(encoder, chunks) if len(head) < 2 else _in_processes(chunks, encoder, len(head))
    for documents in done:
        yield from documents


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _in_processes(chunks: Iterable[list[str]], encoder: Encoder, workers: int) -> Iterator[list[Encoded]]:
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (encoder,))
    pending: deque[Future[list[Encoded]]] = deque()
    try:
        for chunk in chunks:
            if len(pending) == workers * _UNDER_WAY:
                yield pending.popleft().result()
            pending.append(_submit(pool, chunk))
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UnmaskError("a worker was killed; if memory was short, take fewer --workers") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, chunk: list[str]) -> Future[list[Encoded]]:
    """Give a chunk to a worker, which may be started for it and then inherits that Ctrl-C is not for it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where workers look out for Ctrl-C themselves
        return pool.submit(_work, chunk)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_work, chunk)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_encode: Callable[[list[str]], list[Encoded]]  # in a worker


def _start(encoder: Encoder) -> None:
    """Prepare a worker."""
    global _encode
    _encode = encoder
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this worker when the process that builds is killed, of which its queue would not tell."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a worker"
    parent.join()
    os._exit(1)


def _work(chunk: list[str]) -> list[Encoded]:
    return _encode(chunk)
