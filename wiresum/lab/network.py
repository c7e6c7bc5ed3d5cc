"""Builds a topology out of Mininet's nodes, shapes its links, and takes it away again."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from protocol.constants import DATA_PORT
from protocol.faults import FaultRates
from wiresum.lab.faults import FaultPlan, plan_faults
from wiresum.lab.interruption import signals_later
from wiresum.lab.kernel import Kernel, check_machine, kernel
from wiresum.lab.marks import VARIABLE, RunMark
from wiresum.lab.names import mount_names
from wiresum.lab.namespaces import HeldNamespaces
from wiresum.lab.programs import LabError, Program, run_in
from wiresum.lab.shaping import lose, lost_frames, offloads_off, sent, shape
from wiresum.lab.topology import LinkSpec, Topology

KINDS: Final = ("software", "model", "bmv2")
P4_VALUES: Final = (32, 64, 256)
_WIRE_SECONDS: Final = 3.0  # for a wire to say what it has counted
_SEED_STRIDE: Final = 1_000_003


@dataclass(frozen=True, kw_only=True)
class LabSettings:
    """What a network is made of.

    Attributes:
        topology: hosts, switches, links.
        kind: of all switches, one of KINDS.
        slots: slots of each switch, None for its default.
        values: values per packet that a P4 program is compiled for; None for its default.
        seed: of the faults.
        mechanism: of the faults, one of `faults.MECHANISMS`.
        frames_are_packets: turns segmentation offload off, so that captures show packets as they would be on a wire.
        offload: whether the software switch uses segmentation offload.

    Raises:
        ValueError: a value that cannot be.
        LabError: a kind of switch that cannot be in such a topology.
    """

    topology: Topology
    kind: str = "software"
    slots: int | None = None
    values: int | None = None
    seed: int = 0
    mechanism: str = "auto"
    frames_are_packets: bool = False
    offload: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a switch is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.kind != "software" and self.values not in (None, *P4_VALUES):
            raise ValueError(f"the P4 program adds {P4_VALUES} values per packet, not {self.values}")


class Lab:
    """A network that runs, from `__enter__` to `close`; needs root and Mininet. Only from the main thread.

        with Lab(LabSettings(topology=rack(4)), logs=folder) as lab:
            lab.host("h1").launch("sum", [...], environment=lab.worker_environment(0))

    Args:
        settings: what to build.
        logs: an existing folder for what its programs write.
        on_step: told what is being built.

    Attributes:
        net: Mininet's own object.
        plan: how faults are made.

    Raises:
        LabError: something is missing here, or did not start.
    """

    def __init__(
        self, settings: LabSettings, *, logs: Path, on_step: Callable[[str], None] = lambda text: None
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("programs end with the thread that starts them: build networks from the main thread")
        check_machine(bmv2=settings.kind == "bmv2")
        self.settings, self.topology = settings, settings.topology
        self.kernel: Kernel = kernel()
        self.plan: FaultPlan = plan_faults(settings.topology, settings.kind, self.kernel, settings.mechanism)
        self._logs = logs
        self._step = on_step
        self.mark = RunMark()
        self._wires: dict[str, Program] = {}
        self._nodes: list[Any] = []
        self._namespaces = HeldNamespaces()
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self.mark.id  # every process from here on can be told as ours
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        from mininet.link import Link
        from mininet.log import setLogLevel
        from mininet.net import Mininet
        from mininet.node import Node

        from wiresum.lab.nodes import SWITCHES, WorkerHost

        setLogLevel("critical")  # it writes to standard error, and we check results
        self.net = Mininet(controller=None, link=Link, build=False)
        for host in self.topology.hosts:
            self._step(f"making host {host.name} of {len(self.topology.hosts)}")
            self._nodes.append(self.net.addHost(host.name, cls=WorkerHost, ip=f"{host.address}/8"))
        for switch in self.topology.switches:
            cls = SWITCHES[self.settings.kind]
            self._nodes.append(self.net.addSwitch(switch.name, cls=cls, **self._params(switch)))
        for link in self.topology.links:
            self._step(f"linking {link.child} to {link.parent}")
            ends = self.net[link.child], self.net[link.parent]
            if self._wired(link):
                middle = Node(f"w{link.child}", inNamespace=True)
                self._nodes.append(middle)
                self.net.addLink(ends[0], middle)
                self.net.addLink(middle, ends[1])
            else:
                self.net.addLink(*ends)
        self.net.build()
        mount_names(self.topology, [self.net[host.name].pid for host in self.topology.hosts], self.mark.scratch)
        for link in self.topology.links:
            self._step(f"setting up the link of {link.child}")
            self._shape(link)
        for number, started in enumerate(self.net.switches, 1):
            self._step(f"starting switch {started.name}, {number} of {len(self.net.switches)}")
            started.start(self.net.controllers)
        for node in self._all_nodes():
            self._namespaces.hold(node.pid)

    def _params(self, switch: Any) -> dict[str, Any]:
        settings = self.settings
        params: dict[str, Any] = {
            "address": switch.address,
            "slots": settings.slots,
            "seed": settings.seed,
            "logs": self._logs,
            "scratch": self.mark.scratch,
        }
        if switch.parent is not None:
            params["parent"] = self.net[switch.parent].control
        if settings.kind != "software":
            return params | ({} if settings.values is None else {"values": settings.values})
        params["offload"] = settings.offload
        # Or the same packet would meet the same fate everywhere.
        params["seed"] = settings.seed + _SEED_STRIDE * self.topology.switches.index(switch)
        if self.plan.mechanism == "injector":
            if hosts := self.topology.hosts_of(switch.name):
                link = self.topology.link_of(hosts[0].name)  # as all its others
                params |= {"faults_in": link.up.fault_rates(), "faults_out": link.down.fault_rates()}
            if switch.parent is not None:
                trunk = self.topology.link_of(switch.name)
                params |= {"faults_up_out": trunk.up.fault_rates(), "faults_up_in": trunk.down.fault_rates()}
        return params

    def interfaces(self, link: LinkSpec) -> tuple[tuple[int, str], tuple[int, str]]:
        """The link's two ends, below and above: a process in the namespace, and the interface's name."""
        child, parent = self.net[link.child], self.net[link.parent]
        if not self._wired(link):
            ((low, high),) = child.connectionsTo(parent)
            return (child.pid, low.name), (parent.pid, high.name)
        middle = next(node for node in self._nodes if node.name == f"w{link.child}")
        ((low, _),), ((_, high),) = child.connectionsTo(middle), middle.connectionsTo(parent)
        return (child.pid, low.name), (parent.pid, high.name)

    def _shape(self, link: LinkSpec) -> None:
        low, high = self.interfaces(link)
        netem = self.plan.mechanism == "netem"
        for end, direction in ((low, link.up), (high, link.down)):
            if self._without_offloads:
                offloads_off(*end)
            shape(*end, direction, self.kernel, netem=netem, segment_tcp=self.plan.ordinary_loss)
        if self.plan.ordinary_loss:
            for end, direction in ((high, link.up), (low, link.down)):  # at the far end of each direction
                if direction.loss:
                    lose(*end, direction.loss, spare_udp_port=DATA_PORT)
        if self._wired(link):
            self._wire(link)

    @property
    def _without_offloads(self) -> bool:
        """Whether every link does without segmentation offload; P4 switches do so anyway."""
        return self.settings.frames_are_packets or self.plan.mechanism in ("netem", "wire")

    @property
    def frames_are_packets(self) -> bool:
        """Whether segmentation offload is off everywhere."""
        return self._without_offloads or self.settings.kind != "software"

    def _wired(self, link: LinkSpec) -> bool:
        return self.plan.mechanism == "wire" and (link.up.faulty or link.down.faulty)

    def _wire(self, link: LinkSpec) -> None:
        from wiresum.lab.nodes import fault_text, own_environment, prepare

        middle = next(node for node in self._nodes if node.name == f"w{link.child}")
        prepare(middle)
        below, above = (interface.name for interface in middle.intfList())
        for name in (below, above):
            run_in(middle.pid, "ip", "link", "set", name, "up")
            offloads_off(middle.pid, name)
        words = ["-m", "wiresum.lab.wire", below, above, "--seed", f"{self.settings.seed} {link.child}"]
        for option, rates in (("--faults", link.up.fault_rates()), ("--back", link.down.fault_rates())):
            words += [option, fault_text(rates)] if rates != FaultRates() else []
        program = Program(
            f"wire of {link.child}",
            [sys.executable, *words],
            namespace=middle.pid,
            environment=own_environment(),
            log=self._logs / f"wire-{link.child}.log",
        )
        self._wires[link.child] = program
        program.await_line("wire ready", 60)

    def host(self, name: str) -> Any:
        """A host by its name, as Mininet's node."""
        return self.net[name]

    def switch(self, name: str) -> Any:
        """A switch by its name, as Mininet's node."""
        return self.net[name]

    def control_of(self, host: str) -> str:
        """The control address of the switch that a host is at."""
        return str(self.net[self.topology.link_of(host).parent].control)

    def worker_environment(self, rank: int, world: int | None = None) -> dict[str, str]:
        """What torchrun and wiresum would set for the worker of that rank, without the rest of the environment."""
        host = self.topology.hosts[rank]
        interface = self.interfaces(self.topology.link_of(host.name))[0][1]
        world = world or len(self.topology.hosts)
        return {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "GROUP_RANK": str(rank),
            "ROLE_RANK": str(rank),
            "ROLE_NAME": "default",
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_WORLD_SIZE": str(world),
            "ROLE_WORLD_SIZE": str(world),
            "MASTER_ADDR": self.topology.hosts[0].address,
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": self.mark.id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": interface,
            "TP_SOCKET_IFNAME": interface,
            "WIRESUM_SWITCH": self.control_of(host.name),
            VARIABLE: self.mark.id,
        }

    def programs(self) -> Iterator[Program]:
        """What the network itself runs: switches and wires."""
        for switch in self.topology.switches:
            yield from self.net[switch.name].programs
        yield from self._wires.values()

    def failed_programs(self) -> list[tuple[Program, int]]:
        """Those of the network's own programs that have ended, which none should."""
        return [(program, code) for program in self.programs() if (code := program.poll()) is not None]

    def lost_nodes(self) -> list[str]:
        """Hosts and switches whose shell has ended, so that nothing can be started there any more."""
        return [node.name for node in self._all_nodes() if node.shell is None or node.shell.poll() is not None]

    def _all_nodes(self) -> Iterator[Any]:
        for node in self._nodes:
            yield node
            if (controller := getattr(node, "_controller_node", None)) is not None:
                yield controller

    def counters(self, switch: str) -> dict[str, Any]:
        """What `wiresum stats --json` says of a switch; {"error": ...} if it does not answer."""
        found: dict[str, Any] = self._ask(switch, ["-m", "wiresum", "stats"], ["--json"])
        return found

    def slots(self, switch: str, again: float | None = None) -> Any:
        """A switch's jobs with their waiting slots, see `slots.read_slots`; {"error": ...} if it does not answer."""
        return self._ask(switch, ["-m", "wiresum.lab.slots"], [] if again is None else ["--again", str(again)])

    def _ask(self, switch: str, program: Sequence[str], options: Sequence[str]) -> Any:
        """What a program of ours, run at a switch with its control address, writes as JSON."""
        from wiresum.lab.nodes import own_environment

        node = self.net[switch]
        where = getattr(node, "_controller_node", None) or node
        command = ["env", f"PYTHONPATH={own_environment()['PYTHONPATH']}", sys.executable, *program, node.control]
        command += options
        try:
            return json.loads(run_in(self._namespaces.place(where.pid), *command, timeout=60))
        except (LabError, ValueError) as error:
            return {"error": str(error).removeprefix(f"{' '.join(command)}: ").removeprefix("wiresum: ")}

    def link_counters(self, link: LinkSpec) -> dict[str, dict[str, int]]:
        """Frames and bytes of a link since it was made: `up` as counted at the lower end, `down` at the upper one.

        A direction that cannot be read, such as one whose interface somebody has removed, is left out.
        """
        low, high = ((self._namespaces.place(pid), interface) for pid, interface in self.interfaces(link))
        found = {}
        for name, near, far, direction in (("up", low, high, link.up), ("down", high, low, link.down)):
            with contextlib.suppress(LabError):
                found[name] = sent(*near)
                if self.plan.ordinary_loss:
                    found[name]["lost_ordinary"] = lost_frames(*far) if direction.loss else 0
        return found

    def wire_counters(self) -> dict[str, dict[str, dict[str, int]]]:
        """Ends the wires; what each has counted, "there" (up) and "back" (down), by the link's lower end.

        Of a wire that was killed, nothing is known: {}.
        """
        found: dict[str, dict[str, dict[str, int]]] = {}
        for child, wire in self._wires.items():
            wire.end(grace=_WIRE_SECONDS)
            found[child] = {}
            with contextlib.suppress(ValueError, IndexError):
                found[child] = json.loads(wire.said().splitlines()[-1])
        return found

    def close(self) -> None:
        """Ends every process and namespace of the network; idempotent. Ctrl-C waits until it is done."""
        with signals_later():
            for wire in self._wires.values():
                wire.end(grace=1.0)
            for node in reversed(self._nodes):
                with contextlib.suppress(OSError, AttributeError):
                    node.terminate()
            self._nodes.clear()
            self._namespaces.close()
            if self._before is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = self._before
            self.mark.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
