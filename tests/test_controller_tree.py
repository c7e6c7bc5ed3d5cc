"""A P4 switch as a leaf under a software switch: racks of different kinds add up to one job."""

from contextlib import ExitStack

import pytest

from switch.server import SoftwareSwitch
from tests.p4_rack import enter, p4_rack, why_not
from tests.rank_process import RankProcess, bits_of_sums
from tests.ranks import run_ranks

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["model", "bmv2"])
def test_sums_over_a_tree_have_the_bits_of_one_switch(kind: str) -> None:
    """Two ranks below the leaf and one at the root, with loss on the links between root and leaf."""
    if reason := why_not(kind):
        pytest.skip(reason)
    with SoftwareSwitch(port=0, control_port=0) as switch:
        (expected,) = set(run_ranks(switch, 3, bits_of_sums, values_per_packet=64))
    lossy = ["--faults-in", "loss=0.05", "--faults-out", "loss=0.05"]
    with p4_rack(kind, workers=2, root=lossy) as rack, ExitStack() as ending:
        places = [(rack.switch, rack.enter(0)), (rack.switch, rack.enter(1)), (rack.root, enter(rack.management))]
        ranks = [
            ending.enter_context(
                RankProcess(
                    "say_sums", address, job="tree", rank=rank, world_size=3, timeout=30.0, values=64, prefix=prefix
                )
            )
            for rank, (address, prefix) in enumerate(places)
        ]
        for rank in ranks:
            rank.expect(expected)
            assert rank.wait(10) == 0, rank.stderr()
