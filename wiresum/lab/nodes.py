"""wiresum's switches as Mininet nodes, for any Mininet script; importing this needs the package `mininet`.

    net = Mininet(controller=None, link=Link, build=False)
    switch = net.addSwitch("s1", cls=SoftwareSwitch)  # or ModelSwitch, Bmv2Switch
    for name in ("h1", "h2"):
        net.addLink(net.addHost(name, cls=WorkerHost), switch)
    net.start()
    net["h1"].cmd("WIRESUM_SWITCH=" + switch.control + " python train.py")

Every switch lives in a namespace of its own, hands on the hosts' ordinary traffic, and has an address among them, so
nothing of it is seen in the namespace of the machine.
"""

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mininet.link import Link
from mininet.node import Host, Node, Switch

from protocol.constants import CONTROL_PORT, DATA_PORT
from protocol.faults import FaultRates
from wiresum.lab.marks import VARIABLE
from wiresum.lab.namespaces import claim_namespace
from wiresum.lab.programs import LabError, Program, run_in
from wiresum.lab.shaping import offloads_off

_BRIDGE: Final = "br0"
_NETMASK: Final = "8"  # of 10.0.0.0, as in every Mininet
_UP_SECONDS: Final = 20.0
_READY_SECONDS: Final = 120.0  # the first start compiles kernels
_GRPC_PORT: Final = 9559
_CPU_PORT: Final = 510
_QUIET: Final = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
# The control service's connections carry a packet now and then. Where that is lost a few times in a row, time-outs that
# double each time would soon be longer than a peer may be silent. The kernel doubles on for streams that are not thin.
_STEADY: Final = ("net.ipv4.tcp_thin_linear_timeouts=1",)
# Three tries to find a neighbour, one a second, are too few on links with loss.
_PATIENCE: Final = ("mcast_probes", "20", "retrans", "200")
_MANAGEMENT: Final = ("192.168.254.1", "192.168.254.2")  # target and controller, on a link that nobody else sees
PACKAGES_FOLDER: Final = str(Path(__file__).resolve().parents[2])


def own_command(*words: str) -> list[str]:
    """A command line that runs `wiresum` by this interpreter."""
    return [sys.executable, "-m", "wiresum", *words]


