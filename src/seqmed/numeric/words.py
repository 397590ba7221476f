"""Words of messages: options on the command line, parameters in Python; an error of devices."""

from __future__ import annotations


class Shown:
    """Where messages are shown: on the command line, or in Python."""

    by_command = False


def in_words(command: str, python: str) -> str:
    """Return the words of where a message is shown."""
    return command if Shown.by_command else python


class DeviceMemoryError(MemoryError):
    """A device has run out of memory. The message says what to do."""
