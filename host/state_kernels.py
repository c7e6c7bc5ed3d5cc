"""What the worker's compiled code works on: records of one worker, its tensors, and what is in flight in its slots."""

from typing import Any

import numpy as np

from protocol.jit import kernel

# What is in flight in one slot. At first the chunk before the slot's first one, done.
FLIGHT = np.dtype(
    [
        ("chunk", "i8"),
        ("first", "f8"),  # when it was first sent, seconds
        ("sent", "f8"),  # and last
        ("tries", "i4"),  # how often it was sent
        ("done", "u1"),
        ("queued", "u1"),
        ("probe", "u1"),  # whether it was last queued because its time-out had passed
    ],
    align=True,
)

# One tensor in the stream: `lead` exponents-only chunks from `first` on, then `blocks` chunks with values.
TENSOR = np.dtype(
    [
        ("first", "i8"),
        ("lead", "i8"),
        ("blocks", "i8"),
        ("left", "i8"),  # results still to come
        ("elements", "i8"),
        ("source", "i8"),  # addresses
        ("target", "i8"),
        ("exponents", "i8"),  # int8, shape (lead,): of the blocks in flight, agreed by all ranks
        ("salt", "u8"),
        ("dtype", "i8"),
        ("op", "i8"),
    ],
    align=True,
)

# The rest of a worker's state, one record; kernels are given its address, which costs less than arrays.
STATE = np.dtype(
    [
        ("job", "i8"),
        ("ranks", "i8"),
        ("headroom", "i8"),
        ("size", "i8"),
        ("values", "i8"),
        ("slots", "i8"),
        ("flights", "i8"),  # address of FLIGHT, shape (slots,)
        ("queue", "i8"),  # address of int64, shape (slots,): slots to send from, a ring
        ("table", "i8"),  # address of TENSOR, in order of their chunks
        ("scratch", "i8"),  # address of float32, shape (values,)
        ("tensors", "i8"),  # how many tensors are in the stream
        ("in_flight", "i8"),  # chunks that were sent and not answered, less those queued to be sent again
        ("queue_head", "i8"),
        ("queue_length", "i8"),
        ("disagreed", "i8"),  # a chunk for which another consistency byte came back, or -1
        ("lowest", "i8"),  # the lowest chunk that was not answered
        ("frontier", "i8"),  # the highest chunk that was answered
        ("progress", "f8"),  # when the last answer came
        ("fastest", "f8"),  # round trip of the last span of time that is over, seconds
        ("fastest_now", "f8"),  # and of the one that goes on
        ("fastest_until", "f8"),  # which ends then
        ("srtt", "f8"),  # seconds; below zero until measured
        ("rttvar", "f8"),
        ("rto", "f8"),
        ("rto_min", "f8"),
        ("rto_max", "f8"),
        ("deadline", "f8"),  # no timer is due before this
        ("quiet_until", "f8"),  # time-outs send nothing again before this
        ("silence", "i8"),  # how often in a row a time-out has passed without an answer since
        ("unsent", "i8"),  # address of what a full socket has not taken yet
        ("unsent_size", "i8"),
        ("unsent_segment", "i8"),
        ("bytes_sent", "i8"),
        ("bytes_received", "i8"),
        ("finished", "i8"),  # tensors whose last result has come
        ("packets_sent", "i8"),
        ("packets_received", "i8"),
        ("retransmissions", "i8"),
        ("duplicates", "i8"),
        ("rejected", "i8"),  # packets that are no answer to this worker's chunks
    ],
    align=True,
)


@kernel
def push(state: Any, flights: Any, queue: Any, slot: int) -> None:
    """Puts a slot at the end of the sending queue."""
    queue[(state.queue_head + state.queue_length) & (queue.shape[0] - 1)] = slot
    state.queue_length += 1
    flights[slot].queued = 1
