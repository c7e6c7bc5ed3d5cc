"""Switches that run the P4 program in processes of their own, between veth pairs in a network namespace."""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.p4_job import COMPILED, CPU_PORT, GROUP, replicas, rows
from wiresum.processes import die_with_parent

_CLONE_NEWNET: Final = 0x40000000
_ADDRESS: Final = "127.0.0.1:9559"  # in a namespace of our own
_DEVICE: Final = 1
_READY_SECONDS: Final = 60


@dataclass(frozen=True)
class RunningSwitch:
    """A switch process that is ready."""

    name: str
    pid: int


def enter_namespace(workers: int) -> None:
    """Moves this thread, and what it starts, to a network namespace with the pairs s0 - h0, s1 - h1, ...

    It goes with the last process in it.

    Raises:
        OSError: no right to.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET) failed")
    for name in ("all", "default"):  # no router solicitations among the frames
        _run("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
    _run("ip", "link", "set", "lo", "up")
    for rank in range(workers):
        _run("ip", "link", "add", f"s{rank}", "type", "veth", "peer", "name", f"h{rank}")
        for end in "sh":
            _run("ip", "link", "set", f"{end}{rank}", "arp", "off", "mtu", "9000", "up")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextlib.contextmanager
def running(name: str, command: Sequence[str], *, values: int, workers: int, slots: int) -> Iterator[RunningSwitch]:
    """A switch on s0, s1, ... that takes simple_switch_grpc's options, told of the job by P4Runtime."""
    interfaces = [word for rank in range(workers) for word in ("-i", f"{rank}@s{rank}")]
    options = ["--no-p4", "--device-id", str(_DEVICE), "--log-level", "off", *interfaces]
    options += ["--", "--grpc-server-addr", _ADDRESS, "--cpu-port", str(CPU_PORT)]
    parent = os.getpid()
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(parent),
    ) as process:
        try:
            _program(values, workers, slots)
            yield RunningSwitch(name, process.pid)
        finally:
            process.terminate()


def bmv2_version(program: str) -> str | None:
    """The version of BMv2 under that name, or None if there is none."""
    if shutil.which(program) is None:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1] if done.stdout + done.stderr else "unknown"


def _program(values: int, workers: int, slots: int) -> None:
    """Loads the program and installs the job by P4Runtime."""
    import grpc
    from google.protobuf import text_format
    from p4.config.v1 import p4info_pb2
    from p4.v1 import p4runtime_pb2 as p4
    from p4.v1 import p4runtime_pb2_grpc

    info: Any = text_format.Parse((COMPILED / f"wiresum_{values}.p4info.txtpb").read_text(), p4info_pb2.P4Info())
    election = p4.Uint128(low=1)
    with grpc.insecure_channel(_ADDRESS) as channel:
        grpc.channel_ready_future(channel).result(timeout=_READY_SECONDS)
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        outgoing = _Requests()
        stream = stub.StreamChannel(iter(outgoing))
        arbitration = p4.MasterArbitrationUpdate(device_id=_DEVICE, election_id=election)
        outgoing.put(p4.StreamMessageRequest(arbitration=arbitration))
        next(stream)
        config = p4.ForwardingPipelineConfig(
            p4info=info, p4_device_config=(COMPILED / f"wiresum_{values}.json").read_bytes()
        )
        stub.SetForwardingPipelineConfig(
            p4.SetForwardingPipelineConfigRequest(
                device_id=_DEVICE,
                election_id=election,
                action=p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            )
        )
        group = p4.MulticastGroupEntry(multicast_group_id=GROUP)
        for port, instance in replicas(workers):
            group.replicas.add(egress_port=port, instance=instance)
        entities = [
            p4.Entity(packet_replication_engine_entry=p4.PacketReplicationEngineEntry(multicast_group_entry=group))
        ]
        entities += [p4.Entity(table_entry=_entry(p4, info, row)) for row in rows(workers, slots)]
        updates = [p4.Update(type=p4.Update.INSERT, entity=entity) for entity in entities]
        stub.Write(p4.WriteRequest(device_id=_DEVICE, election_id=election, updates=updates))
        outgoing.put(p4.StreamMessageRequest(packet=_clear(p4, info, slots)))
        while not next(stream).HasField("packet"):
            pass
        outgoing.put(None)


class _Requests:
    """What goes out on the stream; None ends it."""

    def __init__(self) -> None:
        import queue

        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


def _entry(p4: Any, info: Any, row: Any) -> Any:
    table = next(table for table in info.tables if table.preamble.name == row.table)
    action = next(action for action in info.actions if action.preamble.name == row.action)
    entry = p4.TableEntry(table_id=table.preamble.id)
    for field in table.match_fields:
        entry.match.add(field_id=field.id).exact.value = _bytes(row.key[field.name])
    entry.action.action.action_id = action.preamble.id
    for param in action.params:
        entry.action.action.params.add(param_id=param.id, value=_bytes(row.args[param.name]))
    return entry


def _clear(p4: Any, info: Any, slots: int) -> Any:
    """The packet that has the program clear the job's pool; it comes back when that is done."""
    (header,) = (each for each in info.controller_packet_metadata if each.preamble.name == "packet_out")
    values = {"command": 2, "argument": 1, "base": 0, "slots": slots}
    packet = p4.PacketOut()
    for field in header.metadata:
        packet.metadata.add(metadata_id=field.id, value=_bytes(values[field.name]))
    return packet


def _bytes(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
