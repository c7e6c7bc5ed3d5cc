"""A job on the model over links with offloads as the kernel has them: workers send many packets as one frame."""

import pytest

from switch.server import SoftwareSwitch
from tests.p4_rack import p4_rack, why_not
from tests.rank_process import RankProcess, bits_of_sums
from tests.ranks import run_ranks

WORKERS = 2


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("model")), reason=why_not("model") or "can be")
def test_sums_are_exact_over_links_that_leave_segmentation_to_hardware() -> None:
    with SoftwareSwitch(port=0, control_port=0) as switch:
        (expected,) = set(run_ranks(switch, WORKERS, bits_of_sums, values_per_packet=64))
    with p4_rack("model", workers=WORKERS, offloads=True) as rack:
        ranks = [
            RankProcess(
                "say_sums",
                rack.switch,
                job="offloads",
                rank=rank,
                world_size=WORKERS,
                timeout=30.0,
                prefix=rack.enter(rank),
            )
            for rank in range(WORKERS)
        ]
        try:
            for process in ranks:
                process.expect(expected)
                assert process.wait(10) == 0, process.stderr()
        finally:
            for process in ranks:
                process.kill()
        assert "came in and was dropped" not in rack.target_process.kill()
