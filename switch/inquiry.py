"""What ranks say about a collective that they disagree about. Without sockets, threads or clocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

INQUIRY_SECONDS: Final = 2.0  # in which each rank must give its account


@dataclass(kw_only=True)
class Inquiry:
    """An inquiry into one collective.

    Attributes:
        collective: its number.
        ends: the time, in seconds, when it ends even if some ranks are silent.
        accounts: what each rank said.
    """

    collective: int
    ends: float
    accounts: dict[int, str] = field(default_factory=dict)

    def describe(self, job: str, left: Mapping[int, bool]) -> str:
        """The result for users; `left` has all ranks of the job, and whether they have left it."""
        ranks_by_account: dict[str, list[int]] = {}
        for rank, gone in sorted(left.items()):
            silent = "has left the job" if gone else f"did not answer within {INQUIRY_SECONDS:g} s"
            ranks_by_account.setdefault(self.accounts.get(rank, silent), []).append(rank)
        lines = [f"ranks of job {job!r} disagree about collective #{self.collective}:"]
        for account, ranks in ranks_by_account.items():
            lines.append(f"  rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {account}")
        return "\n".join(lines)
