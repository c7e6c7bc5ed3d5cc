"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], complaint: str, *, within: float = 30.0) -> None:
    """Returns when the condition holds; fails with the complaint if it does not come to hold."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.005)
