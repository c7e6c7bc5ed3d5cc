"""What can go wrong with a program, and with what the control plane asks of a switch that runs it."""

from protocol.errors import WiresumError


class ModelError(WiresumError):
    """Any failure of the programmable switch."""


class ProgramError(ModelError):
    """The compiled program is damaged, of another version, or not for this architecture; the text says where."""


class UnsupportedError(ProgramError):
    """The program uses a construct that this switch cannot run; the text names it and its place in the P4 source."""


class StateError(ModelError):
    """A write or read of the control plane that is refused; nothing was changed."""


class NotFoundError(StateError):
    """There is no such table, entry, member, group, session or cell."""


class ExistsError(StateError):
    """An entry, member, group or session of that key is there already."""


class FullError(StateError):
    """The table, profile or group has no room left."""


class InvalidError(StateError):
    """A name, number of fields, kind, width, mask, range, priority or parameter is not what the program says."""


class ImmutableError(StateError):
    """The program declares the entries, or the default action, as constant."""


class InUseError(StateError):
    """The member or group is referred to by an entry or a group."""
