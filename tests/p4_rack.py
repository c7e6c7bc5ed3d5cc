"""A rack on a P4 switch: workers in namespaces of their own, the target, and its controller, behind veth links.

    with p4_rack("bmv2", workers=3) as rack:
        RankProcess("sum_for_ever", rank.switch, ..., prefix=rack.enter(0))

Every worker is at a port of the switch, and so is the controller, whose control service the workers reach through the
switch. The controller reaches the target's P4Runtime server by a link of its own. Needs root.
"""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from tests.veths import MISSING, ip
from wiresum.processes import Child, describe_exit

ADDRESS: Final = "10.77.0.254"  # of the switch
_CONTROLLER: Final = "10.77.0.253"
_TARGET: Final = "10.78.0.1"  # where the controller finds the P4Runtime server
_GRPC_PORT: Final = 9559
_CPU_PORT: Final = 510
_READY_SECONDS: Final = 60.0
_OFFLOADS: Final = ["tx", "off", "rx", "off", "sg", "off", "gso", "off", "gro", "off", "tso", "off"]
_racks = count()
ROOT: Final = Path(__file__).resolve().parent.parent


def why_not(kind: str) -> str:
    """Why there can be no such rack here; empty if there can."""
    if MISSING:
        return MISSING
    if shutil.which("ethtool") is None:
        return "needs ethtool"
    if kind == "bmv2" and shutil.which("simple_switch_grpc") is None:
        return "needs BMv2's simple_switch_grpc on PATH"
    return ""


class P4Rack:
    """What `p4_rack` has set up; nothing runs yet.

    Args:
        kind: of the target, "model" or "bmv2".
        prefix: of the names of namespaces.
        workers: how many hosts.
        device_id: of the target. Two BMv2 of one collide, even across namespaces.
        controller: further options of `wiresum controller`.

    Attributes:
        switch: address of the control service, as workers see it.
        root: address of the root's control service, if the switch is a leaf.
        target: "host:port" of the P4Runtime server, as the namespace `management` sees it.
        hosts: namespace of each worker.
        target_process, controller: what runs.
    """

    root = f"{_CONTROLLER}:50098"
    target_process: "TargetProcess"
    controller: "ControllerProcess"

    def __init__(self, kind: str, prefix: str, workers: int, device_id: int, controller: Sequence[str]) -> None:
        self.switch = f"{_CONTROLLER}:50099"
        self.target = f"{_TARGET}:{_GRPC_PORT}"
        self.hosts = tuple(f"{prefix}w{i}" for i in range(workers))
        self.switch_namespace, self.management = f"{prefix}s", f"{prefix}c"
        self.ports = tuple(f"port{i}" for i in range(workers + 1))
        self.device_id = device_id
        self._kind = kind
        self._controller_options = [*("--target", self.target, "--address", ADDRESS, "--bind", _CONTROLLER)]
        self._controller_options += ["--ports", f"0-{workers}", "--device-id", str(device_id), *controller]

    def enter(self, host: int) -> list[str]:
        """A command line's beginning that runs the rest at a worker."""
        return enter(self.hosts[host])

    def address(self, host: int) -> str:
        """Of a worker."""
        return f"10.77.0.{host + 1}"

    def start_target(self) -> None:
        """Starts the target without a program."""
        self.target_process = TargetProcess(
            lambda folder: _target_command(self._kind, self.ports, self.device_id, folder),
            enter(self.switch_namespace),
        )

    def start_controller(self) -> None:
        """Starts the controller, in the place of one that has ended, and waits until it is ready."""
        if "controller" in vars(self):
            self.controller.kill()
        try:
            self.controller = ControllerProcess(self._controller_options, enter(self.management))
        except BaseException as error:
            error.add_note(f"the target said:\n{self.target_process.kill()}")
            raise

    def stop(self) -> None:
        """Ends both, as far as they run."""
        for process in ("controller", "target_process"):
            if process in vars(self):
                vars(self)[process].kill()


def enter(namespace: str) -> list[str]:
    """A command line's beginning that runs the rest in a namespace."""
    return ["ip", "netns", "exec", namespace]


class ControllerProcess(Child):
    """`wiresum controller` that is ready."""

    def __init__(self, args: Sequence[str], prefix: Sequence[str]) -> None:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        super().__init__("wiresum", ["controller", *args], name="the controller", on_line=lines.put, prefix=prefix)
        try:
            self._await_ready(lines)
        except BaseException:
            self.kill()
            raise

    def _await_ready(self, lines: "queue.SimpleQueue[str | None]") -> None:
        try:
            line = lines.get(timeout=_READY_SECONDS)
        except queue.Empty:
            raise self.failure("did not get ready in time") from None
        if line is None:
            raise self.failure(f"{describe_exit(self._process.wait())} before it was ready")
        assert line.startswith("wiresum controller ready: "), line


