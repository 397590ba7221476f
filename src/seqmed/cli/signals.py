"""Signals end a command by an exception, so that temporary files are removed.

The exception can be lost in three ways. A signal that arrives just before a blocking read does not
interrupt it, and the handler is not called. An exception raised in a callback, such as that
of a weak reference, is ignored. In both cases a thread sends the signal again. While pyarrow reads,
it has its own handlers, which lose signals that arrive near the end. These handlers are disabled.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

NAMES = ("SIGTERM", "SIGHUP", "SIGINT")
INTERVAL = 0.5  # seconds until a lost signal is sent again


class ExceptionFromSignal:
    """Handler that raises SystemExit, or KeyboardInterrupt for SIGINT.

    Attributes
    ----------
    raised : whether an exception was raised and, as far as is known, not lost.
    """

    def __init__(self) -> None:
        self.raised = False

    def __call__(self, number: int, frame: Any) -> NoReturn:
        """Raise the exception of a signal."""
        self.raised = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def report_ignored(self, ignored: Any) -> None:
        """Note that the exception was ignored; report other ignored exceptions."""
        if self.raised and issubclass(ignored.exc_type, KeyboardInterrupt | SystemExit):
            self.raised = False
        else:
            sys.__unraisablehook__(ignored)

    def send_again(self, arrived: int) -> None:
        """Send the first signal to the main thread again whenever it was lost.

        Parameters
        ----------
        arrived : file descriptor from which the numbers of the arriving signals are read.
        """
        main = threading.main_thread().ident
        assert main is not None
        handler: Any = self
        while signal.getsignal(number := os.read(arrived, 1)[0]) is not handler:
            pass  # a signal that does not end the command
        while True:
            time.sleep(INTERVAL)
            if not self.raised:
                signal.pthread_kill(main, number)


def end_by_exception() -> None:
    """Make SIGTERM, SIGHUP and SIGINT end the command by an exception."""
    handler = ExceptionFromSignal()
    for number in (getattr(signal, name) for name in NAMES if hasattr(signal, name)):
        # signals that are ignored, as with nohup, stay ignored
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handler)
    if hasattr(signal, "pthread_kill"):
        sys.unraisablehook = handler.report_ignored
        arrived, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=handler.send_again, args=(arrived,), daemon=True).start()


def keep_handlers() -> None:
    """Disable the signal handlers of pyarrow."""
    import pyarrow

    pyarrow.enable_signal_handlers(False)
