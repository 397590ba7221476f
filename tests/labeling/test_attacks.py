"""Attacked requests to the labeling server, drawn at random: refused, and nothing changes.

A request of the page is damaged in one place: its address, its headers, its body, or its bytes on
the wire. The server refuses it with a reason, or answers a question that changes nothing. It never
names a path, never fails, and serves the next person.
"""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest

from tests.support.labeling import Site, clouds

ATTACKED = 300
TABLE, TRUTH = clouds(60)
REFUSED = {400, 403, 404, 405, 409, 411, 413, 414, 421, 422, 431, 501, 505}
ODD = (
    None, True, -1, 0, 2**70, 1.5, "", "x\ny", "\x00", "../../etc/passwd", "x" * 300, [], ["x"], {},
    {"$gt": ""}, "\ud800", "-1", "NaN", "\u202e",
)  # fmt: skip
PATHS = (
    "/", "//", "/%2e%2e/", "/app.js", "/wrong/status", "../desk.py", "%2e%2e%2fx", "%00",
    "x/../../x", "labels.csv%00.js", "nothing",
    "act", "%ff%fe", "status/..",
    "row?file=../rows.csv&row=1", "row?file=rows.csv&row=99999999999999999999", "row?row=-1",
    "history?start=-1", "history?start=" + "9" * 500, "cards?session=wrong", "cards", "status/x",
    "*", "http://example.org/status", "x" * 10_000,
)  # fmt: skip
HOSTS = (
    "example.org",
    "",
    "127.0.0.1",
    "127.0.0.1:1",
    "user@{host}",
    "{host}.example.org",
    "[::1]:80",
)
ORIGINS = (None, "", "null", "http://example.org", "https://{host}", "http://{host}/", "{host}")
BODIES = (
    b"", b"[]", b"{", b"null", b"1", b'"x"', b"\xff\xfe", b"nul\x00", b"[" * 9000, b"{}" * 2,
    b'{"a":' * 3000, b"session=x", b" " * 20_000, b'{"session":1e999}',
)  # fmt: skip


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, TABLE) as made:
        yield made


def drawn(generator, choices):
    return choices[int(generator.integers(len(choices)))]


def answer(person):
    """Return the request that labels the card in hand."""
    more = {"session": person.session, "number": person.number + 1, "action": "label", "label": "x"}
    return {**person.cards[0], **more}


def path_attacked(site, person, generator):
    method = drawn(generator, ("GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "GARBAGE"))
    return site.request(method, drawn(generator, PATHS), {} if method != "GET" else None)


def headers_attacked(site, person, generator):
    change = drawn(
        generator,
        [
            {"Host": drawn(generator, HOSTS).format(host=site.host)},
            {"Origin": (origin := drawn(generator, ORIGINS)) and origin.format(host=site.host)},
            {"Content-Length": drawn(generator, ("-1", "9" * 30, "x", "1e3", "0x10"))},
        ],
    )
    return site.request("POST", "act", answer(person), headers=change)


def field_attacked(site, person, generator):
    """Change one or two fields of an answer, none of which may then be accepted."""
    body = answer(person)
    fields = ("session", "number", "action", "file", "row", "version", "label")
    for name in generator.permutation(fields)[: int(generator.integers(1, 3))]:
        odd = [each for each in ODD if each != body[name]]
        body[name] = drawn(
            generator, odd if name != "label" else [*ODD[:5], "", "x\ny", "\x00", {}]
        )
    return site.request("POST", "act", body)


def field_missing(site, person, generator):
    body = answer(person)
    del body[drawn(generator, ("session", "number", "action", "file", "row", "version", "label"))]
    return site.request("POST", "act", body)


def body_attacked(site, person, generator):
    page, body = drawn(generator, ("act", "join")), drawn(generator, BODIES)
    return site.request("POST", page, raw=body)


def name_attacked(site, person, generator):
    names = (None, "", " ", "x" * 61, ["x"], {}, 3, True)
    return site.request("POST", "join", {"name": drawn(generator, names)})


def bytes_attacked(site, person, generator):
    """Flip, cut or insert bytes in the head of a request, or send two lengths or two hosts."""
    body = json.dumps(answer(person)).encode()
    lines = [
        f"POST {site.path}act HTTP/1.1".encode(), f"Host: {site.host}".encode(),
        f"Origin: http://{site.host}".encode(), b"Content-Type: application/json",
        f"Content-Length: {len(body)}".encode(),
    ]  # fmt: skip
    kind = int(generator.integers(5))
    if kind == 0:
        lines.append(drawn(generator, (b"Transfer-Encoding: chunked", b"Content-Length: 2")))
    if kind == 1:
        lines.append(drawn(generator, (b"Host: example.org", b"Origin: http://example.org")))
    if kind == 2:
        lines.append(b"X: " + b"x" * 200_000)
    head = bytearray(b"\r\n".join([*lines, b"", b""]))
    if kind == 3:
        place = int(generator.integers(len(lines[0])))
        head[place : place + 1] = generator.bytes(int(generator.integers(2, 9)))
    if kind == 4:
        del head[int(generator.integers(len(head) - 4)) :]
    received = b""
    with socket.create_connection(("127.0.0.1", int(site.host.split(":")[1])), 30) as connection:
        try:
            connection.sendall(bytes(head) + (body if kind < 4 else b""))
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                received += part
        except TimeoutError:  # the server hangs
            raise
        except OSError:  # it has closed the connection before the request was complete
            pass
    status = int(received.split(b" ", 2)[1]) if received else 400  # closed without an answer
    return status, {}, received


ATTACKS = (
    path_attacked, headers_attacked, field_attacked, field_attacked, field_missing, body_attacked,
    name_attacked, bytes_attacked,
)  # fmt: skip


def test_attacked_requests_are_refused_and_change_nothing(site, tmp_path):
    generator = np.random.default_rng(29)
    ada = site.person()
    for _ in range(3):
        ada.label(lambda row: TRUTH[row - 1])
    log, statuses = site.log.path.read_bytes(), []
    for number in range(ATTACKED):
        attack = ATTACKS[number % len(ATTACKS)]
        status, headers, content = attack(site, ada, generator)
        statuses.append(status)
        place = f"attack {number}, {attack.__name__}: {status} {content[:200]!r}"
        assert status in REFUSED or (attack is path_attacked and status == 200), place
        assert site.log.path.read_bytes() == log, place
        text = content.decode("latin-1") + json.dumps(headers)
        for secret in (str(tmp_path), "site-packages", "Traceback"):
            assert secret not in text, place
        if attack is not bytes_attacked and status not in (400, 413, 431):
            assert headers["x-content-type-options"] == "nosniff", place
    assert len(set(statuses)) > 6  # refused for many reasons
    ada.label(lambda row: TRUTH[row - 1])
    assert site.person("Bob").cards
    assert site.log.path.read_bytes() != log
