"""Jobs from their first joiner to their last leaver, without sockets, threads or clocks.

All state changes of a job are in this file. A method takes what happened and the time in seconds, and queues effects
that the caller carries out. A rank that goes without leaving ends a job, and so does a disagreement. Name, number and
slots are free from then on.
"""

import secrets
from collections.abc import Iterable
from typing import Final

from protocol.constants import MAX_JOBS, MAX_RANKS
from protocol.control import SHUTTING_DOWN, format_address
from protocol.errors import JoinRefusedError, JoinTimeoutError, PeerLostError, SwitchLostError, WiresumError
from switch.admission import JoinWish, SlotBudget, check_against, check_alone
from switch.dataplane import JobSpec, StalledSlot
from switch.inquiry import INQUIRY_SECONDS, Inquiry
from switch.job_events import (
    Disagreement,
    Effect,
    EndWatch,
    Event,
    Explain,
    Goodbye,
    Install,
    JobStatus,
    JoinDone,
    JoinFailed,
    PeerLeft,
    PeerLost,
    Remove,
    RunningJob,
    Tell,
)
from switch.job_state import Job, Member, State

WATCH_GRACE: Final = 5.0  # seconds in which a rank must open its watch after its join


class JobTable:
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
        self.max_ranks = max_ranks
        self.values_supported = values_supported
        self.budget = SlotBudget(total_slots, default_slots)
        self._effects: list[Effect] = []
        self._jobs: list[Job] = []
        self._whole: dict[str, Job] = {}  # jobs that no rank has left yet: they own their name
        self._members: dict[int, tuple[Job, Member]] = {}  # by membership; ranks that have left are not in it
        self._next_number = 0

    def effects(self) -> list[Effect]:
        """Takes the effects that are due."""
        effects, self._effects = self._effects, []
        return effects

    def status(self) -> list[JobStatus]:
        """All jobs, the oldest first."""
        return [job.status() for job in self._jobs]

    def running(self, membership: int) -> RunningJob | None:
        """The job of a membership, from the moment that all ranks have joined until it is over."""
        job, _ = self._members.get(membership, (None, None))
        return None if job is None else job.running()

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
            self._check_address(wish)
            self.budget.check(wish.job, _smallest(one.slots for one in (*present, wish)) or 1, wish.values)
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
        job.state = State.RUNNING
        for member in job.active:
            member.deadline = now + WATCH_GRACE
            self._effects.append(JoinDone(member.membership, number, job.slots))

    def not_installed(self, number: int, reason: str) -> None:
        """The data plane refused the job."""
        job = self._find(number)
        if job is not None:
            self._drop(job)
            self._fail_joins(job, JoinRefusedError(f"the switch could not set up job {job.name!r}: {reason}"))

    def _check_address(self, wish: JoinWish) -> None:
        for job, member in self._members.values():
            if member.wish.address == wish.address:
                raise JoinRefusedError(
                    f"{format_address(wish.address)}, from which rank {wish.rank} of job {wish.job!r} would send, "
                    f"belongs to rank {member.wish.rank} of job {job.name!r}"
                )

    def _complete(self, job: Job) -> None:
        wishes = [member.wish for member in job.active]
        slots = _smallest(wish.slots for wish in wishes) or self.budget.default(
            job.values, _smallest(wish.most_slots for wish in wishes)
        )
        try:
            self.budget.check(job.name, slots, job.values)
            number = self._free_number(job.name)
        except JoinRefusedError as error:
            self._drop(job)
            self._fail_joins(job, error)
            return
        job.state = State.INSTALLING
        job.number, job.slots = number, slots
        self.budget.take(number, job.name, slots, job.values)
        for member in job.active:
            member.deadline = None
        workers = tuple(member.wish.address for member in job.active)
        self._effects.append(
            Install(JobSpec(number=number, name=job.name, slots=slots, values=job.values, workers=workers))
        )

    def _free_number(self, name: str) -> int:
        """The next free number in cyclic order, so that a number rests before packets of an old job could meet it."""
        used = {job.number for job in self._jobs}
        for step in range(MAX_JOBS):
            number = (self._next_number + step) % MAX_JOBS
            if number not in used:
                self._next_number = (number + 1) % MAX_JOBS
                return number
        raise JoinRefusedError(f"no job number is free for job {name!r}: the switch already serves {MAX_JOBS} jobs")

    def _fail_joins(self, job: Job, error: WiresumError) -> None:
        self._effects.extend(JoinFailed(member.membership, error) for member in job.active)

    # Leaving and dying

    def watching(self, membership: int) -> None:
        """The rank's watch is open."""
        if membership in self._members:
            self._members[membership][1].deadline = None

    def leave(self, membership: int) -> None:
        """The rank leaves; nothing happens if its job is over.

        The others are not told: as long as they do not wait for its packets it makes no difference to them, and they
        may still have to fetch their last results. `blocked` finds those that do wait.
        """
        if membership not in self._members:
            return
        job, member = self._members.pop(membership)
        self._effects.append(EndWatch(membership))
        if job.state is not State.RUNNING:
            self._lose(job, member, "left")
            return
        member.left = True
        if self._whole.get(job.name) is job:
            del self._whole[job.name]
        if not job.active:
            self._drop(job)
        else:
            self._conclude(job)

    def gone(self, membership: int) -> None:
        """The rank's connection broke, while it was joining or watching; nothing happens if it had left before."""
        if membership in self._members:
            job, member = self._members.pop(membership)
            self._lose(job, member, "died")

    def draining(self) -> list[int]:
        """Jobs that some ranks have left; ask the data plane for their stalled slots, and hand these to `blocked`."""
        return [
            job.number
            for job in self._jobs
            if job.number is not None and any(member.left for member in job.members.values())
        ]

    def blocked(self, number: int, stalled: Iterable[StalledSlot]) -> None:
        """Ends a job in which some rank waits for one that has left.

        A rank that left after its last collective had all its results, so all its packets were counted: it is missing
        from a slot only if another rank has begun something that can never end.
        """
        job = self._find(number)
        missing = {rank for slot in stalled for rank in slot.missing}
        if job is None:
            return
        for rank, member in sorted(job.members.items()):
            if member.left and rank in missing:
                text = f"{member.name} left job {job.name!r} while other ranks wait for it"
                self._end(job, PeerLeft(rank, format_address(member.wish.address), text))
                return

    def shutdown(self) -> None:
        """Ends everything."""
        for job in list(self._jobs):
            if job.state is State.RUNNING:
                self._end(job, Goodbye())
            else:
                self._drop(job)
                self._fail_joins(job, SwitchLostError(SHUTTING_DOWN))

    def _lose(self, job: Job, member: Member, how: str) -> None:
        if job.state is State.WAITING:
            del job.members[member.wish.rank]
            job.notes[member.wish.rank] = f"{how} while waiting, was at {format_address(member.wish.address)}"
            if not job.members:
                self._drop(job)
            return
        member.left = True
        text = f"{member.name} of job {job.name!r} {how}"
        if job.state is State.INSTALLING:
            self._drop(job)
            self._fail_joins(job, PeerLostError(text))
        else:
            self._end(job, PeerLost(member.wish.rank, format_address(member.wish.address), text))

    def _end(self, job: Job, event: Event) -> None:
        self._drop(job)
        self._effects.extend(Tell(member.membership, event) for member in job.active)

    def _drop(self, job: Job) -> None:
        self._jobs.remove(job)
        if self._whole.get(job.name) is job:
            del self._whole[job.name]
        for member in job.members.values():
            self._members.pop(member.membership, None)
        if job.number is not None:
            self.budget.give_back(job.number)
            self._effects.append(Remove(job.number))

    def _find(self, number: int) -> Job | None:
        return next((job for job in self._jobs if job.number == number), None)

    # Disagreement

    def disagree(self, membership: int, collective: int, request: str, now: float) -> None:
        """A rank found that the ranks disagree about a collective: each is asked, then the job ends.

        Nothing happens if the job is over, or if another collective is under inquiry already.
        """
        if membership not in self._members:
            return
        job, member = self._members[membership]
        if job.inquiry is None:
            job.inquiry = Inquiry(collective=collective, ends=now + INQUIRY_SECONDS)
            self._effects.extend(
                Tell(other.membership, Explain(collective)) for other in job.active if other is not member
            )
        self.explain(membership, collective, request)

    def explain(self, membership: int, collective: int, account: str) -> None:
        """A rank's account of the disputed collective."""
        if membership not in self._members:
            return
        job, member = self._members[membership]
        if job.inquiry is not None and job.inquiry.collective == collective:
            job.inquiry.accounts[member.wish.rank] = account
            self._conclude(job)

    def _conclude(self, job: Job, *, late: bool = False) -> None:
        """Ends a job that is under inquiry, if all ranks have spoken or it is too late for them to."""
        if job.inquiry is None:
            return
        if late or all(member.wish.rank in job.inquiry.accounts for member in job.active):
            left = {rank: member.left for rank, member in job.members.items()}
            self._end(job, Disagreement(job.inquiry.describe(job.name, left)))

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


def _smallest(slots: Iterable[int]) -> int:
    """The smallest pool that anyone asked for; 0: nobody asked for one in particular."""
    return min((number for number in slots if number), default=0)
