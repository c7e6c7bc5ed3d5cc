"""The consistency byte: how ranks notice that they are not reducing the same thing (see docs/protocol.md)."""

from protocol.constants import DType, Op

_MASK = 2**64 - 1


def _mix64(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)


def collective_salt(*, collective: int, elements: int, dtype: DType, op: Op) -> int:
    """64 bits that stand for one collective; `protocol.kernels.consistency` mixes them with a chunk number.

    Args:
        collective: number of the collective in the job, from 0.
        elements: elements of the tensor.
    """
    salt = 0x9E3779B97F4A7C15
    for field in (collective, elements, int(dtype), int(op)):
        salt = _mix64((salt + field) & _MASK)
    return salt
