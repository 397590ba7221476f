"""The app: the page, its requests, and the live numbers as server-sent events."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from seqmed.labeling.desk import ConflictError, Desk
from seqmed.labeling.log import LabelingError, as_cells, line, to_json_lines

# Files of the page, with their types.
STATIC = {
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
}
# Seconds between two looks at the desk, for a card that is being chosen and for live numbers.
CARD_INTERVAL, STATUS_INTERVAL = 0.01, 0.2
# Longest wait for a card, and seconds between two signs of life, in seconds.
LONGEST_WAIT, SIGN_OF_LIFE = 10.0, 15.0
# Pages with live numbers at once.
FOLLOWERS = 64
# Largest body of a request in bytes. A label has at most 200 characters.
LARGEST_BODY = 16_384


def make_app(
    desk: Desk, token: str, is_ending: Callable[[], bool], *, debug: bool = False
) -> Starlette:
    """Return the app.

    Parameters
    ----------
    desk : the desk.
    token : first part of every path.
    is_ending : function that returns whether the server ends.
    debug : whether tracebacks of defects are printed.
    """
    pages = Pages(desk, is_ending)
    routes = [
        Route("/", pages.index),
        Route("/static/{name}", pages.static),
        Route("/join", pages.join, methods=["POST"]),
        Route("/act", pages.act, methods=["POST"]),
        Route("/cards", pages.cards),
        Route("/row", pages.row),
        Route("/status", pages.status),
        Route("/live", pages.live),
        Route("/history", pages.history),
        Route("/export/{name}", pages.export),
    ]

    async def failed(request: Request, error: Exception) -> Response:
        if debug:
            traceback.print_exception(error)
        return JSONResponse({"error": "a defect in seqmed: nothing was changed"}, 500)

    async def missing(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "there is nothing here"}, getattr(error, "status_code", 404))

    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        exception_handlers={
            ConflictError: refused(409),
            LabelingError: refused(422),
            OSError: no_room,
            404: missing,
            405: missing,
            Exception: failed,
        },
    )


def refused(status: int) -> Any:
    """Return a handler of errors in a request."""

    async def handler(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status)

    return handler


async def no_room(request: Request, error: Exception) -> Response:
    """Answer that an event could not be written; the path is not named."""
    reason = getattr(error, "strerror", None) or "the disk does not answer"
    return JSONResponse({"error": f"nothing was saved: {reason}. Free some space."}, 507)


class Pages:
    """The answers to requests."""

    def __init__(self, desk: Desk, is_ending: Callable[[], bool]):
        self._desk, self._is_ending = desk, is_ending
        self._followers = 0
        folder = files("seqmed.labeling") / "static"
        self._static = {name: (folder / name).read_bytes() for name in [*STATIC, "index.html"]}

    async def index(self, request: Request) -> Response:
        return Response(self._static["index.html"], media_type="text/html; charset=utf-8")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return JSONResponse({"error": "there is nothing here"}, 404)
        return Response(self._static[name], headers={"content-type": STATIC[name]})

    async def join(self, request: Request) -> Response:
        return JSONResponse(self._desk.join((await body(request)).get("name")))

    async def act(self, request: Request) -> Response:
        asked = await body(request)
        done = await run_in_threadpool(self._desk.act, asked)
        cards = await run_in_threadpool(self._desk.cards, asked["session"])
        return JSONResponse({**done, "cards": cards, "status": self._desk.status()})

    async def cards(self, request: Request) -> Response:
        """Return the cards in hand; wait while a round is being chosen."""
        session, end = request.query_params.get("session"), LONGEST_WAIT
        while (cards := await run_in_threadpool(self._desk.cards, session)) is None and end > 0:
            await asyncio.sleep(CARD_INTERVAL)
            end -= CARD_INTERVAL
        return JSONResponse({"cards": cards, "number": self._desk.session(session).number})

    async def row(self, request: Request) -> Response:
        query = request.query_params
        return JSONResponse(
            await run_in_threadpool(self._desk.whole_row, query.get("file"), query.get("row"))
        )

    async def status(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._desk.status))

    async def history(self, request: Request) -> Response:
        query = request.query_params
        start = query.get("start", "0")
        if not start.isdecimal() or len(start) > 9:
            raise LabelingError("start is not a number")
        found = await run_in_threadpool(
            self._desk.history, query.get("search", "")[:200], query.get("only", ""), int(start)
        )
        return JSONResponse(found)

    async def live(self, request: Request) -> Response:
        """Send the live numbers whenever they change."""
        if self._followers >= FOLLOWERS:
            raise ConflictError("too many pages are open: close one, and try again")
        return StreamingResponse(self._numbers(request), media_type="text/event-stream")

    async def _numbers(self, request: Request) -> AsyncIterator[bytes]:
        self._followers += 1
        try:
            before, silence = None, 0.0
            while not self._is_ending() and not await request.is_disconnected():
                version = self._desk.version
                if version != before:
                    before, silence = version, 0.0
                    status = await run_in_threadpool(self._desk.status)
                    yield b"event: status\ndata: " + json.dumps(status).encode() + b"\n\n"
                elif silence >= SIGN_OF_LIFE:
                    silence = 0.0
                    yield b": still here\n\n"
                await asyncio.sleep(STATUS_INTERVAL)
                silence += STATUS_INTERVAL
        finally:
            self._followers -= 1

    async def export(self, request: Request) -> Response:
        """Return a file to download."""
        name, desk = request.path_params["name"], self._desk
        if name == "labels.csv":
            content, kind = desk.labels(), "text/csv; charset=utf-8"
        elif name == "log.csv":
            lines = [line(desk.log.header), *(line(as_cells(each)) for each in desk.log.events)]
            content, kind = b"".join(lines), "text/csv; charset=utf-8"
        elif name == "log.jsonl":
            content = b"".join(to_json_lines(list(desk.log.events)))
            kind = "application/x-ndjson"
        else:
            return JSONResponse({"error": "there is nothing here"}, 404)
        headers = {"content-type": kind, "content-disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers)


async def body(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request; refuse anything else."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise LabelingError("expected a request of type application/json")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LARGEST_BODY:
            raise LabelingError(f"the request is larger than {LARGEST_BODY} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LabelingError("expected a JSON object")
    return found
