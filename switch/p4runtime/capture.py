"""A port that writes what goes through it to capture files, as BMv2's --pcap does."""

import time
from collections.abc import Sequence
from pathlib import Path

from switch.model.interfaces import Port
from switch.model.pcap import PcapWriter


class CapturedPort:
    """Another port, with `NAME_in.pcap` and `NAME_out.pcap` in a folder.

    Raises:
        OSError: a file cannot be written.
    """

    def __init__(self, port: Port, folder: Path, name: str) -> None:
        self._port = port
        self.counters = port.counters
        self._in = PcapWriter(folder / f"{name}_in.pcap")
        try:
            self._out = PcapWriter(folder / f"{name}_out.pcap")
        except BaseException:
            self._in.close()
            raise

    def fileno(self) -> int:
        """The port's."""
        return self._port.fileno()

    def receive(self) -> Sequence[bytes]:
        """The port's next frames."""
        frames = self._port.receive()
        for frame in frames:
            self._in.write(time.time(), frame)
        return frames

    def send(self, frame: bytes) -> None:
        """Sends a frame."""
        self._out.write(time.time(), frame)
        self._port.send(frame)

    def clear_error(self) -> None:
        """Takes note of an error of the port."""
        self._port.clear_error()

    def update(self) -> None:
        """Brings counters up to date."""
        self._port.update()

    def close(self) -> None:
        """Closes the port and the files."""
        self._port.close()
        self._in.close()
        self._out.close()
