"""A UDP socket that sends and receives batches: segmentation and receive offload where the kernel has them.

With `UDP_SEGMENT` one send leaves as up to 64 datagrams, with `UDP_GRO` one receive returns many of one sender; both
are Linux's. Without them every datagram costs a call: slower, the same on the wire.
"""

import ipaddress
import os
import socket
import struct
from typing import Final

import numpy as np

from protocol import socket_kernels as kernels
from protocol.packets import Address, PacketBatch

_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8  # index in what SO_MEMINFO returns
_BUFFER_BYTES: Final = 8 << 20


class DatagramSocket:
    """A UDP socket for batches of packets.

    Args:
        bind: local address; port 0 takes a free one.
        offload: whether to use segmentation and receive offload where the kernel has them.
        share: let further sockets bind to the same address (they must be connected to tell their traffic apart).

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, bind: Address, *, offload: bool = True, share: bool = False) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            if share:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(bind)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            can_segment = offload and self._try_option(kernels.UDP_SEGMENT, 0)
            self.can_coalesce = offload and self._try_option(kernels.UDP_GRO, 1)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self._buffer = np.zeros(kernels.RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._buffer_address: int = self._buffer.ctypes.data
        # What recvmsg is given: header, source address, control messages, and one piece of memory to fill.
        self._header = np.zeros(1, kernels.MSGHDR)
        self._name = np.zeros(2, np.int64)
        self._control = np.zeros(kernels.CONTROL_BYTES // 8, np.int64)
        self._pieces = np.array([self._buffer_address, self._buffer.size], np.int64)
        header = self._header[0]
        header["name"], header["control"] = self._name.ctypes.data, self._control.ctypes.data
        header["iov"], header["iovlen"] = self._pieces.ctypes.data, 1
        self._record = np.zeros(1, kernels.LINK)
        self._link = self._record[0]
        self._link["fd"], self._link["can_segment"] = self.socket.fileno(), can_segment
        self._link["buffer"], self._link["header"] = self._buffer_address, self._header.ctypes.data
        self._link["name"], self._link["control"] = header["name"], header["control"]
        self.link: int = self._record.ctypes.data  # address of the LINK record, for compiled code

    def _try_option(self, option: int, value: int) -> bool:
        try:
            self.socket.setsockopt(socket.IPPROTO_UDP, option, value)
        except OSError:
            return False
        return True

    def allow_sharing(self) -> None:
        """Lets connected sockets bind to this socket's address from now on.

        Set only after the bind, it still keeps a second process from taking the address.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    @property
    def can_segment(self) -> bool:
        """Whether the kernel cuts a large send into packets."""
        return bool(self._link["can_segment"])

    @property
    def truncated(self) -> int:
        """Datagrams larger than the protocol allows, which were dropped."""
        return int(self._link["truncated"])

    @property
    def unsent(self) -> int:
        """Packets that the kernel would not take."""
        return int(self._link["unsent"])

    @property
    def address(self) -> Address:
        """The local address."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    @property
    def receive_bytes(self) -> int:
        """What the kernel grants as receive buffer, counting its own overhead for each packet."""
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def connect(self, peer: Address) -> None:
        """Fixes the peer: only its datagrams are received here, and `send` goes there."""
        self.socket.connect(peer)

    def fileno(self) -> int:
        """For select and its kind."""
        return self.socket.fileno()

    def overflows(self) -> int:
        """Datagrams, or coalesced runs of them, that the kernel dropped because the receive buffer was full."""
        try:
            info = self.socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
        except OSError:
            return 0
        words = struct.unpack(f"{len(info) // 4}I", info)
        return words[_MEMINFO_DROPS] if len(words) > _MEMINFO_DROPS else 0

    def send(self, batch: PacketBatch) -> int:
        """Sends a batch to whom the socket is connected; never blocks.

        Returns:
            bytes that were left when the kernel had no more room; 0 when all is sent. Packets that it refuses for
            another reason that may pass are lost, as on a wire, and counted in `unsent`.

        Raises:
            OSError: for a reason that does not pass.
        """
        left = kernels.send(self.link, batch.address, batch.size, batch.segment)
        if left < 0:
            raise OSError(-left, os.strerror(-left))
        return left

    def receive(self) -> PacketBatch | None:
        """The next batch of one sender, or None if nothing is there; a view that the next call overwrites.

        Raises:
            OSError: the socket does not work.
        """
        size = kernels.receive(self.link)
        if size < 0:
            if size == kernels.NOTHING:
                return None
            raise OSError(-size, os.strerror(-size))
        return PacketBatch(self._view[:size], self._buffer_address, int(self._link["received_segment"]))

    @property
    def source(self) -> Address:
        """Where the batch that was received last came from."""
        return str(ipaddress.IPv4Address(int(self._link["host"]))), int(self._link["port"])

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()
