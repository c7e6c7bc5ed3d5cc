"""The programmable switch: packets and the time in, packets out. No sockets, no threads, no clock.

It does as BMv2's simple_switch does, with these differences, which are on purpose:

- Where BMv2 ends (assert, assume, a stack index out of range, division by zero) or would not return (endless loops),
  the packet is dropped, counted and logged. An index of a register, counter or meter that is out of range has no effect
  and is counted; BMv2 does the same when it is built for debugging, and crashes otherwise.
- Fields of headers that were never valid are 0; in BMv2 they hold what some earlier packet left there.
- A field int<n> that is set to a number from 2^(n-1) up, as by reading a register, is negative then; not in BMv2.
- One packet is run to its end before the next begins; BMv2's ingress and egress run beside each other.
"""

from __future__ import annotations

import logging
import os
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from switch.model.checksums import algorithm
from switch.model.compile import Compiled, compile_program
from switch.model.context import Context, Digest, Fault, SwitchCounters
from switch.model.errors import ModelError
from switch.model.program import Program
from switch.model.replication import Replica
from switch.model.state import SwitchState, build_state
from switch.model.trace import Trace

_log = logging.getLogger(__name__)

DROP_PORT = 511
MAX_PASSES = 10_000  # through ingress and egress, of one packet with its copies
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6  # instance types

Output = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Functions:
    ingress: Callable[..., Any]
    egress: Callable[..., Any]
    clone: Callable[..., Any] | None


