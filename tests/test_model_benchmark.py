"""The job that the benchmark of the P4 program uses: real frames, right sums."""

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from benchmarks.p4_job import FrameStream, load_model

WORKERS, SLOTS = 3, 4


@pytest.mark.parametrize("values", [32, 64])
def test_every_chunk_is_answered_with_the_sum(values: int) -> None:
    switch = load_model(values, WORKERS, SLOTS)
    streams = [FrameStream(rank, values=values, slots=SLOTS) for rank in range(WORKERS)]
    for chunk in range(3 * SLOTS):
        frames = [bytes(stream.chunk(chunk)) for stream in streams]
        out = [switch.receive(rank, frame, 1.0) for rank, frame in enumerate(frames)]
        assert out[:2] == [[], []]
        assert [port for port, _ in out[2]] == [0, 1, 2]
        total = sum(np.frombuffer(frame[52:], ">u4").astype(np.uint64) for frame in frames)
        for _, result in out[2]:
            assert np.array_equal(np.frombuffer(result[52:], ">u4"), np.uint64(total) % 2**32)
        again = Ether(frames[1])
        for layer in (IP, UDP):
            del again[layer].chksum
        assert bytes(again) == frames[1]


def test_chunk_numbers_wrap() -> None:
    stream = FrameStream(0, values=32, slots=SLOTS)
    assert stream.chunk(2**32)[44:48] == bytes(4)
    assert stream.chunk(2**32 - 1)[44:50] == b"\xff\xff\xff\xff\x80\x03"
