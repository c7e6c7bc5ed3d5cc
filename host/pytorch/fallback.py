"""What happens to requests that are no sum or average the switch can compute: told once, forbidden, or passed on."""

import os
import sys
import threading
import warnings
from typing import Final, Literal, TypeAlias, cast, get_args

from protocol.errors import WiresumError

FallbackPolicy: TypeAlias = Literal["warn", "raise", "silent"]
POLICIES: Final[tuple[str, ...]] = get_args(FallbackPolicy)
VARIABLE: Final = "WIRESUM_FALLBACK"
_PACKAGES: Final = ("host.pytorch.", "torch.")


class FallbackWarning(UserWarning):
    """Something does not go through the switch; said once for each kind in a process."""


class FallbackForbiddenError(WiresumError):
    """Something cannot go through the switch, and the fallback policy is "raise"."""


def fallback_policy(chosen: str | None) -> FallbackPolicy:
    """The policy: `chosen`, or else the environment's WIRESUM_FALLBACK, or else "warn".

    Raises:
        ValueError: it is none of "warn", "raise" and "silent".
    """
    policy = chosen if chosen is not None else os.environ.get(VARIABLE) or "warn"
    if policy not in POLICIES:
        source = "fallback" if chosen is not None else VARIABLE
        raise ValueError(f"{source} must be one of {', '.join(POLICIES)}, not {policy!r}")
    return cast(FallbackPolicy, policy)


class Fallback:
    """Lets requests of a group pass to where they can be served, as its policy says.

    Args:
        policy: "warn" lets all pass and tells each kind once in a process, "silent" does not tell, "raise" forbids all
            but those that the caller marks as necessary.
        to: where they go, as the warning calls it.
    """

    _told: Final[set[str]] = set()
    _lock: Final = threading.Lock()

    def __init__(self, policy: FallbackPolicy, *, to: str) -> None:
        self.policy = policy
        self._to = to

    def passes(self, kind: str, *, necessary: bool = False, tell: bool = True) -> None:
        """Returns if a request of this kind may pass, after telling of the kind's first one.

        Args:
            kind: what is asked for and, after a colon, why the switch cannot do it.
            necessary: it passes even when the policy is "raise".
            tell: whether this process is the one to warn.

        Raises:
            FallbackForbiddenError: the policy forbids it.
        """
        if self.policy == "raise" and not necessary:
            raise FallbackForbiddenError(f"{kind} (forbidden to go over {self._to} instead, as {VARIABLE} is raise)")
        if self.policy == "silent" or not tell:
            return
        with self._lock:
            if kind in self._told:
                return
            self._told.add(kind)
        warnings.warn(
            f"wiresum: {kind}. It goes over {self._to}, as will all others of this kind; {VARIABLE}=silent hides this.",
            FallbackWarning,
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """How far above the function that calls this one the first frame stands that is neither ours nor torch's."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGES):
        frame = frame.f_back
        level += 1
    return level
