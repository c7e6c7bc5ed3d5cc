"""The worker's side of the protocol, compiled: results in, chunks queued for sending, packets out.

Every change of a chunk's state happens here. A chunk goes from unsent to queued (`enqueue`), to in flight (`send`),
maybe back to queued (`find_lost`), to done (`receive`). Chunk numbers are 64-bit here and never wrap; on the wire
they do.
"""

from typing import Any

import numpy as np
from numba import carray

from host.quantizer_kernels import (
    FLOAT32,
    block_exponent,
    dequantize,
    load_integers,
    quantize,
    store_integers,
    widen,
)
from protocol.constants import EXPONENT_ZERO, MSG_EXPONENTS, MSG_VALUES, PREFIX_BYTES, VALUE_BYTES, VERSION_BIT, DType
from protocol.jit import kernel
from protocol.kernels import consistency, load8, load16, load32, load_signed8, pointer, store8, store16, store32

LAST_FLOAT = int(DType.BFLOAT16)

# What is in flight in one slot. At first the chunk before the slot's first one, done.
FLIGHT = np.dtype(
    [
        ("chunk", "i8"),
        ("sent", "f8"),  # when it was last sent, seconds
        ("tries", "i4"),  # how often it was sent
        ("done", "u1"),
        ("queued", "u1"),
        ("probe", "u1"),  # last sent because of a time-out
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
        ("outstanding", "i8"),  # chunks in flight or queued
        ("queue_head", "i8"),
        ("queue_length", "i8"),
        ("disagreed", "i8"),  # a chunk for which another consistency byte came back, or -1
        ("lowest", "i8"),  # the lowest chunk that was not answered
        ("frontier", "i8"),  # the highest chunk that was answered
        ("newest_answered", "f8"),  # when it was sent
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
        ("turn", "i8"),  # the slot that is looked at first for probes, so that each has its turn
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

_FAST_TRIES = 3  # after that many sendings only the timer speaks, so that a slow peer is not flooded
_PROBES = 8  # chunks that a time-out sends again
_REORDERING_SECONDS = 0.0002  # the least by which a chunk must be overtaken to count as lost
_FASTEST_SECONDS = 0.05  # at least, for which the fastest round trip is remembered


@kernel
def find_tensor(tensors: Any, count: int, chunk: int) -> int:
    """Index of the tensor that chunk belongs to, among `count` tensors in order of their chunks, or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if tensors[middle].first <= chunk:
            low = middle + 1
        else:
            high = middle
    index = low - 1
    if index < 0:
        return -1
    tensor = tensors[index]
    return index if chunk < tensor.first + tensor.lead + tensor.blocks else -1


@kernel
def is_done(flights: Any, chunk: int) -> bool:
    """Whether the result of `chunk` has come."""
    flight = flights[chunk & (flights.shape[0] - 1)]
    return bool(flight.chunk > chunk or (flight.chunk == chunk and flight.done != 0))


@kernel
def enqueue(state: Any, flights: Any, queue: Any, tensor: Any, chunk: int) -> None:
    """Queues a chunk of `tensor` if its slot is free, its exponent is known, and it was not queued before."""
    slots = flights.shape[0]
    flight = flights[chunk & (slots - 1)]
    if flight.chunk != chunk - slots or flight.done == 0:
        return
    if tensor.lead > 0 and chunk >= tensor.first + tensor.lead and not is_done(flights, chunk - tensor.lead):
        return
    flight.chunk = chunk
    flight.done = 0
    flight.probe = 0
    flight.tries = 0
    state.outstanding += 1
    if not flight.queued:  # else the chunk before was answered while queued again, and its place in the queue serves
        push(state, flights, queue, chunk & (slots - 1))


@kernel
def push(state: Any, flights: Any, queue: Any, slot: int) -> None:
    """Puts a slot at the end of the sending queue."""
    queue[(state.queue_head + state.queue_length) & (queue.shape[0] - 1)] = slot
    state.queue_length += 1
    flights[slot].queued = 1


@kernel
def open_state(worker: int) -> tuple[Any, Any, Any, Any]:
    """The state (an array of one), flights, queue and tensors of the worker whose STATE stands at that address."""
    states = carray(pointer(worker), (1,), STATE)
    state = states[0]
    flights = carray(pointer(state.flights), (state.slots,), FLIGHT)
    queue = carray(pointer(state.queue), (state.slots,), np.int64)
    return states, flights, queue, carray(pointer(state.table), (state.tensors,), TENSOR)


@kernel
def submit(worker: int, index: int) -> int:
    """Queues the chunks of a tensor that just joined the stream and need not wait for a result.

    Returns:
        how many packets are queued.
    """
    states, flights, queue, tensors = open_state(worker)
    state = states[0]
    tensor = tensors[index]
    ready = tensor.lead or tensor.blocks
    for chunk in range(tensor.first, tensor.first + min(ready, flights.shape[0])):
        enqueue(state, flights, queue, tensor, chunk)
    return int(state.queue_length)


@kernel
def read_block_exponent(state: Any, tensor: Any, block: int) -> int:
    """The exponent of this worker's own block."""
    start = block * state.values
    count = min(state.values, tensor.elements - start)
    if tensor.dtype == FLOAT32:
        return block_exponent(tensor.source + start * 4, count)
    widen(tensor.source + start * 2, state.scratch, count, tensor.dtype)
    return block_exponent(state.scratch, count)


@kernel
def load_block(state: Any, tensor: Any, block: int, exponent: int, target: int) -> None:
    """Writes a block's integers at `target`, zeros behind the tensor's end."""
    start = block * state.values
    count = min(state.values, tensor.elements - start)
    if tensor.dtype == FLOAT32:
        quantize(tensor.source + start * 4, target, count, exponent, state.headroom)
    elif tensor.dtype <= LAST_FLOAT:
        widen(tensor.source + start * 2, state.scratch, count, tensor.dtype)
        quantize(state.scratch, target, count, exponent, state.headroom)
    else:
        load_integers(tensor.source + start * itemsize(tensor.dtype), target, count, tensor.dtype)
    for i in range(count, state.values):
        store32(target + i * VALUE_BYTES, 0)


@kernel
def itemsize(dtype: int) -> int:
    """Bytes of one integer element."""
    if dtype == DType.INT32:
        return 4
    return 2 if dtype == DType.INT16 else 1


@kernel
def store_block(state: Any, tensor: Any, block: int, exponent: int, source: int) -> None:
    """Writes a block's sums into the tensor's target."""
    start = block * state.values
    count = min(state.values, tensor.elements - start)
    if tensor.dtype <= LAST_FLOAT:
        width = 4 if tensor.dtype == FLOAT32 else 2
        dequantize(
            source,
            tensor.target + start * width,
            count,
            exponent,
            state.headroom,
            tensor.dtype,
            tensor.op,
            state.ranks,
        )
    else:
        store_integers(source, tensor.target + start * itemsize(tensor.dtype), count, tensor.dtype)


@kernel
def send(worker: int, base: int, room: int, now: float) -> tuple[int, int, int]:
    """Writes up to `room` queued packets of one size back to back at the address `base`.

    Returns:
        bytes written, bytes of each packet, packets still queued.
    """
    states, flights, queue, tensors = open_state(worker)
    state = states[0]
    slots = flights.shape[0]
    filled = 0
    segment = 0
    while state.queue_length > 0 and room > 0:
        slot = queue[state.queue_head & (queue.shape[0] - 1)]
        flight = flights[slot]
        if flight.done:  # answered while it waited to be sent again
            state.queue_head += 1
            state.queue_length -= 1
            flight.queued = 0
            continue
        chunk = flight.chunk
        tensor = tensors[find_tensor(tensors, state.tensors, chunk)]
        place = chunk - tensor.first
        has_values = place >= tensor.lead
        size = PREFIX_BYTES + (VALUE_BYTES * state.values if has_values else 0)
        if segment != 0 and size != segment:
            break
        segment = size
        state.queue_head += 1
        state.queue_length -= 1
        flight.queued = 0
        packet = base + filled
        store8(packet, (MSG_VALUES if has_values else MSG_EXPONENTS) << 4 | state.size)
        store8(packet + 1, state.job)
        store32(packet + 2, chunk)
        store16(packet + 6, (VERSION_BIT if chunk // slots & 1 else 0) | slot)
        announced = place  # the block whose exponent this packet carries
        if has_values:
            block = place - tensor.lead
            exponent = EXPONENT_ZERO
            if tensor.lead > 0:
                exponent = load_signed8(tensor.exponents + block % tensor.lead)
            load_block(state, tensor, block, exponent, packet + PREFIX_BYTES)
        e0 = EXPONENT_ZERO
        if tensor.lead > 0 and announced < tensor.blocks:
            e0 = read_block_exponent(state, tensor, announced)
        store8(packet + 8, e0)
        store8(packet + 9, consistency(tensor.salt, chunk))
        filled += size
        room -= 1
        flight.sent = now
        if flight.tries > 0:
            state.retransmissions += 1
        state.packets_sent += 1
        flight.tries += 1
        state.deadline = min(state.deadline, max(time_out(state, flight), state.quiet_until))
    return filled, segment, int(state.queue_length)


@kernel
def receive(worker: int, data: int, length: int, segment: int, now: float) -> tuple[int, int, int]:
    """Takes a batch of results and queues the chunks that may go out now.

    Returns:
        packets queued, tensors finished so far, a chunk that ranks disagree about or -1.
    """
    states, flights, queue, tensors = open_state(worker)
    state = states[0]
    slots = flights.shape[0]
    for start in range(0, length, segment):
        packet = data + start
        state.packets_received += 1
        size = min(segment, length - start)
        if size < PREFIX_BYTES:
            state.rejected += 1
            continue
        kind = load8(packet)
        index = load16(packet + 6)
        slot = index & 0x3FFF
        if slot >= slots or load8(packet + 1) != state.job or kind & 15 != state.size:
            state.rejected += 1
            continue
        flight = flights[slot]
        chunk = flight.chunk
        if chunk & 0xFFFFFFFF != load32(packet + 2) or index != (VERSION_BIT if chunk // slots & 1 else 0) | slot:
            state.duplicates += 1
            continue
        if flight.done or flight.tries == 0:
            state.duplicates += 1
            continue
        tensor = tensors[find_tensor(tensors, state.tensors, chunk)]
        place = chunk - tensor.first
        has_values = place >= tensor.lead
        if size != PREFIX_BYTES + (VALUE_BYTES * state.values if has_values else 0) or kind >> 4 != (
            MSG_VALUES if has_values else MSG_EXPONENTS
        ):
            state.rejected += 1
            continue
        if load8(packet + 9) != consistency(tensor.salt, chunk):
            state.disagreed = chunk
            continue
        e0 = load_signed8(packet + 8)
        if has_values:
            block = place - tensor.lead
            if tensor.lead > 0:
                agreed = tensor.exponents + block % tensor.lead
                store_block(state, tensor, block, load_signed8(agreed), packet + PREFIX_BYTES)
                store8(agreed, e0)
            else:
                store_block(state, tensor, block, EXPONENT_ZERO, packet + PREFIX_BYTES)
        else:
            store8(tensor.exponents + place, e0)

        flight.done = 1
        state.outstanding -= 1
        measure(state, flight, now)
        tensor.left -= 1
        if tensor.left == 0:
            state.finished += 1
        if tensor.lead > 0 and place < tensor.blocks:
            enqueue(state, flights, queue, tensor, chunk + tensor.lead)
        if place + slots < tensor.lead + tensor.blocks:
            enqueue(state, flights, queue, tensor, chunk + slots)
        else:
            after = find_tensor(tensors, state.tensors, chunk + slots)
            if after >= 0:
                enqueue(state, flights, queue, tensors[after], chunk + slots)
    while is_done(flights, state.lowest):
        state.lowest += 1
    if state.lowest < state.frontier:  # else nothing was overtaken, and there is no need to look at every slot
        find_lost(state, flights, queue, now, False)
    elif state.outstanding <= state.queue_length:  # nothing is in flight
        state.deadline = np.inf
    return int(state.queue_length), int(state.finished), int(state.disagreed)


@kernel
def handle_timer(worker: int, now: float) -> int:
    """Queues what has waited for too long; returns how many packets are queued."""
    states, flights, queue, _ = open_state(worker)
    state = states[0]
    find_lost(state, flights, queue, now, True)
    return int(state.queue_length)


@kernel
def time_out(state: Any, flight: Any) -> float:
    """When a chunk in flight has waited for too long.

    Doubled once only: a chunk that others lost is sent here in vain, again and again, and must not wait for a second
    when at last its result is lost. It is silence that the worker backs off from, see `find_lost`.
    """
    return float(flight.sent + min(state.rto * (1 if flight.tries == 1 else 2), state.rto_max))


@kernel
def measure(state: Any, flight: Any, now: float) -> None:
    """Learns from one answered chunk: the retransmission time-out as in RFC 6298, and how far answers have come."""
    sample = now - flight.sent
    state.silence = 0
    state.quiet_until = min(state.quiet_until, now + state.rto)
    if flight.tries > 1:
        # Karn: it is not known which sending was answered, and so the sample says nothing about the round trip. But a
        # probe's answer, if it can be one, tells what became of all that was sent before the probe.
        if flight.probe and state.srtt / 2 <= sample <= 2 * state.srtt + 4 * state.rttvar:
            state.frontier = max(state.frontier, flight.chunk + state.slots)
            state.newest_answered = max(state.newest_answered, flight.sent)
        return
    if flight.chunk > state.frontier:
        state.frontier = flight.chunk
        state.newest_answered = max(state.newest_answered, flight.sent)
    if state.srtt < 0:
        state.srtt = sample
        state.rttvar = sample / 2
    else:
        # Some answers had to wait until another rank's loss was mended. Counted in full they would raise the time-out,
        # and with it the time that such losses take to mend.
        sample = min(sample, state.srtt + max(2 * state.rttvar, state.srtt / 2))
        state.rttvar += (abs(state.srtt - sample) - state.rttvar) / 4
        state.srtt += (sample - state.srtt) / 8
    # Where ranks take turns at being late, even most answers may have waited for one of them; the fastest did not. Only
    # the last while counts, as BBR has it: the first packets have met no queue, and a queue that stays is no loss.
    if now >= state.fastest_until:
        state.fastest = state.fastest_now
        state.fastest_now = np.inf
        state.fastest_until = now + max(_FASTEST_SECONDS, 4 * state.srtt)
    state.fastest_now = min(state.fastest_now, now - flight.sent)
    fastest = min(state.fastest, state.fastest_now)
    limit = min(max(4 * state.rto_min, 16 * fastest), state.rto_max)
    state.rto = min(max(state.srtt + 4 * state.rttvar, state.rto_min), limit)


@kernel
def find_lost(state: Any, flights: Any, queue: Any, now: float, timed: bool) -> None:
    """Queues chunks for retransmission and sets the next deadline.

    A chunk counts as lost when a higher one that was sent well after it has been answered, in the manner of RACK
    (RFC 8985). A lower one says nothing: it was late here, and the other ranks may have sent it long before.
    When its time-out has passed instead, nobody knows whether it was lost or another rank is late; then only a few
    chunks are sent as probes, whose answers will tell what else was lost. As long as nothing at all is answered, twice
    as many are sent after twice the time.

    Args:
        timed: whether time-outs count at this moment; not while answers may lie unread in the socket.
    """
    overtaken = state.newest_answered - max(state.srtt / 4, _REORDERING_SECONDS)
    timed = timed and now >= state.quiet_until
    slots = flights.shape[0]
    first = state.turn
    room = _PROBES << min(state.silence, 16)
    probes = 0
    deadline = np.inf
    for i in range(slots):
        slot = (first + i) & (slots - 1)
        flight = flights[slot]
        if flight.done or flight.queued:
            continue
        if flight.sent < overtaken and flight.chunk < state.frontier and flight.tries < _FAST_TRIES:
            push(state, flights, queue, slot)
            flight.probe = 0
            continue
        due = time_out(state, flight)
        if timed and due <= now and probes < room:
            probes += 1
            state.turn = slot + 1
            push(state, flights, queue, slot)
            flight.probe = 1
        else:
            deadline = min(deadline, due)
    if probes:
        state.silence += 1
        state.quiet_until = now + min(state.rto * 2.0 ** min(state.silence, 16), state.rto_max)
    state.deadline = max(deadline, state.quiet_until) if deadline < np.inf else np.inf
