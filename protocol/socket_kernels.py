"""Sending and receiving batches of datagrams from compiled code: the kernel's segmentation and receive offload.

A batch of 60 packets takes less time than the Python around two system calls, so that the calls themselves are compiled
too. Sockets are made and closed in protocol/datagrams.py; here they are a LINK record. Linux only: constants and
structures are those of its 64-bit ABI.
"""

from typing import Any, Final

import numpy as np
from numba import carray, types

from protocol.constants import MAX_DATAGRAM, MAX_SEGMENTS
from protocol.jit import kernel
from protocol.kernels import load16, load32, pointer

RECEIVE_BYTES: Final = 1 << 16
CONTROL_BYTES: Final = 64

# One UDP socket.
LINK = np.dtype(
    [
        ("fd", "i8"),
        ("can_segment", "i8"),  # whether the kernel cuts a large send into packets
        ("segment", "i8"),  # what UDP_SEGMENT is set to
        ("buffer", "i8"),  # address of what was received last, RECEIVE_BYTES
        ("received_segment", "i8"),  # bytes of each packet of it, but the last
        ("host", "i8"),  # its source: IPv4 address as a number
        ("port", "i8"),
        ("header", "i8"),  # address of a MSGHDR for receiving
        ("name", "i8"),  # address of the struct sockaddr_in that it points to
        ("control", "i8"),  # address of its control messages
        ("truncated", "i8"),  # datagrams larger than the protocol allows
        ("unsent", "i8"),  # packets that the kernel would not take
    ],
    align=True,
)

# struct msghdr
MSGHDR = np.dtype(
    [
        ("name", "i8"),
        ("namelen", "i4"),
        ("pad", "i4"),
        ("iov", "i8"),
        ("iovlen", "i8"),
        ("control", "i8"),
        ("controllen", "i8"),
        ("flags", "i4"),
        ("pad2", "i4"),
    ]
)

_NAME_BYTES: Final = 16
_IPPROTO_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104
_MSG_TRUNC: Final = 0x20
_MSG_DONTWAIT: Final = 0x40

_EPERM, _EINTR, _EIO, _EAGAIN, _EACCES, _EINVAL, _EMSGSIZE, _EOPNOTSUPP = 1, 4, 5, 11, 13, 22, 90, 95
_ENETDOWN, _ENETUNREACH, _ENOBUFS, _ECONNREFUSED, _EHOSTUNREACH = 100, 101, 105, 111, 113
_ENONET, _EPROTO, _ENOPROTOOPT, _EHOSTDOWN = 64, 71, 92, 112

_POLLIN: Final = 1
INTERRUPTED: Final = 4

NOTHING: Final = -_EAGAIN  # what `receive` returns when no datagram is there

_recvmsg = types.ExternalFunction("recvmsg", types.intp(types.intc, types.intp, types.intc))
_send = types.ExternalFunction("send", types.intp(types.intc, types.intp, types.uintp, types.intc))
_setsockopt = types.ExternalFunction(
    "setsockopt", types.intc(types.intc, types.intc, types.intc, types.intp, types.uintc)
)
_ppoll = types.ExternalFunction("ppoll", types.intc(types.intp, types.uintp, types.intp, types.intp))
_errno_location = types.ExternalFunction("__errno_location", types.intp())
_clock_gettime = types.ExternalFunction("clock_gettime", types.intc(types.intc, types.intp))
_CLOCK_MONOTONIC: Final = 1


@kernel
def errno() -> int:
    """The error of the last system call that failed in this thread."""
    return int(carray(pointer(_errno_location()), (1,), np.int32)[0])


@kernel
def monotonic() -> float:
    """The same clock as Python's time.monotonic, in seconds."""
    spec = np.zeros(2, np.int64)
    _clock_gettime(_CLOCK_MONOTONIC, spec.ctypes.data)
    return float(spec[0] + spec[1] * 1e-9)


@kernel
def wait_readable(first: int, second: int, seconds: float) -> int:
    """Waits until one of two descriptors can be read, at most so many seconds.

    Returns:
        bit 0 and bit 1 for the first and the second, 0 when the time is up, INTERRUPTED when a signal came.
    """
    words = np.array([first | _POLLIN << 32, second | _POLLIN << 32], np.int64)  # two struct pollfd, little-endian
    time = np.zeros(2, np.int64)
    time[0] = int(seconds)
    time[1] = int((seconds - int(seconds)) * 1e9)
    ready = _ppoll(words.ctypes.data, 2, time.ctypes.data, 0)
    if ready <= 0:
        return INTERRUPTED if ready < 0 else 0
    return (1 if words[0] >> 48 else 0) | (2 if words[1] >> 48 else 0)


