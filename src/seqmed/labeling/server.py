"""The server: one process, on the loopback unless other machines are allowed."""

from __future__ import annotations

import errno
import secrets
import socket
from typing import Any

import uvicorn

from seqmed.labeling.app import make_app
from seqmed.labeling.desk import Desk
from seqmed.labeling.events import LabelingError
from seqmed.labeling.guard import Guard

LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
# Bytes of the token, connections at once, largest head of a request, seconds to end.
TOKEN_BYTES, CONNECTIONS, LARGEST_HEAD, TIME_TO_END = 18, 256, 16_384, 1


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