class TargetProcess:
    """BMv2 or our model, running in a namespace; it says nothing until it is stopped.

    Args:
        command: its command line, given a folder for its files.
        prefix: of that.

    Attributes:
        folder: the one for its files, which goes with it.
    """

    def __init__(self, command: Callable[[str], Sequence[str]], prefix: Sequence[str] = ()) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object is
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        # The kernel ends it with the thread that starts it, even if that is killed.
        self._process = subprocess.Popen(
            [*prefix, "setpriv", "--pdeathsig", "KILL", "--", *command(self._folder.name)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> str:
        """Ends it at once; returns the end of what it said."""
        if self._output.closed:
            return ""
        self._process.kill()
        self._process.wait()
        size = os.fstat(self._output.fileno()).st_size
        said = os.pread(self._output.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")
        self._output.close()
        self._folder.cleanup()
        return said


def _target_command(kind: str, interfaces: Sequence[str], device_id: int, folder: str) -> list[str]:
    ports = [word for number, name in enumerate(interfaces) for word in ("-i", f"{number}@{name}")]
    if kind == "bmv2":
        own = [
            "--device-id",
            str(device_id),
            "--log-level",
            "error",
            "--notifications-addr",
            f"ipc://{folder}/bmv2.ipc",
        ]
        there = ["--", "--grpc-server-addr", f"0.0.0.0:{_GRPC_PORT}", "--cpu-port", str(_CPU_PORT)]
        return ["simple_switch_grpc", "--no-p4", *own, *ports, *there]
    options = ["--device-id", str(device_id), "--grpc-addr", f"0.0.0.0:{_GRPC_PORT}", "--cpu-port", str(_CPU_PORT)]
    return [sys.executable, "-m", "wiresum", "p4switch", "--no-p4", *ports, *options]


def _make_namespaces(rack: P4Rack, undo: ExitStack, *, offloads: bool) -> None:
    """Makes namespaces and links."""
    for name in (rack.switch_namespace, rack.management, *rack.hosts):
        undo.callback(subprocess.run, ["ip", "netns", "delete", name], capture_output=True)
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        quiet = "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"
        subprocess.run([*enter(name), "sysctl", "-qw", *quiet], check=True, capture_output=True)
    addresses = [*(rack.address(i) for i in range(len(rack.hosts))), _CONTROLLER]
    for number, (name, address) in enumerate(zip((*rack.hosts, rack.management), addresses, strict=True)):
        _link(rack.switch_namespace, rack.ports[number], name, "eth0", offloads=offloads)
        ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
    _link(rack.switch_namespace, "manage", rack.management, "manage", offloads=offloads)
    ip("-n", rack.switch_namespace, "address", "add", f"{_TARGET}/24", "dev", "manage")
    ip("-n", rack.management, "address", "add", "10.78.0.2/24", "dev", "manage")


def _link(one: str, name: str, other: str, other_name: str, *, offloads: bool) -> None:
    ip("-n", one, "link", "add", name, "type", "veth", "peer", "name", other_name, "netns", other)
    for namespace, interface in ((one, name), (other, other_name)):
        if not offloads:
            subprocess.run([*enter(namespace), "ethtool", "-K", interface, *_OFFLOADS], check=True, capture_output=True)
        ip("-n", namespace, "link", "set", interface, "up")


class RootProcess(Child):
    """`wiresum switch` that is ready, as the root of a tree."""

    def __init__(self, args: Sequence[str], prefix: Sequence[str]) -> None:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        super().__init__("wiresum", ["switch", *args], name="the root", on_line=lines.put, prefix=prefix)
        line = lines.get(timeout=_READY_SECONDS)
        assert line is not None, self.failure("ended before it was ready")
        assert line.startswith("wiresum switch ready: "), line


@contextmanager
def p4_rack(
    kind: str,
    *,
    workers: int = 2,
    values: int = 64,
    controller: Sequence[str] = (),
    root: Sequence[str] | None = None,
    offloads: bool = False,
) -> Iterator[P4Rack]:
    """Sets up a rack, and leaves nothing of it behind.

    Args:
        kind: of the target, "model" or "bmv2".
        workers: how many hosts.
        values: per packet.
        controller: further options of `wiresum controller`.
        root: options of a software switch beside the controller, which then is the parent of the P4 switch.
        offloads: leaves those of the links as the kernel has them; BMv2 cannot work with that.
    """
    assert threading.current_thread() is threading.main_thread(), "processes end with the thread that starts them"
    number = next(_racks)
    options = [*controller] if "--json" in controller else ["--values", str(values), *controller]
    if root is not None:
        options += ["--parent", P4Rack.root]
    rack = P4Rack(kind, f"wsp{os.getpid()}n{number}", workers, os.getpid() * 16 % 2**30 + number, options)
    with ExitStack() as undo:
        _make_namespaces(rack, undo, offloads=offloads)
        undo.callback(rack.stop)
        rack.start_target()
        if root is not None:
            address = ["--bind", _CONTROLLER, "--control-port", rack.root.rpartition(":")[2]]
            undo.callback(RootProcess([*address, *root], enter(rack.management)).stop)
        rack.start_controller()
        yield rack