class ModelSwitch:
    """Runs a compiled P4 program (v1model), as BMv2's simple_switch would.

    Args:
        program: what to run.
        cpu_port: for the shells around; the core treats it as any port.
        drop_port: packets to it are dropped.
        seed: of the program's random numbers.
        started: seconds that timestamps count from; None: the time of the first packet.
    """

    def __init__(
        self,
        program: Program,
        *,
        cpu_port: int | None = None,
        drop_port: int = DROP_PORT,
        seed: int = 0,
        started: float | None = None,
    ) -> None:
        self.program, self.cpu_port, self.drop_port = program, cpu_port, drop_port
        self.state: SwitchState = build_state(program)
        self.value_sets: dict[str, set[int]] = {name: set() for name in program.value_sets}
        self._counters = SwitchCounters()
        self._started = started
        self._x = Context(seed)
        self._plain = self._bind(compile_program(program))
        self._traced: _Functions | None = None
        self._groups = self.state.replication.groups

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes, **options: Any) -> ModelSwitch:
        """A switch for a compiled program in a file, or in a file's bytes; `options` are the class's.

        Raises:
            ProgramError, UnsupportedError, OSError: see `Program.load`.
        """
        return cls(Program.load(source), **options)

    def _bind(self, compiled: Compiled) -> _Functions:
        """Runs generated code with its global names bound to this switch's state."""
        state = self.state
        makers: dict[str, Callable[..., Any]] = {
            "S": struct.Struct,
            "R": lambda name: state.registers[name].cells,
            "CP": lambda name: state.counters[name].packets,
            "CB": lambda name: state.counters[name].bytes,
            "ME": lambda name: state.meters[name].execute,
            "T": lambda name: state.tables[name],
            "L": lambda name: state.tables[name].lookup,
            "H": lambda _, name: algorithm(name),
            "VS": lambda name: self.value_sets[name],
        }
        names: dict[str, Any] = {"DROP": self.drop_port, "Fault": Fault, "from_bytes": int.from_bytes}
        for name, (kind, *details) in compiled.objects.items():
            names[name] = makers[kind](*details)
        exec(compiled.code, names)
        return _Functions(names["ingress"], names["egress"], names.get("clone"))

    @property
    def counters(self) -> SwitchCounters:
        """What the switch has counted so far."""
        self._counters.parser_errors = self._x.parser_errors
        self._counters.bad_indexes = self._x.bad_indexes
        self._counters.lost_digests = self._x.lost_digests
        return self._counters

    def take_digests(self) -> list[Digest]:
        """The digests since the last call."""
        found, self._x.digests = self._x.digests, []
        return found

    def reset(self) -> None:
        """Back to what the program says, for tables and all else that the control plane can write."""
        self.state.reset()
        for values in self.value_sets.values():
            values.clear()
        self._x.digests = []

    def receive(self, port: int, packet: bytes, now: float) -> list[Output]:
        """Takes a packet that came to `port` at `now` seconds; returns what leaves, as (port, packet) in order."""
        return self._receive(self._plain, port, packet, now)

    def trace(self, port: int, packet: bytes, now: float) -> Trace:
        """The same as `receive`, and an account of it: `str` of the result; `out` is what leaves."""
        if self._traced is None:
            self._traced = self._bind(compile_program(self.program, trace=True))
        trace = self._x.trace = Trace(self.program, port, packet)
        try:
            trace.out = self._receive(self._traced, port, packet, now)
        finally:
            self._x.trace = None
        return trace

    def _receive(self, functions: _Functions, port: int, packet: bytes, now: float) -> list[Output]:
        if self._started is None:
            self._started = now
        ts = int((now - self._started) * 1e6)
        x, counters = self._x, self._counters
        counters.received += 1
        x.port = port
        try:
            found = functions.ingress(x, packet, port, NORMAL, now, ts, None)
        except Exception as error:
            found = self._fault(error)
        if x.clones or x.again:
            return self._rest(functions, now, ts, found)
        if not found:
            counters.dropped += found is None
            return []
        group, spec, phv = found
        out: list[Output] = []
        egress = functions.egress
        kind = REPLICATED if group else NORMAL
        for to, rid in self._copies(group) if group else ((spec, None),):
            try:
                data = egress(x, phv, to, rid, kind, now, ts)
            except Exception as error:
                data = self._fault(error)
            if data is None:
                counters.dropped += 1
            elif data is not False:
                out.append((to, data))
        if x.egress_clones or x.again:
            return out + self._rest(functions, now, ts)
        counters.sent += len(out)
        return out

    def _copies(self, group: int) -> Sequence[Replica]:
        copies = self._groups.get(group, ())
        self._counters.dropped += not copies
        return copies

    def _fault(self, error: Exception) -> bool:
        """Counts what made a pass end. False: nothing came of it."""
        self._counters.faults += 1
        _log.error("%s: packet dropped: %s", self.program.name or "program", error)
        if self._x.trace is not None:
            self._x.trace.note(f"dropped: {error}")
        return False

    def _rest(self, functions: _Functions, now: float, ts: int, found: Any = False) -> list[Output]:
        """Runs everything that a packet has led to until nothing is left, clones before the packet itself."""
        x, counters = self._x, self._counters
        out: list[Output] = []
        jobs: deque[tuple[int, int | None, int, int, tuple[Any, ...]]] = deque()
        passes = 0
        self._after_ingress(functions, found, now, jobs)
        self._take_egress_clones(jobs)
        while jobs or x.again:
            passes += 1
            if passes > MAX_PASSES:
                jobs.clear()
                x.again.clear()
                self._fault(ModelError(f"more than {MAX_PASSES} passes for one packet"))
                break
            if not jobs:
                packet, kind, kept, port = x.again.pop(0)
                x.port = port
                if x.trace is not None:
                    x.trace.again(kind, packet)
                try:
                    found = functions.ingress(x, packet, port, kind, now, ts, kept)
                except Exception as error:
                    found = self._fault(error)
                self._after_ingress(functions, found, now, jobs)
                continue
            to, rid, kind, longest, phv = jobs.popleft()
            try:
                data = functions.egress(x, phv, to, rid, kind, now, ts)
            except Exception as error:
                data = self._fault(error)
            if data is None:
                counters.dropped += 1
            elif data is not False:
                out.append((to, data[:longest] if longest else data))
            self._take_egress_clones(jobs)
        counters.sent += len(out)
        return out

    def _after_ingress(self, functions: _Functions, found: Any, now: float, jobs: deque[Any]) -> None:
        """Queues what ingress decided for egress: its clones, and the packet or its copies."""
        x = self._x
        clones, x.clones = x.clones, []
        for packet, port, session, kept in clones:
            assert functions.clone is not None
            targets = self.state.replication.clones(session)
            if targets:
                try:
                    phv = functions.clone(x, packet, port, now, kept)
                except Exception as error:
                    self._fault(error)
                    continue
                longest = self.state.replication.clone_sessions[session].truncate_bytes
                jobs.extend((to, rid, INGRESS_CLONE, longest, phv) for to, rid in targets)
        if not found:
            self._counters.dropped += found is None
            return
        group, spec, phv = found
        if group:
            jobs.extend((to, rid, REPLICATED, 0, phv) for to, rid in self._copies(group))
        else:
            jobs.append((spec, None, NORMAL, 0, phv))

    def _take_egress_clones(self, jobs: deque[Any]) -> None:
        clones, self._x.egress_clones = self._x.egress_clones, []
        for session, phv in clones:
            targets = self.state.replication.clones(session)
            if targets:
                longest = self.state.replication.clone_sessions[session].truncate_bytes
                jobs.extend((to, rid, EGRESS_CLONE, longest, phv) for to, rid in targets)