@kernel
def is_peer_trouble(error: int) -> bool:
    """Whether an error tells of the peer or the way there; whether the peer lives is the control service's to say.

    A connected socket is told what ICMP messages say, which anybody may send; none may stop it.
    """
    return error in (
        _EPERM,
        _EACCES,
        _ENONET,
        _EPROTO,
        _EMSGSIZE,
        _ENOPROTOOPT,
        _EOPNOTSUPP,
        _ENETDOWN,
        _ENETUNREACH,
        _ECONNREFUSED,
        _EHOSTDOWN,
        _EHOSTUNREACH,
    )


@kernel
def open_link(address: int) -> Any:
    """The LINK record at that address, as an array of one."""
    return carray(pointer(address), (1,), LINK)


@kernel
def receive(address: int) -> int:
    """Receives the next batch of one sender; never blocks.

    Args:
        address: of the LINK.

    Returns:
        its bytes, `NOTHING`, or another error's number below zero. Source and packet size stand in the link.
    """
    link = open_link(address)[0]
    header = carray(pointer(link.header), (1,), MSGHDR)[0]
    while True:
        header.namelen = _NAME_BYTES
        header.controllen = CONTROL_BYTES
        header.flags = 0
        size = _recvmsg(link.fd, link.header, _MSG_DONTWAIT)
        if size < 0:
            error = errno()
            if error == _EINTR or is_peer_trouble(error):
                continue  # an earlier send's error; nothing was received
            return -error
        if header.flags & _MSG_TRUNC:
            link.truncated += 1
            continue
        link.port = load16(link.name + 2)
        link.host = load32(link.name + 4)
        link.received_segment = max(size, 1)
        if header.controllen >= 20:  # struct cmsghdr of 16 bytes, then an int
            words = carray(pointer(link.control), (5,), np.int32)
            if words[2] == _IPPROTO_UDP and words[3] == UDP_GRO and words[4] > 0:
                link.received_segment = np.int64(words[4])
        return int(size)


@kernel
def set_segment(link: Any, segment: int) -> None:
    """Has the kernel cut what is sent into packets of that size; 0 for not at all."""
    if link.segment != segment:
        value = np.array([segment], np.int32)
        _setsockopt(link.fd, _IPPROTO_UDP, UDP_SEGMENT, value.ctypes.data, 4)
        link.segment = segment


@kernel
def send(address: int, data: int, size: int, segment: int) -> int:
    """Sends a batch to whom the socket is connected; never blocks.

    Args:
        address: of the LINK.
        data, size, segment: address and bytes of the batch, bytes of each packet but the last.

    Returns:
        bytes that were left when the kernel had no more room, 0 when all is sent, or an error's number below zero.
        Packets that are refused for a reason that may pass are lost, as on a wire, and counted.
    """
    link = open_link(address)[0]
    done = 0
    refused = False
    while done < size:
        most = 1
        if link.can_segment and size - done > segment:
            most = min(MAX_SEGMENTS, MAX_DATAGRAM // segment)
        length = min(size - done, max(most, 1) * segment)
        if length > segment:
            set_segment(link, segment)
        elif link.segment != 0 and link.segment < length:
            # Else the kernel would cut even a single packet into pieces of the size that was sent last.
            set_segment(link, 0)
        if _send(link.fd, data + done, length, _MSG_DONTWAIT) < 0:
            error = errno()
            if error == _EINTR:
                continue
            if error == _EAGAIN:
                return size - done
            if length > segment and error in (_EINVAL, _EMSGSIZE, _EIO, _EOPNOTSUPP):
                # This route cannot take a batch as one: a packet above the MTU, a device without checksum offload. Or
                # it is the error of an earlier packet, which is told once.
                if refused:
                    link.can_segment = 0
                    set_segment(link, 0)
                refused = True
                continue
            if not is_peer_trouble(error) and error != _ENOBUFS:
                return -error
            link.unsent += -(-length // segment)
        done += length
    return 0
