"""Importing this loads the host agent's kernels, so that processes forked later have them."""

import inspect
from typing import Any, Final, cast

import numba

from host import pump_kernels, worker_kernels
from host.prepare import prepare_host
from protocol import socket_kernels

_TYPES: Final = {int: numba.int64, float: numba.float64}

prepare_host()
for kernel in (
    worker_kernels.submit,
    worker_kernels.send,
    worker_kernels.receive,
    worker_kernels.handle_timer,
    socket_kernels.send,
    socket_kernels.receive,
    pump_kernels.pump,
):
    annotations = [parameter.annotation for parameter in inspect.signature(kernel).parameters.values()]
    cast(Any, kernel).compile(tuple(_TYPES[annotation] for annotation in annotations))
