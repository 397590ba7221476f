"""How much of the pending log a file ends with: right in every case, and found in linear time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from seqmed.cli import journal


def by_trial(tail, content):
    """Return the largest number of bytes of the content that the text ends with, by trying all."""
    sizes = range(min(len(tail), len(content)), -1, -1)
    return next(size for size in sizes if tail.endswith(content[:size]))


def found(tmp_path, text, content):
    path = tmp_path / "log"
    path.write_bytes(text)
    return journal.written(path, content)


@pytest.mark.parametrize("length", range(1, 5))
def test_all_short_texts(length, tmp_path):
    """Of two letters and the end of a line, which gives every kind of repetition."""
    texts = [bytes(each) for each in itertools.product(b"ab\n", repeat=length)]
    for content in texts:
        for text in (content + content, b"ab\n" * 3, content[: length // 2], b""):
            for more in (b"", b"a", b"\n", b"b\na"):
                whole = more + text
                assert found(tmp_path, whole, content) == by_trial(whole[-length:], content)


def test_random_texts(tmp_path):
    generator = np.random.default_rng(0)
    for _ in range(500):
        text, content = (
            bytes(
                generator.choice(list(b"ab\n"), size=generator.integers(1, 30), p=[0.5, 0.2, 0.3])
            )
            for _ in range(2)
        )
        text += content[: generator.integers(0, len(content) + 1)]
        assert found(tmp_path, text, content) == by_trial(text[-len(content) :], content)


class Counted(bytes):
    """Bytes that count how many of them are copied or compared."""

    work = 0

    def __getitem__(self, place):
        result = super().__getitem__(place)
        Counted.work += len(result) if isinstance(place, slice) else 1
        return result

    def startswith(self, other, *places):
        Counted.work += len(other)
        return super().startswith(other, *places)


TEXTS = {
    "nothing written": lambda lines: (b"other\n" * len(lines), b"".join(lines)),
    "half written": lambda lines: (b"".join(lines[: len(lines) // 2]), b"".join(lines)),
    "a line more": lambda lines: (b"".join(lines) + b"other\n", b"".join(lines)),
    "equal lines": lambda lines: (b"same\n" * len(lines) + b"o", b"same\n" * len(lines)),
    "one long line": lambda lines: (b"a" * len(lines), b"a" * len(lines) + b"b\n"),
    "one long line, another": lambda lines: (b"a" * len(lines) + b"c", b"a" * len(lines) + b"b\n"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_work_is_linear(name, tmp_path):
    works = []
    for n in (200, 800):
        lines = [b'{"batch": %d}\n' % number for number in range(n)]
        text, content = TEXTS[name](lines)
        Counted.work = 0
        assert found(tmp_path, text, Counted(content)) == by_trial(text[-len(content) :], content)
        works.append(Counted.work)
    assert works[1] < 5 * works[0]
    assert works[1] < 12 * len(content)
