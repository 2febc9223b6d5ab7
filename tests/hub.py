"""Servers that do as the Hugging Face hub, or a mirror of the hub: one offers a model, one takes what is pushed."""

import base64
import hashlib
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from upstream import Served, Server


class Hub(Served):
    """Serves the files of a folder as a model at a revision: `with Hub(...) as hub`."""

    def __init__(self, model: str, revision: str, folder: Path) -> None:
        self.model, self.revision = model, revision
        self.files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self.refused: tuple[int, str] | None = None  # status and reason with which files are refused
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            do_HEAD = do_GET  # noqa: N815 (the name is that of http.server)

            def log_message(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Respond to a request for the list of files at a revision, or for one of the files."""
        path = request.path.partition("?")[0]
        listing, files = f"/api/models/{self.model}", f"/{self.model}/resolve/{self.revision}/"
        name = path.removeprefix(files)
        status, body, headers = 404, b"", {"X-Error-Code": "EntryNotFound"}
        if self.refused and self.refused[1] != "GatedRepo":
            status, headers = self.refused[0], {"X-Error-Code": self.refused[1]}
        elif path == f"{listing}/revision/{self.revision}":
            siblings = [{"rfilename": file} for file in self.files]
            status, headers = 200, {}
            body = json.dumps({"id": self.model, "sha": self.revision, "siblings": siblings}).encode()
        elif path == f"{listing}/tree/{self.revision}":
            status, headers = 200, {}
            body = json.dumps(
                [
                    {"type": "file", "path": file, "size": len(text), "oid": hashlib.sha1(text).hexdigest()}
                    for file, text in self.files.items()
                ]
            ).encode()
        elif path.startswith(files) and self.refused:
            status, headers = self.refused[0], {"X-Error-Code": self.refused[1]}
        elif path.startswith(files) and name in self.files:
            status, body = 200, self.files[name]
            headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": self.revision}
            self.fetched += [name] if request.command == "GET" else []
        request.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(header, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)


class PushedTo(Served):
    """Takes what is pushed to repositories, as the Hugging Face hub does: `with PushedTo(token) as hub`."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, dict[str, bytes]] = {}  # by repository, with the folder of its kind, and name
        self._stored: dict[str, bytes] = {}  # large files by SHA-256
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                allowed = self.command == "PUT" or self.headers["Authorization"] == f"Bearer {hub.token}"
                status, answer = (200, hub.answer(self.path, body)) if allowed else (401, {"error": "Invalid token"})
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_PUT = do_POST  # noqa: N815 (the name is that of http.server)

            def log_message(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """Return the response to a request; large are files of weights and of data."""
        if path.startswith("/stored/"):
            self._stored[path.removeprefix("/stored/")] = body
            return {}
        lines = [json.loads(line) for line in body.splitlines()]
        if path == "/api/repos/create":
            self.created += lines
            return {"url": f"{self.url}/{lines[0].get('organization')}/{lines[0]['name']}"}
        if path.endswith("/preupload/main"):
            large = (".safetensors", ".parquet", ".gguf")
            modes = {one["path"]: "lfs" if one["path"].endswith(large) else "regular" for one in lines[0]["files"]}
            return {"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]}
        if path.endswith("/objects/batch"):
            wanted = [
                one | {"actions": {"upload": {"href": f"{self.url}/stored/{one['oid']}"}}}
                for one in lines[0]["objects"]
            ]
            return {"transfer": "basic", "objects": wanted}
        if path.endswith("/commit/main"):
            repository = path.removeprefix("/api/").removesuffix("/commit/main")
            files = self.files.setdefault(repository, {})
            for line in lines:
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self._stored[value["oid"]]
            return {"commitUrl": f"{self.url}/{repository.removeprefix('models/')}/commit/0", "commitOid": "0" * 40}
        return {}  # the check of a card's head
