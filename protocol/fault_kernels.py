"""Which packets of a batch meet which fault, decided by hashing: compiled, because it runs for every packet."""

import numpy as np
import numpy.typing as npt
from numba import carray

from protocol.constants import HEADER_BYTES, MSG_EXPONENTS, SLOT_MASK
from protocol.jit import kernel
from protocol.kernels import copy_bytes, mix64, pointer

# Bits of a packet's fate; the bit's position is the row of the rates, of the tally, and the number of the hash stream.
LOST = 1
DUPLICATED = 2
CORRUPTED = 4
DELAYED = 8
REORDERED = 16
HELD = DELAYED | REORDERED
KINDS = 5
WAIT_STREAM = 5  # how long a reordered packet waits
BITS_STREAM = 6  # which bits are flipped; the last of the streams, because it takes three numbers

TABLE_ROWS = 4 * (SLOT_MASK + 1)  # of each slot: two versions, two types

# Not one operand below may be a plain integer: numba turns uint64 with int64 into float64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_U1 = np.uint64(1)
_U3 = np.uint64(3)
_U8 = np.uint64(8)
_U11 = np.uint64(11)


@kernel
def derive(key: np.uint64, number: np.uint64) -> np.uint64:
    """The key of stream `number` below `key`: a SplitMix64 generator that starts at `key`, stepped to that number."""
    return mix64(key + _GOLDEN * (number + _U1))


@kernel
def uniform(key: np.uint64, number: np.uint64) -> float:
    """A number in [0, 1) from stream `number` of `key`."""
    return float(derive(key, number) >> _U11) * 2.0**-53


@kernel
def draw_fates(
    data: npt.NDArray[np.uint8],
    segment: int,
    key: np.uint64,
    rates: npt.NDArray[np.float64],
    table: npt.NDArray[np.uint64],
    fates: npt.NDArray[np.uint8],
    keys: npt.NDArray[np.uint64],
    tally: npt.NDArray[np.int64],
) -> int:
    """Decides the fate of each packet of a batch.

    Args:
        data: the packets, back to back, `segment` bytes each, the last one perhaps fewer.
        segment: bytes of a packet.
        key: of the flow.
        rates: by kind, shape (KINDS,).
        table: for each slot, version and type the latest header and how often it came before: shape (TABLE_ROWS, 2).
        fates: out, by packet.
        keys: out, by packet: the key of its streams.
        tally: by kind, shape (KINDS,); what happened is added.

    Returns:
        How many packets meet any fault.
    """
    touched = 0
    packets = (data.size + segment - 1) // segment
    for i in range(packets):
        start = i * segment
        stop = min(start + HEADER_BYTES, start + segment, data.size)
        header = np.uint64(0)
        for j in range(start, stop):
            header = (header << _U8) | np.uint64(data[j])
        kind = np.int64(header >> np.uint64(60))
        pool_index = np.int64(header & np.uint64(0xFFFF))
        row = (pool_index & SLOT_MASK) << 2 | (pool_index >> 15) << 1 | (1 if kind == MSG_EXPONENTS else 0)
        if table[row, 0] == header:
            table[row, 1] += _U1
        else:
            table[row, 0] = header
            table[row, 1] = np.uint64(0)
        keys[i] = derive(mix64(key ^ header), table[row, 1])

        fate = 0
        for k in range(KINDS):
            if rates[k] > 0.0 and uniform(keys[i], np.uint64(k)) < rates[k]:
                fate |= 1 << k
        if fate & LOST:
            fate = LOST
        elif fate & DELAYED:
            fate &= ~REORDERED
        fates[i] = fate
        if fate:
            touched += 1
            for k in range(KINDS):
                tally[k] += fate >> k & 1
    return touched


