"""The worker's side of the protocol, compiled: results in, chunks queued for sending, packets out.

Every change of a chunk's state happens here. A chunk goes from unsent to queued (`enqueue`), to in flight (`send`),
maybe back to queued (`find_lost` of host/recovery_kernels.py), to done (`receive`). Chunk numbers are 64-bit here and
never wrap; on the wire they do.
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
from host.recovery_kernels import answered_sending, find_lost, measure, reordering, time_out
from host.state_kernels import FLIGHT, STATE, TENSOR, push
from protocol.constants import EXPONENT_ZERO, MSG_EXPONENTS, MSG_VALUES, PREFIX_BYTES, VALUE_BYTES, VERSION_BIT, DType
from protocol.jit import kernel
from protocol.kernels import consistency, load8, load16, load32, load_signed8, pointer, store8, store16, store32

LAST_FLOAT = int(DType.BFLOAT16)


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
    flight.tries = 0
    if not flight.queued:  # else the chunk before was answered while queued again, and its place in the queue serves
        push(state, flights, queue, chunk & (slots - 1))


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
        if flight.tries == 0:
            flight.first = now
        state.in_flight += 1
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
    samples = 0
    sample = 0.0
    highest = -1  # chunk answered in this batch
    highest_sent = 0.0
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
        if not flight.queued:
            state.in_flight -= 1
        if chunk > highest:
            highest = int(chunk)
            highest_sent = answered_sending(state, flight, now)
        if flight.tries == 1:  # Karn: else it is not known which sending was answered
            samples += 1
            sample += now - flight.sent
        state.fastest_now = min(state.fastest_now, now - flight.sent)
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
    if highest >= 0:
        state.progress = now
        state.frontier = max(state.frontier, highest)
        state.silence = 0
        # What was silent has spoken, and soon probes may go on. Not at once: other ranks' probes are on their way, too.
        state.quiet_until = min(state.quiet_until, now + state.rto / 4)
    if samples > 0:
        measure(state, sample / samples, now)
    while is_done(flights, state.lowest):
        state.lowest += 1
    if state.lowest < highest:  # else nothing was overtaken, and there is no need to look at every slot
        find_lost(state, flights, queue, now, highest, highest_sent - reordering(state), False)
    elif state.in_flight == 0:
        state.deadline = np.inf
    return int(state.queue_length), int(state.finished), int(state.disagreed)


@kernel
def handle_timer(worker: int, now: float) -> int:
    """Queues what has waited for too long; returns how many packets are queued."""
    states, flights, queue, _ = open_state(worker)
    state = states[0]
    find_lost(state, flights, queue, now, 0, 0.0, True)
    return int(state.queue_length)
