"""A UDP socket that sends and receives batches: segmentation and receive offload where the kernel has them.

With `UDP_SEGMENT` one send leaves as up to 64 datagrams, with `UDP_GRO` one receive returns many of one sender; both
are Linux's. Without them every datagram costs a call: slower, the same on the wire.
"""

import errno
import socket
import struct
import sys
from typing import Final

import numpy as np

from protocol.constants import MAX_DATAGRAM, MAX_SEGMENTS
from protocol.packets import Address, PacketBatch

_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8  # index in what SO_MEMINFO returns
_BUFFER_BYTES: Final = 8 << 20
_RECEIVE_BYTES: Final = 1 << 16
_ANCILLARY: Final = socket.CMSG_SPACE(4)
_TRUNCATED: Final = int(socket.MSG_TRUNC)  # as a plain number: socket.MsgFlag takes microseconds

# A batch that this route cannot take as one: a segment above the MTU, a device without checksum offload.
_NO_OFFLOAD: Final = (errno.EINVAL, errno.EMSGSIZE, errno.EIO, errno.ENOTSUP)
# What a peer's closed port or a missing route tells; whether the peer lives is the control service's to say.
_PEER_TROUBLE: Final = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EPERM)


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
        self.truncated = 0  # datagrams larger than the protocol allows
        self.unsent = 0  # packets that the kernel would not take
        self._segment = 0
        self._buffer = np.zeros(_RECEIVE_BYTES, np.uint8)
        self._view = self._buffer.data
        self._views = [self._view]
        self._address: int = self._buffer.ctypes.data
        try:
            if share:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(bind)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            self.can_segment = offload and self._try_option(_UDP_SEGMENT, 0)
            self.can_coalesce = offload and self._try_option(_UDP_GRO, 1)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setblocking(False)

    def _try_option(self, option: int, value: int) -> bool:
        if not sys.platform.startswith("linux"):
            return False
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

    def send(self, batch: PacketBatch, peer: Address | None = None) -> int:
        """Sends a batch, to `peer` or to whom the socket is connected; never blocks.

        Returns:
            bytes that were left when the kernel had no more room; 0 when all is sent. Packets that it refuses for
            another reason are lost, as on a wire, and counted in `unsent`.
        """
        size, segment = batch.size, batch.segment
        if self.can_segment and size > segment:
            most = min(MAX_SEGMENTS, MAX_DATAGRAM // segment) * segment
            if size > most:
                return self._send_parts(batch, most, peer)
            try:
                if self._segment != segment:
                    self.socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, segment)
                    self._segment = segment
                if peer is None:
                    self.socket.send(batch.view)
                else:
                    self.socket.sendto(batch.view, peer)
            except BlockingIOError:
                return size
            except OSError as error:
                if error.errno in _PEER_TROUBLE or error.errno == errno.ENOBUFS:
                    self.unsent += len(batch)
                    return 0
                if error.errno not in _NO_OFFLOAD:
                    raise
                self.can_segment = False
                self.socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
                self._segment = 0
            else:
                return 0
        return self._send_each(batch, peer)

    def _send_parts(self, batch: PacketBatch, most: int, peer: Address | None) -> int:
        for start in range(0, batch.size, most):
            part = PacketBatch(batch.view[start : start + most], batch.address + start, batch.segment)
            left = self.send(part, peer)
            if left:
                return left + max(0, batch.size - start - most)
        return 0

    def _send_each(self, batch: PacketBatch, peer: Address | None) -> int:
        if self._segment and self._segment < batch.segment:
            # Else the kernel would cut even a single packet into pieces of what was sent last.
            self.socket.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
            self._segment = 0
        for start in range(0, batch.size, batch.segment):
            packet = batch.view[start : start + batch.segment]
            try:
                if peer is None:
                    self.socket.send(packet)
                else:
                    self.socket.sendto(packet, peer)
            except BlockingIOError:
                return batch.size - start
            except OSError as error:
                if error.errno not in _PEER_TROUBLE and error.errno not in (errno.ENOBUFS, errno.EMSGSIZE):
                    raise
                self.unsent += 1
        return 0

    def receive(self) -> tuple[PacketBatch, Address] | None:
        """The next batch of one sender, or None if nothing is there; a view that the next call overwrites."""
        while True:
            try:
                size, ancillary, flags, source = self.socket.recvmsg_into(self._views, _ANCILLARY)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in _PEER_TROUBLE:
                    continue  # an earlier send's error; nothing was received
                raise
            if flags & _TRUNCATED:
                self.truncated += 1
                continue
            segment = int.from_bytes(ancillary[0][2], sys.byteorder) if ancillary else size
            return PacketBatch(self._view[:size], self._address, segment or 1), source

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()
