"""What `wiresum switch --watch` shows: jobs, rates, and every kind of trouble."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from switch.dataplane import Counter
from switch.job_events import JobStatus

_RATES = ("received", "results", "bytes_in", "bytes_out")
_QUIET = frozenset((*_RATES, "contributions", "partials"))


class LiveCounters:
    """Turns successive readings of the counters into rates."""

    def __init__(self) -> None:
        self._last: tuple[float, dict[str, int]] | None = None

    def table(self, jobs: Iterable[JobStatus], counters: list[Counter], now: float) -> RenderableType:
        """A picture of this moment; `now` in seconds."""
        totals, rates = self._rates(counters, now)
        listing = Table("job", "number", "state", "ranks", "slots", "values", title="wiresum switch", expand=False)
        for job in jobs:
            number = "-" if job.number is None else str(job.number)
            ranks = f"{len(job.joined)}/{job.world_size}"
            listing.add_row(escape(job.name), number, job.state, ranks, str(job.slots or "-"), str(job.values))
        speed = Text(
            f"in {rates['received']:,.0f} packets/s, {rates['bytes_in'] / 1e6:,.1f} MB/s   "
            f"out {rates['bytes_out'] / 1e6:,.1f} MB/s   results {rates['results']:,.0f}/s"
        )
        trouble = [f"{name} {value:,}" for name, value in totals.items() if value and name not in _QUIET]
        return Group(listing, speed, Text(", ".join(trouble) or "no loss, no duplicates, no drops"))

    def line(self, jobs: Iterable[JobStatus], counters: list[Counter], now: float) -> str:
        """The same in one line, for output that is not a terminal."""
        totals, rates = self._rates(counters, now)
        trouble = "".join(f" {name}={value}" for name, value in totals.items() if value and name not in _QUIET)
        return (
            f"jobs={len(list(jobs))} packets_in_per_s={rates['received']:.0f} bytes_in_per_s={rates['bytes_in']:.0f} "
            f"bytes_out_per_s={rates['bytes_out']:.0f} results_per_s={rates['results']:.0f}{trouble}"
        )

    def _rates(self, counters: list[Counter], now: float) -> tuple[dict[str, int], dict[str, float]]:
        totals = {c.name: c.value for c in counters if c.job is None and c.rank is None}
        before, self._last = self._last, (now, totals)
        if before is None or now <= before[0]:
            return totals, dict.fromkeys(_RATES, 0.0)
        return totals, {name: (totals[name] - before[1].get(name, 0)) / (now - before[0]) for name in _RATES}
