"""Errors with the canonical codes that P4Runtime answers with."""

from enum import IntEnum

from protocol.errors import WiresumError
from switch.model.errors import (
    ExistsError,
    FullError,
    ImmutableError,
    InUseError,
    InvalidError,
    ModelError,
    NotFoundError,
    UnsupportedError,
)


class Code(IntEnum):
    """google.rpc.Code, which are gRPC's numbers as well."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class P4RuntimeError(WiresumError):
    """A request, or a part of one, that is refused; the text says which and why."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class BatchError(P4RuntimeError):
    """Parts of a Write or Read that failed.

    Attributes:
        errors: one for each part, in order; None: it went well.
    """

    def __init__(self, errors: list[P4RuntimeError | None], what: str) -> None:
        failed = sum(error is not None for error in errors)
        super().__init__(Code.UNKNOWN, f"{failed} of {len(errors)} {what} failed")
        self.errors = errors


def invalid(message: str) -> P4RuntimeError:
    """The error for most of what is wrong with a request."""
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> P4RuntimeError:
    """The error for what the specification leaves to the server to have."""
    return P4RuntimeError(Code.UNIMPLEMENTED, message)


_CODES: dict[type[ModelError], Code] = {
    NotFoundError: Code.NOT_FOUND,
    ExistsError: Code.ALREADY_EXISTS,
    FullError: Code.RESOURCE_EXHAUSTED,
    InvalidError: Code.INVALID_ARGUMENT,
    ImmutableError: Code.PERMISSION_DENIED,
    InUseError: Code.FAILED_PRECONDITION,
    UnsupportedError: Code.INVALID_ARGUMENT,
}


def as_p4runtime(error: Exception) -> P4RuntimeError:
    """The same error with a code; what nobody expected becomes INTERNAL."""
    if isinstance(error, P4RuntimeError):
        return error
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return P4RuntimeError(code, str(error))
    if isinstance(error, ModelError):
        return P4RuntimeError(Code.UNAVAILABLE, str(error))
    return P4RuntimeError(Code.INTERNAL, f"{type(error).__name__}: {error}")
