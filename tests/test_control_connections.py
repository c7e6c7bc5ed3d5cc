"""Connections to a control service whose packets get lost: they are there, and nothing comes through them."""

import socket
import socketserver
import threading
from contextlib import closing, suppress
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.communicator import Communicator
from host.control import ControlClient
from protocol.control import connection_patience
from protocol.packets import Address
from switch.server import SoftwareSwitch
from tests.ranks import text

PROBE, FIRST_OF_GRPC = 0, 1


@given(st.floats(min_value=0.01, max_value=1000.0))
def test_patience_is_all_that_there_is_and_no_connection_is_given_up_soon(seconds: float) -> None:
    found = [patience for patience, _ in connection_patience(seconds)]
    assert sum(found) == pytest.approx(seconds)
    assert min(found) >= min(seconds, 3.0)
    assert found[: len(found) - 1] == [3.0 * 2**n for n in range(len(found) - 1)]


class Forwarder(socketserver.ThreadingTCPServer):
    """Hands connections on; to be used as a context manager.

    Args:
        address: where to.
        mute: the numbers, from 0, of those that carry nothing.
        slow: the numbers of those that do so after more than a second, as if their first packet had been lost.
    """

    def __init__(self, address: Address, mute: set[int], slow: set[int] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.to, self.mute, self.slow = address, mute, slow or set()
        self.numbers: dict[Address, int] = {}
        self.over = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def address(self) -> str:
        """Its own."""
        return text(self.socket.getsockname())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Numbers a connection, and has a thread of its own hand it on."""
        self.numbers[client_address] = len(self.numbers)
        super().process_request(request, client_address)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.over.set()
        self.server_close()  # waits for the connections


class _Connection(socketserver.BaseRequestHandler):
    server: Forwarder

    def handle(self) -> None:
        number = self.server.numbers[self.client_address]
        if number in self.server.mute:
            self.server.over.wait()
            return
        if number in self.server.slow:
            self.server.over.wait(1.1)
        with socket.create_connection(self.server.to) as onward:
            back = threading.Thread(target=_pump, args=(onward, self.request))
            back.start()
            _pump(self.request, onward)
            back.join()


def _pump(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(("mute", "slow"), [(set(), set()), ({FIRST_OF_GRPC}, set()), (set(), {FIRST_OF_GRPC})])
def test_a_worker_that_gets_no_answer_soon_tries_a_fresh_connection(mute: set[int], slow: set[int]) -> None:
    with SoftwareSwitch(port=0, control_port=0) as switch, Forwarder(switch.control_address, mute, slow) as forwarder:
        with Communicator(switch=forwarder.address, job="train", rank=0, world_size=1) as communicator:
            array = np.ones(1000, np.float32)
            communicator.all_reduce(array)
            assert (array == 1).all()
        assert len(forwarder.numbers) == len({PROBE, FIRST_OF_GRPC}) + len(mute | slow)


@pytest.mark.parametrize(("mute", "slow"), [({FIRST_OF_GRPC}, set()), (set(), {FIRST_OF_GRPC})])
def test_a_leaf_switch_that_gets_no_answer_soon_tries_a_fresh_connection(mute: set[int], slow: set[int]) -> None:
    with SoftwareSwitch(port=0, control_port=0) as root, Forwarder(root.control_address, mute, slow) as forwarder:
        with (
            SoftwareSwitch(port=0, control_port=0, parent=forwarder.address) as leaf,
            closing(ControlClient(text(leaf.control_address))) as client,
        ):
            assert client.info.total_slots > 0
        assert len(forwarder.numbers) == len({PROBE, FIRST_OF_GRPC}) + 1
