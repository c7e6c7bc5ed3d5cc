"""Which packets belong to which job, who its ranks are, how large its pool is, and what breaks the protocol's rules."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.constants import MAX_RANKS, MAX_SLOTS, PREFIX_BYTES, SLOT_MASK, VALUES_PER_PACKET
from wiresum.trace.captures import Integers
from wiresum.trace.packets import Fault, Mask, Table, Trace

_POWERS: Final = range(MAX_SLOTS.bit_length())
_ODD_ONE_IN: Final = 10


@dataclass(frozen=True, slots=True)
class Job:
    """One job at one switch, as the captures show it.

    Attributes:
        switch: IPv4 address.
        number: as the packets carry it.
        ranks: addresses, `address << 16 | port`, ascending; what the captures show of them, which may not be all.
        strangers: senders that are never answered while others are, or that are more than a job can have.
        slots: of the pool; if not `slots_known`, the least that fits, as too few chunks were seen to tell.
        values: values per packet.
        packets: the sound packets of the job's ranks, in the order of their times.
        is_result: for each of them, whether it comes from the switch.
        rank: for each of them, index into `ranks`.
        chunk: for each of them, the chunk number, counted from that of the first packet so that it never wraps.
        bad: packets that break a rule, which the switch must drop.
        first_tsi: the chunk number that `chunk` counts from.
        nodes: names by IPv4 address, of those that are known.
    """

    switch: int
    number: int
    ranks: Integers
    strangers: Integers
    slots: int
    slots_known: bool
    values: int
    packets: Table
    is_result: Mask
    rank: Integers
    chunk: Integers
    bad: Table
    first_tsi: int
    nodes: Mapping[int, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """What the ranks are called: by their node, with the port if it has several, otherwise `address:port`."""
        hosts = (self.ranks >> 16).tolist()
        return [
            self.nodes[host] if host in self.nodes and hosts.count(host) == 1 else self.named(rank)
            for host, rank in zip(hosts, self.ranks.tolist(), strict=True)
        ]

    @property
    def switch_address(self) -> str:
        """The switch's address as text."""
        return str(ipaddress.IPv4Address(self.switch))

    @property
    def switch_name(self) -> str:
        """What the switch is called: by its name if that is known, otherwise by its address."""
        return self.nodes.get(self.switch, self.switch_address)

    def named(self, address: int) -> str:
        """`name:port` or `address:port` of `address << 16 | port`."""
        known = self.nodes.get(address >> 16)
        return endpoint(address) if known is None else f"{known}:{address & 0xFFFF}"

    def chunk_of(self, tsi: npt.NDArray[np.uint32]) -> Integers:
        """Chunk numbers as `chunk` counts them."""
        found: Integers = (tsi - np.uint32(self.first_tsi)).astype(np.uint32).view(np.int32).astype(np.int64)
        return found

    def tsi(self, chunk: int) -> int:
        """The chunk number as packets carry it."""
        return (self.first_tsi + chunk) % 2**32


def endpoint(address: int) -> str:
    """`address:port` of `address << 16 | port`."""
    return f"{ipaddress.IPv4Address(address >> 16)}:{address & 0xFFFF}"


def find_jobs(trace: Trace, *, port: int) -> list[Job]:
    """The jobs of a trace by switch and number, in the order of their beginnings."""
    packets = trace.packets
    is_result = _is_result(packets, port)
    worker = np.where(is_result, packets["destination"], packets["source"])
    switch = np.where(is_result, packets["source"], packets["destination"]) >> 16
    # Without a whole header there is no job number either.
    known = packets["captured"] >= PREFIX_BYTES
    number_of = _correct_numbers(packets, known, worker << 16 ^ switch)
    key = np.where(known, switch << 8 | number_of, -1)
    jobs: list[Job] = []
    for each in np.unique(key[known]).tolist():
        rows = np.flatnonzero(key == each)
        jobs += [
            _job(each >> 8, each & 255, packets[part], is_result[part], worker[part])
            for part in _runs(packets, rows, is_result, worker)
        ]
    jobs = [job for job in jobs if len(job.packets) or len(job.bad)]
    return sorted(jobs, key=lambda job: int(job.packets["time"][0]) if len(job.packets) else int(job.bad["time"][0]))


