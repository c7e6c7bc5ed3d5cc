"""Jobs from their first joiner to their last leaver, without sockets, threads or clocks.

All state changes of a job are in this file, as it begins, and in `switch.job_endings`. A method takes what happened and
the time in seconds, and queues effects that the caller carries out. A rank that goes without leaving ends a job, and so
does a disagreement. Name, number and slots are free from then on.
"""

import secrets
from typing import Final

from protocol.constants import MAX_RANKS
from protocol.control import PING_INTERVAL, PING_TIMEOUT
from protocol.errors import JoinRefusedError, JoinTimeoutError
from switch.admission import (
    JobNumbers,
    JoinWish,
    SlotBudget,
    check_against,
    check_alone,
    check_sources,
    check_width,
    choose_slots,
    least_slots,
)
from switch.dataplane import JobSpec
from switch.job_endings import EndingJobs
from switch.job_events import Begin, Install, JoinDone, JoinFailed, Tell
from switch.job_state import Job, Member, State

# Seconds in which a rank must open its watch after its join, and a leaf switch, which first installs the job and waits
# for leaves below it. A host whose packets get lost may be silent for as long without being taken for dead.
WATCH_GRACE: Final = PING_INTERVAL + PING_TIMEOUT


class JobTable(EndingJobs):
    """The jobs of one switch.

    Args:
        total_slots: slots of 256 values, shared by all jobs.
        values_supported: numbers of values per packet that the data plane can add.
        default_slots: the pool of a job that leaves its size to the switch, if there is room.
        max_ranks: the largest world size.
    """

    def __init__(
        self, *, total_slots: int, values_supported: tuple[int, ...], default_slots: int, max_ranks: int = MAX_RANKS
    ):
        super().__init__(SlotBudget(total_slots, default_slots))
        self.max_ranks = max_ranks
        self.values_supported = values_supported
        self._numbers = JobNumbers()

    # Joining

    def join(self, wish: JoinWish, now: float) -> int:
        """Enters a rank; the effects JoinDone or JoinFailed answer it later.

        Returns:
            the membership, a number that names this rank of this job in all other calls.

        Raises:
            JoinRefusedError: the wish cannot be met; the text says why, with the numbers.
        """
        check_alone(wish, self.max_ranks, self.values_supported)
        job = self._whole.get(wish.job)
        present = [] if job is None else [member.wish for member in job.active]
        try:
            if job is not None:
                check_against(wish, present, running=job.state is not State.WAITING)
            check_sources(wish, present, [member.wish for _, member in self._members.values()])
            self.budget.check(wish.job, least_slots((*present, wish)), wish.values)
        except JoinRefusedError as error:
            if job is not None and wish.rank not in job.members and wish.rank < job.world_size:
                job.notes[wish.rank] = f"refused: {error}"
            raise
        if job is None:
            job = Job(name=wish.job, world_size=wish.world_size, values=wish.values)
            self._jobs.append(job)
            self._whole[job.name] = job
        member = Member(membership=secrets.randbits(64), wish=wish, deadline=now + wish.timeout)
        job.members[wish.rank] = member
        job.notes.pop(wish.rank, None)
        self._members[member.membership] = (job, member)
        if len(job.members) == job.world_size:
            self._complete(job)
        return member.membership

    def installed(self, number: int, now: float) -> None:
        """The data plane has the job."""
        job = self._find(number)
        if job is None:  # a rank died meanwhile
            return
        for member in job.awaited:
            self._answer(job, member, now)
        self._begin(job, now)

    def _begin(self, job: Job, now: float) -> None:
        """Lets a job run if no leaf switch is waited for."""
        if job.awaited:
            return
        job.state = State.RUNNING
        for member in job.active:
            if member.wish.via is None:
                self._answer(job, member, now)
            else:
                self._effects.append(Tell(member.membership, Begin()))

    def _answer(self, job: Job, member: Member, now: float) -> None:
        assert job.number is not None
        via = member.wish.via
        member.deadline, member.answered = now + WATCH_GRACE, True
        ranks = () if via is None else job.below[via]
        self._effects.append(JoinDone(member.membership, job.number, job.slots, ranks))

    def not_installed(self, number: int, reason: str) -> None:
        """The data plane refused the job."""
        job = self._find(number)
        if job is not None:
            self._drop(job)
            self._fail_joins(job, JoinRefusedError(f"the switch could not set up job {job.name!r}: {reason}"))

    def _complete(self, job: Job) -> None:
        wishes = [member.wish for member in job.active]
        slots = choose_slots(wishes, self.budget)
        try:
            check_width(job.name, len(job.below), self.budget.name)
            self.budget.check(job.name, slots, job.values)
            number = self._numbers.free({job.number for job in self._jobs}, job.name, self.budget.name)
        except JoinRefusedError as error:
            self._drop(job)
            self._fail_joins(job, error)
            return
        job.state = State.INSTALLING
        job.number, job.slots = number, slots
        self.budget.take(number, job.name, slots, job.values)
        for member in job.active:
            member.deadline = None
        below = job.below
        spec = JobSpec(
            number=number,
            name=job.name,
            slots=slots,
            values=job.values,
            workers=tuple(below),
            below=tuple(below.values()) if job.awaited else (),
        )
        self._effects.append(Install(spec))

    def watching(self, membership: int, now: float) -> bool:
        """The rank's watch is open.

        Returns:
            whether its job runs as far as it is concerned; otherwise it is told, of `Begin` or of the job's end.
        """
        if membership not in self._members:
            return False
        job, member = self._members[membership]
        member.deadline, member.watching = None, True
        if job.state is State.INSTALLING:
            self._begin(job, now)
        return member.wish.via is None

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` has something to do; None: nothing is pending."""
        times = [job.inquiry.ends for job in self._jobs if job.inquiry is not None]
        times += [member.deadline for _, member in self._members.values() if member.deadline is not None]
        return min(times, default=None)

    def expire(self, now: float) -> None:
        """Lets deadlines pass."""
        for membership, (job, member) in list(self._members.items()):
            if member.deadline is None or member.deadline > now or membership not in self._members:
                continue
            if job.state is State.WAITING:
                self._give_up(job, member)
            else:
                del self._members[membership]
                self._lose(job, member, f"died: it opened no watch within {WATCH_GRACE:g} s after joining")
        for job in list(self._jobs):
            if job.inquiry is not None and job.inquiry.ends <= now:
                self._conclude(job, late=True)

    def _give_up(self, job: Job, member: Member) -> None:
        here = len(job.members)
        absent = sorted(set(range(job.world_size)) - set(job.members), key=lambda rank: (rank in job.notes, rank))
        names = [f"rank {rank}" + (f" ({job.notes[rank]})" if rank in job.notes else "") for rank in absent]
        error = JoinTimeoutError(
            f"job {job.name!r}: {here} of {job.world_size} ranks joined within {member.wish.timeout:g} s; "
            f"missing: {', '.join(names)}"
        )
        self._effects.append(JoinFailed(member.membership, error))
        del self._members[member.membership]
        del job.members[member.wish.rank]
        job.notes[member.wish.rank] = f"was here, gave up after {member.wish.timeout:g} s"
        if not job.members:
            self._drop(job)
