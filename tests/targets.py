"""The targets of the packet tests, each made once for all tests and as new for each."""

from types import TracebackType

import pytest

from tests.packet_targets import AggregatorTarget, P4Target, Target


class Targets:
    """A context manager that ends what it has started."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], P4Target] = {}

    def fresh(self, name: str, values: int) -> Target:
        """A target without jobs."""
        return AggregatorTarget(values) if name == "aggregator" else self.fresh_p4(name, values)

    def fresh_p4(self, name: str, values: int) -> P4Target:
        """A target that runs the P4 program; skips the test if it is not to be had here."""
        made = self._made.get((name, values))
        if made is None:
            if name == "bmv2":
                from tests.bmv2_target import Bmv2Target, why_not

                if reason := why_not():
                    pytest.skip(reason)
                made = Bmv2Target(values)
            else:
                from tests.model_target import ModelTarget

                made = ModelTarget(values)
            self._made[name, values] = made
        made.reset()
        return made

    def __enter__(self) -> "Targets":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for made in self._made.values():
            getattr(made, "close", lambda: None)()
