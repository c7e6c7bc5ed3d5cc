"""The slot rules of the switch, compiled: a batch of one worker's packets in, results out.

This is the data plane. Each packet touches a slot's registers once, in the order newest, seen, count, exponents,
values, as a pipeline of match-action stages would. In a leaf of a tree of switches there is one more between count and
exponents: final.
"""

from typing import Any

import numpy as np
from numba import carray

from protocol.constants import (
    MSG_EXPONENTS,
    MSG_VALUES,
    PREFIX_BYTES,
    SLOT_MASK,
    VALUE_BYTES,
    VERSION_BIT,
    SlotEvent,
)
from protocol.jit import kernel
from protocol.kernels import (
    add_swapped,
    copy_bytes,
    copy_swapped,
    load8,
    load16,
    load32,
    load_signed8,
    pointer,
    store8,
    store16,
    store32,
)

# Registers of one slot: the chunk number of its newest generation and, for each version, who was seen and what came.
SLOT = np.dtype(
    [
        ("newest", "u4"),
        ("seen", "u4", 2),
        ("count", "i4", 2),
        ("final", "u1", 2),  # of a leaf: whether the parent's result stands there
        ("e0", "i1", 2),
        ("e1", "i1", 2),
    ],
    align=True,
)

SLOT_EVENTS = len(SlotEvent)

# What a job's kernel calls share: numbers and addresses.
JOB = np.dtype(
    [
        ("job", "i8"),
        ("ranks", "i8"),  # workers and switches below; the parent of a leaf has the number that comes after them
        ("leaf", "i8"),  # 1: complete slots go to the parent
        ("parent_job", "i8"),  # the parent's number for this job
        ("size", "i8"),  # the header's size code for `values` values
        ("values", "i8"),  # per packet
        ("slots", "i8"),
        ("pool", "i8"),  # SLOT records, shape (slots,)
        ("registers", "i8"),  # uint32 in host order, shape (slots, 2, values)
        ("counters", "i8"),  # int64, shape (ranks + 1, SLOT_EVENTS): one row a rank and one for the parent
        ("out", "i8"),  # results: uint8, shape (4 + 2 * ranks, row_bytes)
        ("row_bytes", "i8"),
        ("filled", "i8"),  # packets in each row of the results: int64, shape (4 + 2 * ranks,)
        ("waiting", "i8"),  # packets in the row that has most
        ("full", "i8"),  # results that one send can take
        ("ports", "i8"),  # where to send them: see switch/pump_kernels.py
    ],
    align=True,
)

# Where a result goes: rows of the output buffer. Two for all ranks, with values and without, then two for each rank,
# then two for the parent.
TO_ALL = 0


@kernel
def check(address: int, length: int, job: int, slots: int, size: int, value_bytes: int) -> int:
    """The counter of the reason to drop this packet, or -1 if it is in order."""
    if length < PREFIX_BYTES:
        return SlotEvent.WRONG_SIZE
    kind = load8(address)
    msg_type = kind >> 4
    if msg_type == MSG_VALUES:
        expected = PREFIX_BYTES + value_bytes
    elif msg_type == MSG_EXPONENTS:
        expected = PREFIX_BYTES
    else:
        return SlotEvent.WRONG_SIZE
    if length != expected or kind & 7 != size:
        return SlotEvent.WRONG_SIZE
    if load8(address + 1) != job:
        return SlotEvent.WRONG_JOB
    index = load16(address + 6)
    if kind & 8 or index & 0x4000:
        return SlotEvent.RESERVED_BITS
    if index & SLOT_MASK >= slots:
        return SlotEvent.OUTSIDE_POOL
    chunk = load32(address + 2)
    version = VERSION_BIT if chunk // slots & 1 else 0
    if index != version | (chunk & (slots - 1)):
        return SlotEvent.WRONG_INDEX
    return -1


@kernel
def to_rank(rank: int) -> int:
    """The first of the two rows for results that go to one rank, or to the parent."""
    return 2 + 2 * rank


@kernel
def append(spec: Any, row: int, kind: int, job: int, chunk: int, index: int, e0: int, e1: int) -> int:
    """Appends a packet to a row of the output, but for its values; returns the address where these go."""
    if kind >> 4 == MSG_VALUES:
        packet_size = PREFIX_BYTES + VALUE_BYTES * spec.values
    else:
        row += 1
        packet_size = PREFIX_BYTES
    filled = carray(pointer(spec.filled), (4 + 2 * spec.ranks,), np.int64)
    result = spec.out + row * spec.row_bytes + filled[row] * packet_size
    filled[row] += 1
    spec.waiting = max(spec.waiting, filled[row])
    store8(result, kind)
    store8(result + 1, job)
    store32(result + 2, chunk)
    store16(result + 6, index)
    store8(result + 8, e0)
    store8(result + 9, e1)
    return int(result + PREFIX_BYTES)


