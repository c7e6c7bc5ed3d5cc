"""The fault injectors of the software switch: to and from those below, to and from the parent."""

from protocol.faults import FaultInjector, FaultRates
from protocol.packets import PacketBatch
from switch.core import Member


class PortFaults:
    """Faults of all directions, from one seed.

    Args:
        below_in, below_out: of what workers and leaf switches send, and of what they are sent.
        parent_in, parent_out: of what a leaf's parent sends, and of what it is sent.
        seed: of all.

    Attributes:
        any: whether any fault can happen.
        immediate: whether no packet is ever held back or repeated.
    """

    def __init__(
        self,
        below_in: FaultRates | None,
        below_out: FaultRates | None,
        parent_in: FaultRates | None,
        parent_out: FaultRates | None,
        *,
        seed: int,
    ) -> None:
        rates = {"in": below_in, "out": below_out, "up_in": parent_in, "up_out": parent_out}
        # Streams 0 and 1 are the workers': faults on both sides must not fall on the same packets.
        self._injectors = {
            name: FaultInjector(each or FaultRates(), seed=seed, stream=stream)
            for stream, (name, each) in enumerate(rates.items(), 2)
        }
        self.any = any(injector.rates.any for injector in self._injectors.values())
        self.immediate = all(injector.rates.immediate for injector in self._injectors.values())

    def arriving(self, member: Member, batch: PacketBatch, now: float) -> PacketBatch:
        """What goes on at once of a batch that a member has sent."""
        return self._injector(member, "in").apply(batch, now, flow=member.flow)

    def leaving(self, member: Member, batch: PacketBatch, now: float) -> PacketBatch:
        """What goes on at once of a batch for a member."""
        return self._injector(member, "out").apply(batch, now, flow=member.flow)

    def next_due(self) -> float | None:
        """When the next packet that is held back goes on."""
        waits = [injector.next_due() for injector in self._injectors.values()]
        return min((due for due in waits if due is not None), default=None)

    def due_from_members(self, now: float) -> list[tuple[int, PacketBatch]]:
        """Packets that members have sent and whose wait is over, with their flows."""
        return self._injectors["in"].due(now) + self._injectors["up_in"].due(now)

    def due_to_members(self, now: float) -> list[tuple[int, PacketBatch]]:
        """Packets for members whose wait is over, with their flows."""
        return self._injectors["out"].due(now) + self._injectors["up_out"].due(now)

    def attach(self, member: Member) -> None:
        """Tells compiled code of the faults of a new member."""
        for direction in ("in", "out"):
            injector = self._injector(member, direction)
            member.record[f"faults_{direction}"] = injector.record(member.flow) if injector.rates.any else 0

    def forget(self, member: Member) -> None:
        """Drops what is remembered of a member."""
        for direction in ("in", "out"):
            self._injector(member, direction).forget(member.flow)

    def counters(self) -> dict[str, int]:
        """What happened, of the directions in which something can."""
        return {
            f"fault_{direction}_{name}": value
            for direction, injector in self._injectors.items()
            if injector.rates.any
            for name, value in injector.counters.items()
        }

    def _injector(self, member: Member, direction: str) -> FaultInjector:
        return self._injectors[f"up_{direction}" if member is member.job.parent else direction]
