"""Compiles the switch's kernels before it says that it is ready; as a module, in advance."""

from protocol import socket_kernels
from protocol.jit import prepare
from switch import pump_kernels, slot_kernels


def prepare_switch() -> None:
    """Compiles what a switch runs, unless this machine has it; some five seconds once."""
    prepare(slot_kernels.receive, socket_kernels.send, socket_kernels.receive, pump_kernels.serve)


if __name__ == "__main__":
    prepare_switch()