def _correct_numbers(packets: Table, known: Mask, connection: Integers) -> Integers:
    """The job of each packet. The few of a worker that carry another number than the rest are marked as bad."""
    job = packets["job"].astype(np.int64)
    pairs, which, counts = np.unique(
        np.stack([connection[known], job[known]], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    # Ordered so, the last of a connection's rows is that of its most frequent number.
    order = np.lexsort((counts, pairs[:, 0]))
    last = np.searchsorted(pairs[order, 0], pairs[:, 0], side="right") - 1
    most = order[last]
    odd = counts * _ODD_ONE_IN < counts[most]
    rows = np.flatnonzero(known)
    wrong = odd[which.reshape(-1)]
    packets["fault"][rows[wrong]] = Fault.OTHER_JOB
    job[rows[wrong]] = pairs[most, 1][which.reshape(-1)][wrong]
    return job


def _is_result(packets: Table, port: int) -> Mask:
    """Which packets come from a switch. Between two switches, the one that speaks first is the leaf."""
    from_port, to_port = packets["source"] & 0xFFFF == port, packets["destination"] & 0xFFFF == port
    both = np.flatnonzero(from_port & to_port)
    if len(both):
        one, other = packets["source"][both], packets["destination"][both]
        pair = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
        _, first, which = np.unique(pair, axis=0, return_index=True, return_inverse=True)
        leaf = one[first][which.reshape(-1)]
        to_port[both] = one == leaf
    result: Mask = ~to_port
    return result


def _runs(packets: Table, rows: Integers, is_result: Mask, worker: Integers) -> Iterator[Integers]:
    """Jobs that had the same number one after the other: the ranks of a later one come when all before are gone."""
    members, which = np.unique(worker[rows], return_inverse=True)
    time = packets["time"][rows]
    first = np.full(len(members), np.iinfo(np.int64).max)
    last = np.full(len(members), np.iinfo(np.int64).min)
    np.minimum.at(first, which, time)
    np.maximum.at(last, which, time)
    answered = np.zeros(len(members), bool)
    answered[which[is_result[rows]]] = True
    run = np.zeros(len(members), np.int64)
    number, until, complete = 0, None, False
    for member in np.argsort(first, kind="stable").tolist():
        # Where nothing was answered, the ranks may just have spoken one after the other.
        if until is not None and first[member] > until and complete and answered[member]:
            number, until, complete = number + 1, None, False
        run[member] = number
        until = last[member] if until is None else max(until, last[member])
        complete |= bool(answered[member])
    for each in range(number + 1):
        yield rows[run[which] == each]


def _job(switch: int, number: int, packets: Table, is_result: Mask, worker: Integers) -> Job:
    sound = packets["fault"] == Fault.NONE
    slots, known = _pool(packets[sound])
    follows = _follows(packets, slots.bit_length() - 1)
    packets["fault"][sound & ~follows] = Fault.INDEX
    sound &= follows
    sizes = np.bincount(packets["kind"][sound] & 7, minlength=len(VALUES_PER_PACKET))
    size = int(np.argmax(sizes))
    odd = sound & (packets["kind"] & 7 != size)
    packets["fault"][odd] = Fault.OTHER_SIZE
    sound &= ~odd

    ranks, strangers = _members(is_result[sound], worker[sound])
    member = sound & np.isin(worker, ranks)
    kept = packets[member]
    first_tsi = int(kept["tsi"][0]) if len(kept) else 0
    chunk = (kept["tsi"] - np.uint32(first_tsi)).astype(np.uint32).view(np.int32).astype(np.int64)
    return Job(
        switch=switch,
        number=number,
        ranks=ranks,
        strangers=strangers,
        slots=slots,
        slots_known=known,
        values=VALUES_PER_PACKET[size],
        packets=kept,
        is_result=is_result[member],
        rank=np.searchsorted(ranks, worker[member]),
        chunk=chunk,
        bad=packets[packets["fault"] != Fault.NONE],
        first_tsi=first_tsi,
    )


def _follows(packets: Table, power: int) -> Mask:
    """Whether pool_index follows from tsi in a pool of 2^power slots."""
    tsi, index = packets["tsi"], packets["pool_index"]
    slot = tsi & np.uint32((1 << power) - 1) == index & SLOT_MASK
    follows: Mask = slot & (tsi >> np.uint32(power) & np.uint32(1) == index >> 15)
    return follows


def _pool(packets: Table) -> tuple[int, bool]:
    """The pool's size that explains the most packets, the least of those that do; and whether it is the only one."""
    counts = [int(np.count_nonzero(_follows(packets, power))) for power in _POWERS]
    best = max(counts)
    return 1 << counts.index(best), counts.count(best) == 1


def _members(is_result: Mask, worker: Integers) -> tuple[Integers, Integers]:
    everyone, which = np.unique(worker, return_inverse=True)
    results = np.bincount(which, weights=is_result, minlength=len(everyone))
    answered = results > 0
    if answered.any() and not answered.all():
        # One that contributes about as much as the others do is a rank, even if its results were not captured.
        sent = np.bincount(which, weights=~is_result, minlength=len(everyone))
        answered |= sent >= 0.5 * np.max(sent[answered])
        answered |= np.bool_(np.max(sent[answered]) == 0)
        everyone, strangers = everyone[answered], everyone[~answered]
    else:
        strangers = everyone[:0]
    if len(everyone) > MAX_RANKS:
        busy = np.argsort(-np.bincount(np.searchsorted(everyone, worker[np.isin(worker, everyone)])), kind="stable")
        strangers = np.union1d(strangers, everyone[busy[MAX_RANKS:]])
        everyone = np.sort(everyone[busy[:MAX_RANKS]])
    return everyone, strangers
