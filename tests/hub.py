"""A server that offers one model as the Hugging Face hub or a mirror of the hub does."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self


class Hub:
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

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

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
