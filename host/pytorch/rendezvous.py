"""How the ranks of a group agree on a name for their job at the switch, without the user choosing one."""

import uuid
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed exports them, but not to type checkers

from protocol.errors import JoinTimeoutError


def fresh_name() -> str:
    """A job name that no other run has."""
    return f"torch-{uuid.uuid4().hex[:12]}"


def fresh_store(store: Store, rank: int) -> Store:
    """A part of the group's store that no earlier group wrote to.

    A script that destroys its group and makes it anew gets the same store, under the same prefix, with all that the
    first group left there. Each rank therefore counts its own visits: the ranks of one group are all on the same one.
    """
    visit = store.add(f"wiresum/visits/{rank}", 1)
    return PrefixStore(f"wiresum/{visit}/", store)


def agree_on_job(store: Store, *, rank: int, wanted: str | None, suffix: str, timeout: timedelta) -> str:
    """The name of the group's job, the same on all ranks: rank 0 chooses it.

    Args:
        store: one that no earlier group wrote to, as `fresh_store` gives.
        rank: this process's rank in the group.
        wanted: the name to take; None takes one that no other run has.
        suffix: added to the name, to tell the groups of a run apart.
        timeout: how long to wait for rank 0.

    Raises:
        JoinTimeoutError: rank 0 did not come.
    """
    if rank == 0:
        name = (wanted or fresh_name()) + suffix
        store.set("job", name)
        return name
    try:
        store.wait(["job"], timeout)
    except RuntimeError as error:  # DistStoreError in some stores, a plain one in others
        raise JoinTimeoutError(
            f"rank 0 did not come to make the process group within {timeout.total_seconds():g} s: {error}"
        ) from error
    return str(store.get("job"), "utf-8")
