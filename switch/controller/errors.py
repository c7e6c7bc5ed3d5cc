"""What can go wrong between the controller and its target."""

from collections.abc import Mapping

from protocol.errors import WiresumError


class ControllerError(WiresumError):
    """Any failure of the controller."""


class ProgramError(ControllerError):
    """A compiled program that cannot be found or read, or that is not the wiresum program."""


class TargetUnreachableError(ControllerError):
    """Nothing at the target's address speaks P4Runtime, or it refuses this controller."""


class TargetLostError(ControllerError):
    """The target went away, or another controller took it over."""


class UnsupportedByTargetError(ControllerError):
    """The target does not implement what was asked for."""


class WriteError(ControllerError):
    """The target refused some of the updates of a write.

    Attributes:
        refused: name of the status code by the update's position, where the target said.
    """

    def __init__(self, message: str, refused: Mapping[int, str]) -> None:
        super().__init__(message)
        self.refused = dict(refused)
