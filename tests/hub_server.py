"""A server on this machine that speaks the part of the Hub's protocol that downloading and uploading need."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

import huggingface_hub.constants as constants
import pytest


class HubServer:
    """Repositories in memory.

    Attributes:
        repositories: files by path, by name of the repository; names of data sets begin with `datasets/`.
        gated: names of repositories that are refused.
        asked: paths of all requests.
        private: names of repositories that were created as private.
    """

    def __init__(self):
        self.repositories, self.gated, self.asked, self.private = {}, set(), [], set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": self}))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def commit(self, name):
        """Return the commit of a repository, which changes with its files."""
        return hashlib.sha1(repr(sorted(self.repositories[name].items())).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def _send(self, status, content=b"", **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = unquote(urlparse(self.path).path).strip("/")
        self.hub.asked.append(path)
        path = path.removeprefix("api/").removeprefix("models/")
        parts, length = path.split("/"), 3 if path.startswith("datasets/") else 2
        name, rest = "/".join(parts[:length]), parts[length:]
        files = self.hub.repositories.get(name)
        if name in self.hub.gated:
            return self._send(403, X_Error_Code="GatedRepo", X_Error_Message="restricted")
        if files is None:
            return self._send(404, X_Error_Code="RepoNotFound")
        commit = self.hub.commit(name)
        if rest[0] in ("revision", "tree", "resolve") and rest[1] not in ("main", commit):
            return self._send(404, X_Error_Code="RevisionNotFound")
        if rest[0] == "revision":
            return self._send(200, {"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]})
        if rest[0] == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in files.items()
            ]
            return self._send(200, listed, Content_Type="application/json")
        content = files["/".join(rest[2:])]
        return self._send(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit)

    do_HEAD = do_GET

    def do_POST(self):
        body = self._read()
        path = urlparse(self.path).path
        self.hub.asked.append(path.strip("/"))
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.hub.repositories.setdefault(name, {})
            if asked.get("private") or asked.get("visibility") == "private":
                self.hub.private.add(name)
            return self._send(200, {"url": f"{self.hub.url}/{name}"})
        if path == "/api/validate-yaml":
            return self._send(200, {"errors": [], "warnings": []})
        name = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if name in self.hub.gated:
            return self._send(403, {"error": "you may not write here"})
        if "/preupload/" in path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return self._send(200, {"files": files})
        for line in body.splitlines():
            operation = json.loads(line)
            if operation["key"] == "file":
                value = operation["value"]
                self.hub.repositories[name][value["path"]] = base64.b64decode(value["content"])
        commit = self.hub.commit(name)
        url = f"{self.hub.url}/{name}/commit/{commit}"
        return self._send(200, {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _read(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server and an empty cache in place of the Hub and the user's cache."""
    server = HubServer()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{")  # made of the address when it was imported
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "".join(template[1:]))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.chdir(tmp_path)
    yield server
    server.close()
