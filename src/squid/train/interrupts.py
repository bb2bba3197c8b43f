"""Ctrl-C during a training."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Training was interrupted after its state was saved."""


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that is looked at between steps, so that no step is left half done; twice
    stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
