"""Moves a worker's packets between its state machine and its socket, compiled: the data path of a collective.

host/engine.py calls it in a loop and does the rest: waiting, timers, handles. Where faults are injected it goes batch
by batch itself instead.
"""

from numba import carray

from host.state_kernels import STATE
from host.worker_kernels import handle_timer, receive, send
from protocol import socket_kernels as sockets
from protocol.jit import kernel
from protocol.kernels import pointer
from protocol.socket_kernels import INTERRUPTED, NOTHING, monotonic, open_link, wait_readable

# Why `pump` returned; below zero: the number of a socket's error.
MORE, EMPTY, NEWS, BLOCKED, WOKEN = range(5)


@kernel
def send_one(worker: int, link: int, out: int, room: int) -> int:
    """Sends one batch of the packets that are queued; bytes that did not go, or an error's number below zero."""
    state = carray(pointer(worker), (1,), STATE)[0]
    size, segment, _ = send(worker, out, room, monotonic())
    if size == 0:
        return 0
    state.bytes_sent += size
    left = sockets.send(link, out, size, segment)
    if left > 0:
        state.unsent = out + size - left
        state.unsent_size = left
        state.unsent_segment = segment
    return left


@kernel
def pump(
    worker: int, link: int, out: int, room: int, rounds: int, wake: int, until: float
) -> tuple[int, int, int, int]:
    """Receives, applies, sends and waits until there is a reason to return.

    Args:
        worker, link: addresses of STATE and LINK.
        out: address of a buffer for `room` packets.
        rounds: batches to receive at most.
        wake: a descriptor at which other threads interrupt the wait.
        until: how long to wait for packets, by the monotonic clock.

    Returns:
        the reason, then as `worker_kernels.receive` does.
    """
    state = carray(pointer(worker), (1,), STATE)[0]
    socket = open_link(link)[0]
    finished = state.finished
    reason = MORE
    if state.unsent_size > 0:
        left = sockets.send(link, state.unsent, state.unsent_size, state.unsent_segment)
        if left < 0:
            return left, int(state.queue_length), int(state.finished), int(state.disagreed)
        state.unsent += state.unsent_size - left
        state.unsent_size = left
        if left > 0:
            return BLOCKED, int(state.queue_length), int(state.finished), int(state.disagreed)
    while reason == MORE and rounds > 0:
        rounds -= 1
        # After a loss results come in small pieces. Sent on as such they would never grow together again, so what does
        # not fill a batch waits as long as there is something to receive.
        enough = room
        size = sockets.receive(link)
        if size >= 0:
            state.bytes_received += size
            receive(worker, socket.buffer, size, socket.received_segment, monotonic())
            if state.finished != finished or state.disagreed >= 0:
                reason = NEWS
        elif size == NOTHING:
            reason = EMPTY
            enough = 1
        else:
            reason = size
        while state.queue_length >= enough:
            left = send_one(worker, link, out, room)
            if left != 0:
                reason = left if left < 0 else BLOCKED
                break
        if reason == EMPTY:
            now = monotonic()
            if now >= state.deadline:
                handle_timer(worker, now)
            if state.queue_length > 0:
                reason = MORE
            elif now < until:
                ready = wait_readable(socket.fd, wake, max(0.0, min(until, state.deadline) - now))
                if ready != INTERRUPTED:  # else Python has a signal to handle
                    reason = WOKEN if ready & 2 else MORE
    return reason, int(state.queue_length), int(state.finished), int(state.disagreed)
