"""How a worker finds out that packets were lost, compiled: round trips, time-outs, and what later answers tell."""

from typing import Any

import numpy as np

from host.state_kernels import push
from protocol.jit import kernel

_FAST_TRIES = 3  # after that many sendings only the timer speaks, so that a slow peer is not flooded
_PROBES = 8  # chunks that a time-out sends again
_PROBE_DOUBLINGS = 3  # how often as many as that are doubled while nothing is answered
_REORDERING_SECONDS = 0.0002  # the least by which a chunk must be overtaken to count as lost
_FASTEST_SECONDS = 10.0  # for which the fastest round trip is remembered


@kernel
def time_out(state: Any, flight: Any) -> float:
    """When a chunk in flight has waited for too long.

    As long as answers come, a queue is moving, however long it is, and so the time-out counts from the last answer. Not
    for chunks that have been overtaken: theirs counts from when they were sent.

    Doubled once only: a chunk that others lost is sent here in vain, again and again, and must not wait for a second
    when at last its result is lost. It is silence that the worker backs off from, see `find_lost`.
    """
    since = flight.sent
    if flight.chunk > state.frontier:
        since = max(since, state.progress)
    return float(since + min(state.rto * (1 if flight.tries == 1 else 2), state.rto_max))


@kernel
def measure(state: Any, sample: float, now: float) -> None:
    """Learns the retransmission time-out as in RFC 6298, from the mean round trip of a batch of answers.

    A sample for each answer would be many of the same: the variance would be forgotten within a batch.
    """
    if state.srtt < 0:
        # The first answers may have waited for ranks that began later: they can shorten the time-out, not prolong it.
        sample = min(sample, state.rto / 3)
        state.srtt = sample
        state.rttvar = sample / 2
    else:
        # Some answers had to wait until another rank's loss was mended. Counted in full they would raise the time-out,
        # and with it the time that such losses take to mend.
        sample = min(sample, state.srtt + max(2 * state.rttvar, state.srtt / 2))
        state.rttvar += (abs(state.srtt - sample) - state.rttvar) / 4
        state.srtt += (sample - state.srtt) / 8
    # Where ranks take turns at being late, even most answers may have waited for one of them; the fastest did not. As
    # with BBR, that of the last ten seconds counts. `receive` takes it from answers to repeated chunks, too, where it
    # may come out too short: a time-out that is too short costs a few probes, one that is too long makes this rank the
    # one that is late, and so the time-outs of all others long.
    if now >= state.fastest_until:
        state.fastest = state.fastest_now
        state.fastest_now = np.inf
        state.fastest_until = now + _FASTEST_SECONDS
    fastest = min(state.fastest, state.fastest_now)
    limit = min(max(4 * state.rto_min, 16 * fastest), state.rto_max)
    state.rto = min(max(state.srtt + 4 * state.rttvar, state.rto_min), limit)


@kernel
def reordering(state: Any) -> float:
    """By how many seconds a chunk must have been overtaken to count as lost."""
    return float(max(state.srtt / 4, _REORDERING_SECONDS))


@kernel
def answered_sending(state: Any, flight: Any, now: float) -> float:
    """When the sending that an answer belongs to took place, as far as that can be known.

    After a chunk was sent again because it had been overtaken, the answer is often that to the first sending: it came
    late for the sake of a rank that had lost it. To take the second for answered would make everything sent between the
    two look lost. A probe, though, goes out when all is silent, and what answers it is told by the time.
    """
    if flight.tries == 1 or (flight.probe and now - flight.sent >= state.srtt / 2):
        return float(flight.sent)
    return float(flight.first)


@kernel
def find_lost(state: Any, flights: Any, queue: Any, now: float, answered: int, overtaken: float, timed: bool) -> None:
    """Queues chunks for retransmission and sets the next deadline.

    A chunk counts as lost when a higher one that was sent well after it has been answered, in the manner of RACK
    (RFC 8985): every rank sends its chunks in order, whatever keeps it from doing so at once. A lower one says nothing:
    it was late here, and the other ranks may have sent it long before.
    When its time-out has passed instead, nobody knows whether it was lost or another rank is late; then only a few
    chunks are sent as probes, the highest of all among them, whose answer will tell what else was lost. As long as
    nothing at all is answered, more are sent after twice the time.

    Args:
        answered: a chunk that was answered.
        overtaken: lower ones that were sent before this time should have been answered too.
        timed: whether time-outs count at this moment; not while answers may lie unread in the socket.
    """
    timed = timed and now >= state.quiet_until
    slots = flights.shape[0]
    first = state.lowest
    room = _PROBES << min(state.silence, _PROBE_DOUBLINGS)
    probes = 0
    deadline = np.inf
    highest = -1
    if timed:
        for slot in range(slots):
            if not flights[slot].done and not flights[slot].queued:
                highest = max(highest, int(flights[slot].chunk))
    for i in range(slots):
        slot = (first + i) & (slots - 1)
        flight = flights[slot]
        if flight.done or flight.queued:
            continue
        if flight.sent < overtaken and flight.chunk < answered and flight.tries < _FAST_TRIES:
            flight.probe = 0
            push(state, flights, queue, slot)
            state.in_flight -= 1
            continue
        due = time_out(state, flight)
        if timed and due <= now and (probes < room - 1 or flight.chunk == highest):
            probes += 1
            flight.probe = 1
            push(state, flights, queue, slot)
            state.in_flight -= 1
        else:
            deadline = min(deadline, due)
    if probes:
        state.silence += 1
        state.quiet_until = now + min(state.rto * 2.0 ** min(state.silence, 16), state.rto_max)
    state.deadline = max(deadline, state.quiet_until) if deadline < np.inf else np.inf
