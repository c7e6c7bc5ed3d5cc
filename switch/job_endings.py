"""How jobs end: ranks leave, die, wait in vain or disagree. See `switch.jobs`."""

from collections.abc import Iterable

from protocol.control import SHUTTING_DOWN, format_address
from protocol.errors import JoinRefusedError, PeerLostError, SwitchLostError, WiresumError
from switch.admission import SlotBudget
from switch.dataplane import StalledSlot
from switch.inquiry import INQUIRY_SECONDS, Inquiry
from switch.job_events import (
    Disagreement,
    Effect,
    EndWatch,
    Event,
    Explain,
    Goodbye,
    JobStatus,
    JoinFailed,
    PeerLeft,
    PeerLost,
    Refused,
    Remove,
    RunningJob,
    Tell,
)
from switch.job_state import Job, Member, State


class EndingJobs:
    """The part of `switch.jobs.JobTable` that ends jobs, and what both parts share.

    Attributes:
        budget: the slots, and who has them.
    """

    def __init__(self, budget: SlotBudget):
        self.budget = budget
        self._effects: list[Effect] = []
        self._jobs: list[Job] = []
        self._whole: dict[str, Job] = {}  # jobs that no rank has left yet: they own their name
        self._members: dict[int, tuple[Job, Member]] = {}  # by membership; ranks that have left are not in it

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

    def running_number(self, number: int) -> RunningJob | None:
        """The same for the job of a number."""
        return next((job.running() for job in self._jobs if job.number == number), None)

    # Leaving and dying

    def given_up(self, membership: int, reason: str, *, refused: bool = False) -> None:
        """A leaf switch gives a rank up; nothing happens if its job is over.

        Args:
            reason: what became of the rank.
            refused: whether the leaf switch itself is the reason: it cannot take the job.
        """
        if membership not in self._members:
            return
        job, member = self._members.pop(membership)
        self._effects.append(EndWatch(membership))
        if refused and job.state is State.INSTALLING:
            member.left = True
            self._drop(job)
            self._fail_joins(job, JoinRefusedError(reason))
        else:
            self._lose(job, member, reason)

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
            via = member.wish.via
            leaf = "" if via is None else f", or the leaf switch at {format_address(via)}, which it was below, did"
            self._lose(job, member, f"died{leaf}")

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
        if job is None:
            return
        missing = {number for slot in stalled for number in slot.missing}
        for number, ranks in enumerate(job.below.values()):
            # Which ranks below a leaf are waited for is the leaf's to see, as long as one of them is there.
            if number in missing and all(job.members[rank].left for rank in ranks):
                self._end_left(job, ranks[0])
                return

    def blocked_below(self, membership: int, rank: int) -> None:
        """A leaf switch says that a rank below it waits for another, which has left."""
        job, _ = self._members.get(membership, (None, None))
        if job is not None and rank in job.members and job.members[rank].left:
            self._end_left(job, rank)

    def _end_left(self, job: Job, rank: int) -> None:
        member = job.members[rank]
        text = f"{member.name} left job {job.name!r} while other ranks wait for it"
        self._end(job, PeerLeft(rank, format_address(member.wish.address), text))

    def shutdown(self) -> None:
        """Ends everything."""
        for job in list(self._jobs):
            if job.state is State.RUNNING:
                self._end(job, Goodbye())
            else:
                self._drop(job)
                self._fail_joins(job, SwitchLostError(SHUTTING_DOWN), Goodbye())

    def _lose(self, job: Job, member: Member, how: str) -> None:
        if job.state is State.WAITING:
            del job.members[member.wish.rank]
            job.notes[member.wish.rank] = f"{how} while waiting, was at {format_address(member.wish.address)}"
            if not job.members:
                self._drop(job)
            return
        member.left = True
        text = f"{member.name} of job {job.name!r} {how}"
        lost = PeerLost(member.wish.rank, format_address(member.wish.address), text)
        if job.state is State.INSTALLING:
            self._drop(job)
            self._fail_joins(job, PeerLostError(text), lost)
        else:
            self._end(job, lost)

    def _fail_joins(self, job: Job, error: WiresumError, event: Event | None = None) -> None:
        """Fails the joins of a job that has not begun; leaf switches, which may have been answered, get the event."""
        for member in job.active:
            if member.answered:
                self._effects.append(Tell(member.membership, event or Refused(str(error))))
            else:
                self._effects.append(JoinFailed(member.membership, error))

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
