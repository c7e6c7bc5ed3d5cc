"""What can go wrong, as exceptions whose text a user can act on."""


class WiresumError(RuntimeError):
    """Any failure of wiresum at run time."""


class SwitchUnreachableError(WiresumError):
    """No control service answers at the address given."""


class JoinRefusedError(WiresumError):
    """The switch refused a join: rank taken, world sizes differ, not enough slots, too many ranks."""


class JoinTimeoutError(WiresumError):
    """Some ranks did not join within the time-out; the text names them."""


class PeerLostError(WiresumError):
    """Another rank of the job died or left in the middle; the text names it."""


class SwitchLostError(WiresumError):
    """The switch went away while the job ran."""


class DisagreementError(WiresumError):
    """Ranks asked for different things in the same collective; the text shows each rank's request."""


class StallError(WiresumError):
    """A collective did not finish within its time-out; the text names the ranks that the switch misses."""


class ClosedError(WiresumError):
    """The communicator was closed before, or while, the collective ran."""