@kernel
def flip_bits(packet: npt.NDArray[np.uint8], key: np.uint64) -> None:
    """Flips one to three bits of the packet, in place, anywhere in it."""
    bits = np.uint64(packet.size) * _U8
    first = derive(key, np.uint64(BITS_STREAM)) % bits
    packet[first >> _U3] ^= np.uint8(_U1 << (first & np.uint64(7)))
    # Others stand apart from the first, so that they cannot undo it.
    for j in range(1, 1 + derive(key, np.uint64(BITS_STREAM + 3)) % _U3):
        other = (first + _U1 + derive(key, np.uint64(BITS_STREAM + j)) % (bits - _U1)) % bits
        packet[other >> _U3] ^= np.uint8(_U1 << (other & np.uint64(7)))


@kernel
def copy_going_on(
    data: npt.NDArray[np.uint8],
    segment: int,
    fates: npt.NDArray[np.uint8],
    keys: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint8],
) -> int:
    """Copies what goes on at once, with its damage and its duplicates, to the front of `out`.

    Args:
        data: the packets, as for `draw_fates`.
        segment: bytes of a packet.
        fates: by packet.
        keys: by packet.
        out: at least twice the size of `data`.

    Returns:
        How many bytes of `out` are used.
    """
    source, target = data.ctypes.data, out.ctypes.data
    used = 0
    begin = 0  # of the run of packets, not copied yet, to which nothing happened
    for i in range((data.size + segment - 1) // segment):
        fate = fates[i]
        if fate == 0:
            continue
        start = i * segment
        stop = min(start + segment, data.size)
        if fate & DUPLICATED:  # the duplicate ends the run before the packet itself
            copy_bytes(source + begin, target + used, stop - begin)
            used += stop - begin
            begin = start
        if fate & (LOST | HELD):
            copy_bytes(source + begin, target + used, start - begin)
            used += start - begin
            begin = stop
        elif fate & CORRUPTED:
            copy_bytes(source + begin, target + used, stop - begin)
            used += stop - begin
            begin = stop
            flip_bits(out[used - (stop - start) : used], keys[i])
    copy_bytes(source + begin, target + used, data.size - begin)
    return used + data.size - begin


# One flow's faults, for compiled code that passes batches through by itself; see FaultInjector.record.
FLOW = np.dtype(
    [
        ("key", "u8"),
        ("table", "i8"),  # addresses, of what `draw_fates` takes
        ("rates", "i8"),
        ("fates", "i8"),
        ("keys", "i8"),
        ("tally", "i8"),
        ("offered", "i8"),
        ("out", "i8"),  # address of room for `packets` packets of any size
        ("packets", "i8"),
    ],
    align=True,
)


@kernel
def pass_through(flow_address: int, data: int, size: int, segment: int) -> tuple[int, int]:
    """Passes a batch through faults of which none holds packets back or repeats them.

    Args:
        flow_address: of the FLOW record.
        data, size, segment: address and bytes of the batch, of at most as many packets as the flow has room for.

    Returns:
        address and bytes of what goes on: the batch itself, or a copy that the next call overwrites.
    """
    flow = carray(pointer(flow_address), (1,), FLOW)[0]
    fates = carray(pointer(flow.fates), (flow.packets,), np.uint8)
    keys = carray(pointer(flow.keys), (flow.packets,), np.uint64)
    batch = carray(pointer(data), (size,), np.uint8)
    rates = carray(pointer(flow.rates), (KINDS,), np.float64)
    table = carray(pointer(flow.table), (TABLE_ROWS, 2), np.uint64)
    tally = carray(pointer(flow.tally), (KINDS,), np.int64)
    carray(pointer(flow.offered), (1,), np.int64)[0] += (size + segment - 1) // segment
    if not draw_fates(batch, segment, flow.key, rates, table, fates, keys, tally):
        return data, size
    out = carray(pointer(flow.out), (size,), np.uint8)
    return int(flow.out), int(copy_going_on(batch, segment, fates, keys, out))


def new_table() -> npt.NDArray[np.uint64]:
    """An occurrence table of a new flow; pages of slots that are never used take no memory."""
    return np.zeros((TABLE_ROWS, 2), np.uint64)
