"""What commands that serve until they are told to stop have in common."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[tuple[int, int]]:
    """SIGINT and SIGTERM make the first of two file descriptors readable; a byte written to the other does so, too."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    previous = signal.set_wakeup_fd(writer)
    try:
        yield reader, writer
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def say(line: str) -> None:
    """Writes a line to standard output, if anybody reads it."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read this has gone, but the jobs have not.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
