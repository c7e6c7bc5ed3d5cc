"""What the controller asks the target for in packets, and waits for in packets: who is where, and clean pools."""

import itertools
from collections.abc import Callable
from typing import Any, Final

from protocol.control import format_address
from protocol.errors import WiresumError
from switch.controller.errors import ControllerError
from switch.controller.frames import arp_request, read_arp_reply
from switch.controller.installed import Neighbour
from switch.controller.program import Command, Reason, WiresumProgram
from switch.controller.replies import Replies
from switch.dataplane import JobSpec

_ARP_INTERVAL: Final = 0.3  # seconds between questions for a worker's MAC address
_ARP_SECONDS: Final = 3.0
_CLEAR_SECONDS: Final = 0.5  # for the target to clear a pool, and for each of its slots:
_CLEAR_SLOT_SECONDS: Final = 0.002
_CLEAR_ATTEMPTS: Final = 3


class Requests:
    """Thread-safe.

    Args:
        program: what the target runs.
        address, mac: of the switch.
        send: sends a packet-out, given its payload and its header.
    """

    def __init__(
        self, program: WiresumProgram, *, address: str, mac: int, send: Callable[[bytes, dict[str, int]], None]
    ) -> None:
        self._program, self._address, self._mac, self._send = program, address, mac, send
        self._replies = Replies()
        self._tags = itertools.cycle(range(1, 1 << 16))

    def take(self, packet: Any) -> None:
        """A packet-in has come."""
        header = self._program.info.read_packet_in(packet)
        if header.get("reason") == Reason.CLEARED:
            self._replies.post(("cleared", header["argument"]), True)
        elif header.get("reason") == Reason.ARP_REPLY and (reply := read_arp_reply(packet.payload)) is not None:
            host, mac = reply
            self._replies.post(("arp", host), Neighbour(mac, header["ingress_port"]))

    def fail(self, failure: WiresumError) -> None:
        """No packets will come any more: what waits for some, or ever will, raises this."""
        self._replies.fail(failure)

    def find_workers(self, spec: JobSpec) -> tuple[Neighbour, ...]:
        """Where each worker's host is and, after them, a leaf's parent, by ARP.

        Raises:
            ControllerError: some do not answer; the text names them.
            WiresumError: see `fail`.
        """

        def ask(key: tuple[str, str]) -> None:
            frame = arp_request(mac=self._mac, address=self._address, asked=key[1])
            self._send(frame, {"command": Command.FLOOD})

        ends = [(f"rank {spec.ranks_below(place)[0]}", worker) for place, worker in enumerate(spec.workers)]
        if spec.uplink is not None:
            ends.append(("the parent", spec.uplink.parent))
        hosts = dict.fromkeys(host for _, (host, _) in ends)
        found = self._replies.ask([("arp", host) for host in hosts], ask, every=_ARP_INTERVAL, within=_ARP_SECONDS)
        silent = [f"{name} at {format_address(address)}" for name, address in ends if ("arp", address[0]) not in found]
        if silent:
            verb = "does" if len(silent) == 1 else "do"
            raise ControllerError(
                f"{', '.join(silent)} {verb} not answer ARP from {self._address} on any port of the switch "
                f"within {_ARP_SECONDS:g} s"
            )
        return tuple(found["arp", host] for _, (host, _) in ends)

    def clear(self, base: int, slots: int) -> None:
        """Makes a pool as a new job must find it.

        Only the answer to the last request counts: one that is late might still be at work behind the job's back.

        Raises:
            ControllerError: there is no answer.
            WiresumError: see `fail`.
        """
        patience = _CLEAR_SECONDS + slots * _CLEAR_SLOT_SECONDS

        def ask(key: tuple[str, int]) -> None:
            self._send(b"", {"command": Command.CLEAR, "argument": key[1], "base": base, "slots": slots})

        for _ in range(_CLEAR_ATTEMPTS):
            if self._replies.ask([("cleared", next(self._tags))], ask, every=patience, within=patience):
                return
        raise ControllerError(
            f"the target has not cleared slots {base} to {base + slots - 1} "
            f"in {_CLEAR_ATTEMPTS} attempts of {patience:.1f} s"
        )
