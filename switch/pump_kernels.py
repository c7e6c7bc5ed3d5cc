"""Moves packets between the switch's sockets and its slots, compiled: the data path, unless faults hold packets back.

switch/ports.py calls `serve` in a loop and does the rest: sockets of new jobs, commands, strangers.
"""

import platform
from typing import Final

import numpy as np
from numba import carray, types

from protocol import socket_kernels as sockets
from protocol.constants import PREFIX_BYTES, VALUE_BYTES
from protocol.fault_kernels import pass_through
from protocol.jit import kernel
from protocol.kernels import pointer
from protocol.socket_kernels import NOTHING, monotonic, open_link
from switch.slot_kernels import JOB, receive

# The socket for one rank, or for the parent of a leaf, whose number is the one after the last rank's.
PORT = np.dtype(
    [
        ("link", "i8"),  # address of its LINK; 0 while it has none
        ("job", "i8"),  # address of its JOB
        ("rank", "i8"),
        ("host", "i8"),  # where its packets come from: IPv4 address as a number
        ("port", "i8"),
        ("heard", "f8"),  # when its last packet came; below zero: never
        ("bytes_in", "i8"),
        ("bytes_out", "i8"),
        ("unsent", "i8"),  # packets for which its socket had no room
        ("strangers", "i8"),  # packets of others that came between the socket's bind and its connect
        ("faults_in", "i8"),  # address of the FLOW of faults in what it sends; 0 for none
        ("faults_out", "i8"),
        ("empty", "i8"),  # datagrams without a byte
    ],
    align=True,
)

EVENTS: Final = 64
# struct epoll_event is packed on x86-64 alone.
_EVENT_BYTES: Final = 12 if platform.machine() in ("x86_64", "AMD64") else 16
_EVENT_FD: Final = 4 if _EVENT_BYTES == 12 else 8
EVENTS_BYTES: Final = EVENTS * _EVENT_BYTES

BURST: Final = 16  # batches taken from one socket before the others' turn
SMALL_BYTES: Final = 32768  # a batch that large is followed by another socket's

_epoll_wait = types.ExternalFunction("epoll_wait", types.intc(types.intc, types.intp, types.intc, types.intc))


@kernel
def send_results(job_address: int) -> None:
    """Sends all results of a job that wait, and empties its output."""
    job = carray(pointer(job_address), (1,), JOB)[0]
    ranks, packet = job.ranks, PREFIX_BYTES + VALUE_BYTES * job.values
    filled = carray(pointer(job.filled), (4 + 2 * ranks,), np.int64)
    ports = carray(pointer(job.ports), (ranks + 1,), PORT)
    for row in range(4 + 2 * ranks):
        if filled[row] == 0:
            continue
        segment = PREFIX_BYTES if row & 1 else packet
        size = filled[row] * segment
        first, last = (0, ranks) if row < 2 else (row // 2 - 1, row // 2)
        for rank in range(first, last):
            port = ports[rank]
            if port.link == 0:
                continue
            data, going = job.out + row * job.row_bytes, size
            if port.faults_out != 0:
                data, going = pass_through(port.faults_out, data, size, segment)
                if going == 0:
                    continue
            left = sockets.send(port.link, data, going, segment)
            if left != 0:  # loss like any other, which the worker's timer repairs
                left = going if left < 0 else left
                port.unsent += -(-left // segment)
            port.bytes_out += going - left
        filled[row] = 0
    job.waiting = 0


@kernel
def take(port_address: int, size: int, segment: int, data: int) -> None:
    """Applies a batch from a rank or the parent, and sends results as soon as they fill a batch."""
    port = carray(pointer(port_address), (1,), PORT)[0]
    job = carray(pointer(port.job), (1,), JOB)[0]
    port.bytes_in += size
    port.heard = monotonic()
    piece = job.full * segment  # there is room for that many results
    for start in range(0, size, piece):
        if job.waiting >= job.full:
            send_results(port.job)
        going = min(piece, size - start)
        packets = data + start
        if port.faults_in != 0:
            packets, going = pass_through(port.faults_in, packets, going, segment)
        receive(port.job, port.rank, packets, going, segment)
    if job.waiting >= job.full:
        send_results(port.job)


@kernel
def serve(epoll: int, events: int, table: int, table_size: int, rounds: int) -> int:
    """Waits for packets and serves them, until a descriptor is ready that is not the socket of a rank or a parent.

    Args:
        epoll: the descriptor to wait at.
        events: address of EVENTS_BYTES.
        table: address of int64, shape (table_size,): for each descriptor the address of its PORT, or 0.
        rounds: how often to wait at most.

    Returns:
        1 if another descriptor is ready, 0 if not, or an error's number below zero.
    """
    ports = carray(pointer(table), (table_size,), np.int64)
    dirty = np.zeros(EVENTS, np.int64)
    for _ in range(rounds):
        ready = _epoll_wait(epoll, events, EVENTS, -1)
        if ready < 0:
            error = sockets.errno()
            if error == 4:  # EINTR: Python may have a signal to handle
                return 0
            return -error
        waiting = 0
        other = 0
        for i in range(ready):
            fd = np.int64(carray(pointer(events + i * _EVENT_BYTES + _EVENT_FD), (1,), np.int32)[0])
            address = ports[fd] if fd < table_size else 0
            if address == 0:
                other = 1
                continue
            port = carray(pointer(address), (1,), PORT)[0]
            link = open_link(port.link)[0]
            for _ in range(BURST):
                size = sockets.receive(port.link)
                if size == NOTHING:
                    break
                if size < 0:
                    return size
                if size == 0:
                    port.empty += 1
                elif link.host != port.host or link.port != port.port:
                    port.strangers += -(-size // link.received_segment)
                else:
                    take(address, size, link.received_segment, link.buffer)
                if size > SMALL_BYTES:
                    break  # others' turn; small pieces, such as come after a loss, are better taken together
            dirty[waiting] = port.job
            waiting += 1
        for i in range(waiting):
            if carray(pointer(dirty[i]), (1,), JOB)[0].waiting > 0:
                send_results(dirty[i])
        if other:
            return 1
    return 0
