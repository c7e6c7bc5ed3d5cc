"""The demo's training through the P4 program, in namespaces with links: the same weights, bit for bit, as elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from tests.p4_rack import p4_rack, why_not

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.demo_workers import forked_workers
from wiresum.demo.report import Run
from wiresum.demo.settings import Settings
from wiresum.demo.training import save_digits, train
from wiresum.processes import SwitchProcess

# Blocks, and with them roundings, are those of 64 values on every switch.
SETTINGS = Settings(workers=2, loss=0, epochs=1, model="mlp", values=64, seed=3)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    save_digits(path, SETTINGS.seed)
    return path


@pytest.fixture(scope="module")
def fast(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same training through the software switch."""
    with SwitchProcess() as switch, forked_workers():
        directory = tmp_path_factory.mktemp("fast")
        return train(SETTINGS, "wiresum", data=digits, directory=directory, switch=switch.address)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "bmv2"])
def test_weights_are_those_of_the_fast_switch(
    kind: str, digits: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if reason := why_not(kind):
        pytest.skip(reason)
    expected: Run = request.getfixturevalue("fast")
    with p4_rack(kind, workers=SETTINGS.workers, values=SETTINGS.values) as rack, forked_workers():
        run = train(
            SETTINGS,
            "wiresum",
            data=digits,
            directory=tmp_path,
            prefixes=[rack.enter(host) for host in range(SETTINGS.workers)],
            environment={"WIRESUM_SWITCH": rack.switch, "GLOO_SOCKET_IFNAME": "eth0"},
        )
    assert len(set(run.digests)) == 1
    assert run.digests == expected.digests
    assert np.array_equal(run.weights.view(np.uint32), expected.weights.view(np.uint32))
    assert [epoch.loss for epoch in run.epochs] == [epoch.loss for epoch in expected.epochs]
