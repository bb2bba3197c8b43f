"""Ctrl-C during a training."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Training was interrupted after its state was saved."""


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C or SIGTERM (docker stop, a cluster's time limit) sets a flag.

    Training checks it between steps, so that no step is left half done; a second one stops at once.
    """
    interrupted = threading.Event()
    # Python allows signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