def own_environment() -> dict[str, str]:
    """This process's environment, in which `own_command` works from any directory."""
    paths = [PACKAGES_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def prepare(node: Any) -> None:
    """Lets a node reach its own address, spares it the chatter of IPv6, and says which run it belongs to, if to one."""
    if VARIABLE in os.environ:
        claim_namespace(node.pid, os.environ[VARIABLE])
    run_in(node.pid, "ip", "link", "set", "lo", "up")
    run_in(node.pid, "sysctl", "-qw", *_QUIET, *_STEADY)


def be_patient(pid: int, interface: str) -> None:
    """Lets neighbours be found through an interface even if many packets are lost."""
    run_in(pid, "ip", "ntable", "change", "name", "arp_cache", "dev", interface, *_PATIENCE)


def bring_up(interfaces: Sequence[Any]) -> None:
    """Sets the links of these interfaces up at both ends, and waits until the kernel sends packets through them.

    Raises:
        LabError: it does not within some seconds.
    """
    ends = [end for interface in interfaces for end in (interface.link.intf1, interface.link.intf2)]
    for end in ends:
        run_in(end.node.pid, "ip", "link", "set", end.name, "up")
        be_patient(end.node.pid, end.name)
    deadline = time.monotonic() + _UP_SECONDS
    for end in ends:
        # An end that was up before its peer drops what it is given until the kernel has looked again.
        while json.loads(run_in(end.node.pid, "ip", "-j", "link", "show", end.name))[0]["operstate"] != "UP":
            if time.monotonic() > deadline:
                raise LabError(f"{end.name} is not up within {_UP_SECONDS:g} s")
            time.sleep(0.02)


class WorkerHost(Host):  # type: ignore[misc]
    """A host that runs workers."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name, **params)
        self.programs: list[Program] = []
        prepare(self)

    def addIntf(self, intf: Any, *args: Any, **options: Any) -> None:  # noqa: N802 - Mininet's name
        """Takes an interface, whatever is at its other end."""
        super().addIntf(intf, *args, **options)
        be_patient(self.pid, intf.name)

    def launch(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Program:
        """Starts a command here; `options` are those of `Program`."""
        program = Program(name, command, namespace=self.pid, environment=environment, **options)
        self.programs.append(program)
        return program

    def terminate(self) -> None:
        """Ends everything that was launched, then the host."""
        for program in self.programs:
            program.end(grace=0)
        super().terminate()


class WiresumSwitch(Switch):  # type: ignore[misc]
    """What all kinds have in common.

    Args:
        name: with a number in it, such as s1.
        address: IPv4 address among the hosts; by default 10.254.N.1 for sN.
        slots, seed: see `wiresum switch --help`.
        logs: folder for what its programs write.
        scratch: folder for their sockets.
        parent: control address of the switch above, in a tree.
        above: instead of that, the address of the switch above, which is of the same kind.

    Attributes:
        control: "host:port" of its control service, as hosts see it: for WIRESUM_SWITCH.
        programs: what it runs, after `start`.
    """

    kind = ""

    def __init__(
        self,
        name: str,
        *,
        address: str | None = None,
        slots: int | None = None,
        seed: int = 0,
        logs: Path | None = None,
        scratch: Path | None = None,
        parent: str | None = None,
        above: str | None = None,
        **params: Any,
    ) -> None:
        params["inNamespace"] = True
        super().__init__(name, **params)
        self.address = address or f"10.254.{int(re.sub(r'[^0-9]', '', name)) % 256}.1"
        self.control = self.control_at(self.address)
        self.slots, self.seed, self.logs, self.scratch = slots, seed, logs, scratch
        self.parent = parent if above is None else self.control_at(above)
        self.programs: list[Program] = []
        prepare(self)

    @classmethod
    def control_at(cls, address: str) -> str:
        """The control address of a switch of this kind by its address among the hosts."""
        return f"{address}:{CONTROL_PORT}"

    def data_interfaces(self) -> list[Any]:
        """Its Mininet interfaces by port, without the loopback."""
        return [self.intfs[port] for port in sorted(self.intfs) if self.intfs[port].name != "lo"]

    def launch(self, name: str, command: Sequence[str], *, node: Any = None) -> Program:
        """Starts one of its programs."""
        program = Program(
            name,
            command,
            namespace=(node or self).pid,
            environment=own_environment(),
            log=None if self.logs is None else self.logs / f"{name.replace(' ', '-')}.log",
        )
        self.programs.append(program)
        return program

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Ends its programs and removes its interfaces."""
        for program in reversed(self.programs):
            program.end()
        super().stop(deleteIntfs)

    def terminate(self) -> None:
        """Ends everything at once."""
        for program in self.programs:
            program.end(grace=0)
        super().terminate()


class SoftwareSwitch(WiresumSwitch):
    """`wiresum switch` on the address of a Linux bridge, which carries the ordinary traffic.

    Args:
        faults_in, faults_out: faults in what comes to it and in what it sends, at all its links down.
        faults_up_in, faults_up_out: the same at its link up.
        offload: whether to use segmentation and receive offload.
        options: further options of `wiresum switch`.
    """

    kind = "software"

    def __init__(
        self,
        name: str,
        *,
        faults_in: FaultRates | None = None,
        faults_out: FaultRates | None = None,
        faults_up_in: FaultRates | None = None,
        faults_up_out: FaultRates | None = None,
        offload: bool = True,
        options: Sequence[str] = (),
        **params: Any,
    ) -> None:
        super().__init__(name, **params)
        self.faults = {"in": faults_in, "out": faults_out, "up-in": faults_up_in, "up-out": faults_up_out}
        self.offload = offload
        self.options = tuple(options)

    def start(self, controllers: Any) -> None:
        """Bridges its interfaces and starts the switch.

        Raises:
            LabError: the switch did not get ready.
        """
        run_in(self.pid, "ip", "link", "add", _BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        for interface in self.data_interfaces():
            run_in(self.pid, "ip", "link", "set", interface.name, "master", _BRIDGE)
        run_in(self.pid, "ip", "address", "add", f"{self.address}/{_NETMASK}", "dev", _BRIDGE)
        run_in(self.pid, "ip", "link", "set", _BRIDGE, "up")
        be_patient(self.pid, _BRIDGE)
        bring_up(self.data_interfaces())
        words = ["switch", "--bind", self.address, "--seed", str(self.seed)]
        words += ["--port", str(DATA_PORT), "--control-port", str(CONTROL_PORT)]
        for name, rates in self.faults.items():
            if rates is not None and rates.any:
                words += [f"--faults-{name}", fault_text(rates)]
        words += [] if self.slots is None else ["--slots", str(self.slots)]
        words += [] if self.parent is None else ["--parent", self.parent]
        words += [] if self.offload else ["--no-offload"]
        command = own_command(*words, *self.options)
        self.launch(self.name, command).await_line("wiresum switch ready", _READY_SECONDS)


def fault_text(rates: FaultRates) -> str:
    """Rates as `FaultRates.parse` reads them."""
    default = FaultRates()
    found = ((name, getattr(rates, name)) for name in FaultRates.__dataclass_fields__)
    return ",".join(f"{name}={value!r}" for name, value in found if value != getattr(default, name))


class _P4Switch(WiresumSwitch):
    """The P4 program on a target, with its controller in a namespace of its own behind a port of the switch.

    Args:
        values: per packet, 32, 64 or 256.
    """

    def __init__(self, name: str, *, values: int = 64, **params: Any) -> None:
        super().__init__(name, **params)
        self.values = values
        self._controller_address = self.control.rpartition(":")[0]
        self._controller_node: Any = None
        # Two of BMv2 with one id collide, even across namespaces.
        self.device_id = int.from_bytes(os.urandom(3)) + 1

    @classmethod
    def control_at(cls, address: str) -> str:
        """That of the controller, whose address follows the switch's."""
        below, _, last = address.rpartition(".")
        return f"{below}.{int(last) + 1}:{CONTROL_PORT}"

    def target_command(self, ports: Sequence[str]) -> list[str]:
        """The target's command line; `ports` as NUMBER@INTERFACE."""
        raise NotImplementedError

    def start(self, controllers: Any) -> None:
        """Starts the target and its controller.

        Raises:
            LabError: one of them did not get ready.
        """
        node = self._controller_node = Node(f"c{self.name}", inNamespace=True)
        prepare(node)
        Link(node, self)
        ports = self.data_interfaces()
        management = Link(node, self)
        for number, (owner, interface) in enumerate(((self, management.intf2), (node, management.intf1))):
            run_in(owner.pid, "ip", "address", "add", f"{_MANAGEMENT[number]}/30", "dev", interface.name)
        outside = node.intfList()[0]
        run_in(node.pid, "ip", "address", "add", f"{self._controller_address}/{_NETMASK}", "dev", outside.name)
        offloads_off(node.pid, outside.name)
        for interface in ports:
            offloads_off(self.pid, interface.name)
            far = interface.link.intf1 if interface.link.intf2 is interface else interface.link.intf2
            offloads_off(far.node.pid, far.name)
        bring_up([*ports, management.intf2])
        target = self.launch(self.name, self.target_command([f"{i}@{port.name}" for i, port in enumerate(ports)]))
        words = ["--target", f"{_MANAGEMENT[0]}:{_GRPC_PORT}", "--address", self.address]
        words += ["--bind", self._controller_address, "--control-port", str(CONTROL_PORT)]
        words += ["--ports", f"0-{len(ports) - 1}", "--device-id", str(self.device_id), "--values", str(self.values)]
        words += [] if self.slots is None else ["--slots", str(self.slots)]
        words += [] if self.parent is None else ["--parent", self.parent]
        controller = self.launch(f"{self.name} controller", own_command("controller", *words), node=node)
        try:
            controller.await_line("wiresum controller ready", _READY_SECONDS)
        except LabError as error:
            raise LabError(f"{error}\n{self.name} said:\n{target.said() or '(nothing)'}") from None

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Ends target and controller."""
        super().stop(deleteIntfs)
        if self._controller_node is not None:
            self._controller_node.terminate()
            self._controller_node = None

    def terminate(self) -> None:
        """Ends everything at once."""
        super().terminate()
        if self._controller_node is not None:
            self._controller_node.terminate()
            self._controller_node = None


class ModelSwitch(_P4Switch):
    """The P4 program on our own Python model."""

    kind = "model"

    def target_command(self, ports: Sequence[str]) -> list[str]:
        """Of `wiresum p4switch`."""
        words = ["--device-id", str(self.device_id), "--cpu-port", str(_CPU_PORT), "--seed", str(self.seed)]
        words += [word for port in ports for word in ("-i", port)]
        return own_command("p4switch", "--no-p4", *words, "--grpc-addr", f"0.0.0.0:{_GRPC_PORT}")


class Bmv2Switch(_P4Switch):
    """The P4 program on BMv2."""

    kind = "bmv2"

    def target_command(self, ports: Sequence[str]) -> list[str]:
        """Of BMv2's `simple_switch_grpc`."""
        words = ["--device-id", str(self.device_id), "--log-level", "error", "--thrift-port", "9090"]
        if self.scratch is not None:
            words += ["--notifications-addr", f"ipc://{self.scratch}/{self.name}-notifications"]
        words += [word for port in ports for word in ("-i", port)]
        there = ["--grpc-server-addr", f"0.0.0.0:{_GRPC_PORT}", "--cpu-port", str(_CPU_PORT)]
        return ["simple_switch_grpc", "--no-p4", *words, "--", *there]


SWITCHES: Final[Mapping[str, type[WiresumSwitch]]] = {
    switch.kind: switch for switch in (SoftwareSwitch, ModelSwitch, Bmv2Switch)
}
