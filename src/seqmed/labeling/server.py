"""The server: one process, on the loopback unless other machines are allowed, behind a guard.

The guard checks every request before the app sees it, and sets the headers of every answer. The
address has a random token, which pages of other sites do not know. The Host must be this server, so
that a foreign name that points to it (DNS rebinding) is refused. The Origin of a request must be
the page itself, so that other sites cannot post. Bodies are limited in size.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import mimetypes
import secrets
import socket
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqmed.labeling.desk import ConflictError, Desk
from seqmed.labeling.log import LabelingError

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
# Bytes of the token, and of the largest body; a label has at most 200 characters. Seconds to end.
TOKEN_BYTES, LARGEST_BODY, TIME_TO_END = 18, 16_384, 1
STATIC = Path(__file__).with_name("static")
mimetypes.add_type("text/javascript", ".js")  # whatever this machine says

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Server:
    """A server of the page of a desk. All requests are handled in the thread that runs it.

    Port 0 is any that is free. Other machines may connect if ``remote`` is set. The ``address`` of
    the page has its token.
    """

    def __init__(self, desk: Desk, *, port: int = 0, remote: bool = False):
        self._desk = desk
        self._socket = bound(EVERYWHERE if remote else LOOPBACK, port)
        number = int(self._socket.getsockname()[1])
        names = (socket.gethostname(), socket.getfqdn()) if remote else (LOOPBACK,)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self.address = f"http://{names[0]}:{number}/{token}/"
        routes = [
            Route("/join", self._join, methods=["POST"]),
            Route("/act", self._act, methods=["POST"]),
            Route("/cards", self._cards),
            Route("/status", self._status),
            Route("/history", self._history),
            Route("/row", self._row),
            Route("/explanation", self._explanation),
            Route("/labels.csv", self._labels),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ]
        errors = (HTTPException, LabelingError, OSError, Exception)
        app = Starlette(
            routes=[Mount(f"/{token}", routes=routes)],
            exception_handlers=dict.fromkeys(errors, refused),
        )
        config = uvicorn.Config(
            Guard(app, token, number, ("localhost", *names), remote=remote),
            access_log=False,
            log_level="error",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=TIME_TO_END,
            proxy_headers=False,
            http="h11",
            ws="none",
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until the process is told to end."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True

    # -- requests ----------------------------------------------------------------------------------

    async def _join(self, request: Request) -> Response:
        return JSONResponse(self._desk.join((await body_of(request)).get("name")))

    async def _act(self, request: Request) -> Response:
        return JSONResponse(self._desk.act(await body_of(request)))

    async def _cards(self, request: Request) -> Response:
        return JSONResponse(self._desk.cards(request.query_params.get("session")))

    async def _status(self, request: Request) -> Response:
        return JSONResponse(self._desk.page.status())

    async def _history(self, request: Request) -> Response:
        query = request.query_params
        search, only = query.get("search", "")[:200], query.get("only", "")
        return JSONResponse(self._desk.page.history(search, only, number_in(request, "start")))

    async def _row(self, request: Request) -> Response:
        key = self._desk.key_of(request.query_params.get("file"), number_in(request, "row"))
        return JSONResponse(self._desk.page.whole_row(key))

    async def _explanation(self, request: Request) -> Response:
        key = self._desk.key_of(request.query_params.get("file"), number_in(request, "row"))
        explain = self._desk.page.explanation(key)
        return JSONResponse(await run_in_threadpool(explain))  # other requests do not wait for it

    async def _labels(self, request: Request) -> Response:
        return Response(self._desk.labels(), media_type="text/csv")


def number_in(request: Request, name: str) -> int:
    """Return a number in the address of a request; 0 without one."""
    text = request.query_params.get(name, "0")
    if not text.isdecimal() or len(text) > 18:
        raise LabelingError(f"{name} is not a number")
    return int(text)


async def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request; refuse anything else."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LARGEST_BODY:  # the rest is not read
            text = f"the request is larger than {LARGEST_BODY} bytes"
            raise HTTPException(413, text, {"connection": "close"})
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LabelingError("expected a JSON object")
    return found


async def refused(request: Request, error: Exception) -> Response:
    """Answer a request that is refused or has failed. No answer names a path."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    status, text = 500, "a defect in seqmed: nothing was changed"
    if isinstance(error, LabelingError):
        status, text = 409 if isinstance(error, ConflictError) else 422, str(error)
    elif isinstance(error, OSError):
        reason = error.strerror or "the disk does not answer"
        status, text = 507, f"nothing was saved: {reason}. Free some space."
    return JSONResponse({"error": text}, status)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen()  # so that a browser may connect before the server runs
    except OSError as error:
        made.close()
        raise LabelingError(
            f"port {port} cannot be used ({error.strerror}): choose another with --port, or leave "
            "the option out."
        ) from None
    return made


# -- the guard -------------------------------------------------------------------------------------


class Guard:
    """An ASGI app that passes on the requests that are allowed.

    The token is the first part of every path. The names and addresses of this machine have no port.
    If other machines may connect (``remote``), any IP address may be that of this machine.
    """

    def __init__(
        self, app: ASGIApp, token: str, port: int, names: tuple[str, ...], *, remote: bool
    ):
        self._app, self._token, self._port = app, token.encode(), str(port)
        self._names, self._remote = {name.lower() for name in names}, remote

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self.refusal(scope) or self._app
        await app(scope, receive, send_with_headers)

    def refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not allowed; None if it is allowed."""
        headers = Headers(scope=scope)
        host, origins = headers.get("host", ""), set(headers.getlist("origin"))
        token = scope["path"].encode("utf-8", "replace").split(b"/")[1:2]
        if not self.is_own(host):
            status, text = 421, "this address is not served here: use the one the command printed"
        elif not hmac.compare_digest(b"".join(token), self._token):
            status, text = 403, "the token is wrong: use the address that the command printed"
        elif origins - {f"http://{host}"} or (
            scope["method"] not in ("GET", "HEAD") and not origins
        ):
            status, text = 403, "requests of other sites are refused"
        else:
            return None
        # the body of the request is not read
        return JSONResponse({"error": text}, status, {"connection": "close"})

    def is_own(self, host: str) -> bool:
        """Whether a Host is this server."""
        name, _, port = host.lower().partition(":")
        if (port or "80") != self._port:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.IPv4Address(name)
        except ValueError:
            return False
        return self._remote
