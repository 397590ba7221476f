"""The server: one process, on the loopback unless other machines are allowed, behind a guard.

The guard checks every request before the app sees it, and sets the headers of every answer. The
address has a random token, which pages of other sites do not know. The Host must be an address
of this machine, so that a foreign name that points to it (DNS rebinding) is refused. The Origin of
a request must be the page itself, so that other sites cannot post. Rates and sizes are limited.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from seqmed.labeling.app import LARGEST_BODY, make_app
from seqmed.labeling.desk import Desk
from seqmed.labeling.log import LabelingError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
# Bytes of the token, connections at once, largest head of a request, seconds to end.
TOKEN_BYTES, CONNECTIONS, LARGEST_HEAD, TIME_TO_END = 18, 256, 16_384, 1
# Requests per second, and requests at once, of all pages: all kinds, and those that change labels.
ALL, CHANGES = (200.0, 400.0), (40.0, 80.0)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
]


class Server:
    """A server of the page of a desk.

    Parameters
    ----------
    desk : the desk.
    port : port; 0 for any that is free.
    remote : whether other machines may connect.
    debug : whether tracebacks of defects are printed.

    Attributes
    ----------
    address : address of the page, with its token.
    """

    def __init__(self, desk: Desk, *, port: int = 0, remote: bool = False, debug: bool = False):
        self._socket = bound(EVERYWHERE if remote else LOOPBACK, port)
        number = int(self._socket.getsockname()[1])
        names = ("localhost", *((socket.gethostname(), socket.getfqdn()) if remote else ()))
        host = socket.gethostname() if remote else LOOPBACK
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self.address = f"http://{host}:{number}/{token}/"
        app = make_app(desk, token, lambda: self._server.should_exit, debug=debug)
        guard: Any = Guard(app, token, number, names, remote=remote)
        config = uvicorn.Config(
            guard,
            access_log=False,
            log_level="critical",
            lifespan="off",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=TIME_TO_END,
            h11_max_incomplete_event_size=LARGEST_HEAD,
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


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(CONNECTIONS)  # so that a browser may connect before the server runs
    except OSError as error:
        made.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            reason = "in use" if error.errno == errno.EADDRINUSE else "not allowed"
            raise LabelingError(
                f"port {port} is {reason}: choose another with --port, or leave the option out."
            ) from None
        raise
    return made


# -- the guard -------------------------------------------------------------------------------------


class Bucket:
    """A limit of a rate.

    Parameters
    ----------
    rate : requests per second.
    most : requests at once.
    """

    def __init__(self, rate: float, most: float):
        self._rate, self._most, self._left = rate, most, most
        self._last = time.monotonic()

    def take(self) -> bool:
        """Count a request; return whether it is within the limit."""
        now = time.monotonic()
        self._left = min(self._most, self._left + self._rate * (now - self._last))
        self._last = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Guard:
    """An ASGI app that passes on the requests that are allowed.

    Parameters
    ----------
    app : the app behind it.
    token : first part of every path.
    port : port of the server.
    names : names of this machine, without port, that are accepted besides IP addresses.
    remote : whether other machines may connect; if not, the IP address must be of the loopback.
    """

    def __init__(self, app: App, token: str, port: int, names: tuple[str, ...], *, remote: bool):
        self._app, self._token, self._port = app, token.encode(), port
        self._names, self._remote = {name.lower() for name in names}, remote
        self._all, self._changes = Bucket(*ALL), Bucket(*CHANGES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return  # websockets are closed

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in HEADERS}
                others = [pair for pair in message.get("headers", []) if pair[0].lower() not in own]
                message = {**message, "headers": [*others, *HEADERS]}
            await send(message)

        status, reason = self.verdict(scope)
        if status:
            await refuse(send_with_headers, status, reason)
        else:
            await self._app(scope, receive, send_with_headers)

    def verdict(self, scope: Scope) -> tuple[int, str]:
        """Return the status code and the reason of a refusal; 0 if the request is allowed."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        host = headers.get(b"host", [])
        if len(host) != 1 or not self.is_own(host[0].decode("latin-1")):
            return 421, "this address is not served here: use the address that the command printed"
        token = scope["path"].encode("utf-8", "replace").split(b"/", 2)[1:2]
        if not token or not hmac.compare_digest(token[0], self._token):
            return 403, "the token of the address is wrong: use the address the command printed"
        changing = scope["method"] not in ("GET", "HEAD")
        origin = headers.get(b"origin", [])
        expected = b"http://" + host[0]
        if (changing and not origin) or any(each != expected for each in origin):
            return 403, "requests of other sites are refused"
        if any(
            each not in (b"same-origin", b"none") for each in headers.get(b"sec-fetch-site", [])
        ):
            return 403, "requests of other sites are refused"
        # counted after the token is checked, so that strangers cannot use up the limit
        if not self._all.take() or (changing and not self._changes.take()):
            return 429, "too many requests: wait a moment"
        length = headers.get(b"content-length", [b"0"])
        if any(not each.isdigit() or int(each[:20]) > LARGEST_BODY for each in length):
            return 413, f"the request is larger than {LARGEST_BODY} bytes"
        return 0, ""

    def is_own(self, host: str) -> bool:
        """Whether a Host is this server."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").lower(), parts.port or 80
        except ValueError:
            return False
        if port != self._port or parts.netloc != host or parts.username is not None:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._remote or address.is_loopback


async def refuse(send: Send, status: int, reason: str) -> None:
    """Send a refusal."""
    body = json.dumps({"error": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the body of the request is not read
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
