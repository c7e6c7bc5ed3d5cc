"""Compiles the host agent's kernels, so that no collective waits for that; as a module, in advance."""

from host import pump_kernels, worker_kernels
from protocol import socket_kernels
from protocol.jit import prepare


def prepare_host() -> None:
    """Compiles what a worker runs, unless this machine has it; some ten seconds once."""
    prepare(
        worker_kernels.submit,
        worker_kernels.send,
        worker_kernels.receive,
        worker_kernels.handle_timer,
        socket_kernels.send,
        socket_kernels.receive,
        pump_kernels.pump,
    )


if __name__ == "__main__":
    prepare_host()