@kernel
def receive_results(job_address: int, data: int, length: int, segment: int) -> int:
    """Takes a batch of a leaf's parent: results, which overwrite what the leaf's own ranks have added, for all of them.

    A result counts only for the current generation of its slot, if that is complete and not final.
    """
    spec = carray(pointer(job_address), (1,), JOB)[0]
    ranks, slots, per_packet = spec.ranks, spec.slots, spec.values
    pool = carray(pointer(spec.pool), (slots,), SLOT)
    counters = carray(pointer(spec.counters + ranks * 8 * SLOT_EVENTS), (SLOT_EVENTS,), np.int64)
    value_bytes = VALUE_BYTES * per_packet
    for start in range(0, length, segment):
        packet = data + start
        counters[SlotEvent.RECEIVED] += 1
        reason = check(packet, min(segment, length - start), spec.parent_job, slots, spec.size, value_bytes)
        if reason >= 0:
            counters[reason] += 1
            continue
        kind = load8(packet)
        chunk = load32(packet + 2)
        index = load16(packet + 6)
        slot = index & SLOT_MASK
        version = index >> 15
        registers = pool[slot]
        if np.uint32(chunk) != registers.newest or registers.count[version] != ranks or registers.final[version]:
            counters[SlotEvent.UNNEEDED] += 1
            continue
        counters[SlotEvent.RESULTS] += 1
        registers.final[version] = 1
        e0, e1 = load_signed8(packet + 8), load_signed8(packet + 9)
        registers.e0[version] = e0
        registers.e1[version] = e1
        out = append(spec, TO_ALL, kind, spec.job, chunk, index, e0, e1)
        if kind >> 4 == MSG_VALUES:
            copy_swapped(packet + PREFIX_BYTES, spec.registers + (slot * 2 + version) * value_bytes, per_packet)
            copy_bytes(packet + PREFIX_BYTES, out, value_bytes)
    return int(spec.waiting)


@kernel
def receive(job_address: int, rank: int, data: int, length: int, segment: int) -> int:
    """Takes a batch of packets of one rank and appends what they complete or ask for again to the output.

    Args:
        job_address: of the JOB record.
        rank: who sent them; the number after the last rank stands for the parent.
        data, length, segment: address and bytes of the batch, bytes of each packet but the last. Every row of the
            output must have room for as many results.

    Returns:
        packets that wait in the output, in the row that has most.
    """
    spec = carray(pointer(job_address), (1,), JOB)[0]
    ranks, slots = spec.ranks, spec.slots
    if rank == ranks:
        return receive_results(job_address, data, length, segment)
    job, size, per_packet = spec.job, spec.size, spec.values
    pool = carray(pointer(spec.pool), (slots,), SLOT)
    values = spec.registers
    counters = carray(pointer(spec.counters + rank * 8 * SLOT_EVENTS), (SLOT_EVENTS,), np.int64)
    me = np.uint32(1) << np.uint32(rank)
    value_bytes = VALUE_BYTES * per_packet
    for start in range(0, length, segment):
        packet = data + start
        counters[SlotEvent.RECEIVED] += 1
        reason = check(packet, min(segment, length - start), job, slots, size, value_bytes)
        if reason >= 0:
            counters[reason] += 1
            continue
        kind = load8(packet)
        has_values = kind >> 4 == MSG_VALUES
        chunk = load32(packet + 2)
        index = load16(packet + 6)
        slot = index & SLOT_MASK
        version = index >> 15
        registers = pool[slot]
        stored = values + (slot * 2 + version) * value_bytes
        ahead = np.int64(np.int32(np.uint32(chunk - np.int64(registers.newest))))
        e0 = load_signed8(packet + 8)
        e1 = load_signed8(packet + 9)

        fresh = False
        if ahead == slots:
            fresh = True
            registers.newest = np.uint32(chunk)
            registers.seen[version] = me
            registers.count[version] = 1
            registers.final[version] = 0
            registers.e0[version] = e0
            registers.e1[version] = e1
            if has_values:
                copy_swapped(packet + PREFIX_BYTES, stored, per_packet)
        elif ahead == 0:
            if registers.seen[version] & me:
                counters[SlotEvent.DUPLICATES] += 1
            else:
                fresh = True
                registers.seen[version] |= me
                registers.count[version] += 1
                registers.e0[version] = max(registers.e0[version], e0)
                registers.e1[version] = max(registers.e1[version], e1)
                if has_values:
                    add_swapped(packet + PREFIX_BYTES, stored, per_packet)
        elif ahead == -slots:
            counters[SlotEvent.PREVIOUS] += 1
        else:
            counters[SlotEvent.STALE] += 1
            continue

        if fresh:
            counters[SlotEvent.CONTRIBUTIONS] += 1
        if registers.count[version] != ranks or not registers.seen[version] & me:
            continue
        row, out_job = TO_ALL, job
        if spec.leaf and not registers.final[version]:
            if ahead < 0:
                continue  # the generation before, which the parent has not answered
            counters[SlotEvent.PARTIALS if fresh else SlotEvent.PARTIALS_AGAIN] += 1
            row, out_job = to_rank(ranks), spec.parent_job
        elif fresh:
            counters[SlotEvent.RESULTS] += 1
        else:
            counters[SlotEvent.RETRANSMITTED] += 1
            row = to_rank(rank)
        out = append(spec, row, kind, out_job, chunk, index, int(registers.e0[version]), int(registers.e1[version]))
        if has_values:
            copy_swapped(stored, out, per_packet)
    return int(spec.waiting)
