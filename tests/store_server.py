"""A web server on this machine that keeps files, and fails as it is told."""

import hashlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

from unmask.support import cache, stores


class StoreServer:
    """Files in memory.

    Attributes:
        files: contents by path.
        faults: what happens to the next requests for contents, in order: "500", "403", "cut", "slow", or "".
        lasting: a fault that all others have.
        ranges: whether parts of files can be asked for.
        sizes: whether sizes are stated.
        missing: the status of what is missing.
        asked: method, path and first byte of each request.
    """

    def __init__(self):
        self.files, self.faults, self.lasting, self.asked = {}, [], "", []
        self.ranges = self.sizes = True
        self.missing = 404
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"store": self}))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def bodies(self):
        """Return how many times contents were asked for."""
        return sum(method == "GET" for method, *_ in self.asked)

    def put(self, folder, name=""):
        """Keep the files of a directory."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.files["/".join(filter(None, (name, path.relative_to(folder).as_posix())))] = path.read_bytes()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        store, path = self.store, unquote(urlsplit(self.path).path).strip("/")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "") if store.ranges else None
        first = int(wanted[1]) if wanted else 0
        store.asked.append((self.command, path, first))
        fault = store.lasting
        if self.command == "GET" and store.faults:
            fault = store.faults.pop(0)
        if fault == "slow":
            time.sleep(0.3)
        if fault.isdecimal() or path not in store.files:
            self.send_response(int(fault or store.missing))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = store.files[path]
        body = content[first : int(wanted[2] or len(content)) + 1] if wanted else content
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes" if store.ranges else "none")
        if store.sizes:
            self.send_header("Content-Length", str(len(body)))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
        self.close_connection = True


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Yield a server; pauses before it is asked again are short, and the cache is empty."""
    monkeypatch.setattr(stores, "PAUSES", [0, 0])
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.SIZE, raising=False)
    server = StoreServer()
    yield server
    server.close()
