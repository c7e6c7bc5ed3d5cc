"""The one way this project compiles a function: numba, without the GIL, cached on disk.

numba's cache notices a change of the file that a kernel stands in, but not of the files it calls into. Whoever edits
one kernel would then measure the old one through its callers, so the cache here is stamped with all kernel sources.
"""

import fcntl
import hashlib
import inspect
import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("wiresum")
_ROOT = Path(__file__).resolve().parent.parent
_ROOMS = ("protocol", "switch", "host")


@cache
def source_stamp() -> str:
    """A digest of every source file whose code can end up inside a compiled kernel."""
    digest = hashlib.sha256()
    shared = [_ROOT / "protocol" / "constants.py", _ROOT / "protocol" / "jit.py"]
    for path in shared + sorted(p for room in _ROOMS for p in (_ROOT / room).glob("*kernels.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel(function: F) -> F:
    """Compiles `function` on its first call for each signature; it runs without the GIL.

    Kernels stand in files whose names end in `kernels.py`. Division follows IEEE 754 and never raises. Integer
    arithmetic is numba's: operands narrower than 64 bits widen to 64.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    # numba offers no public way to say what else a cached kernel depends on.
    compiled._cache._cache_file._source_stamp = source_stamp()
    return cast(F, compiled)


def prepare(*kernels: Callable[..., Any]) -> None:
    """Compiles kernels whose parameters are annotated as int or float, unless that has been done on this machine.

    Processes that start together take turns, so that one compiles and the others load what it left in the cache.
    """
    first = cast(Any, kernels[0])
    directory = Path(first._cache.cache_path)
    names = ",".join(f"{k.__module__}.{k.__name__}" for k in kernels)
    key = (source_stamp(), names, numba.__version__, sys.version, get_host_cpu_name(), str(get_host_cpu_features()))
    ready = directory / f"wiresum-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.ready"
    if ready.exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "wiresum.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists():
            return
        _log.warning("wiresum: compiling kernels for this machine; once, for some ten seconds")
        for compiled in kernels:
            annotations = [p.annotation for p in inspect.signature(compiled).parameters.values()]
            cast(Any, compiled).compile(tuple(_NUMBA_TYPES[annotation] for annotation in annotations))
        ready.touch()


_NUMBA_TYPES: Final = {int: numba.int64, float: numba.float64}
