"""The interface of the network by which gloo connects processes on several hosts.

gloo takes the address to which the name of the host maps. On many systems that is a loopback address, by which no other
host can be reached. So each process looks up by which of its own addresses it reaches the host of the store that
torchrun names (MASTER_ADDR) and, on that host itself, another one; the routing table knows, and nothing is sent. The
interface with this address is given to gloo in `GLOO_SOCKET_IFNAME`, unless that is set.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable: the name of the interface that gloo uses."""
SIOCGIFADDR = 0x8915
"""The request of man 7 netdevice that returns an interface's IPv4 address, on Linux."""
ANY_PORT = 9
"""A port for the look-up of a route; no packet is sent to it."""


def local_address(host: str) -> str:
    """Return the address from which this host reaches another one, by name or address; "" if that is unknown."""
    with suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return ""


def choose_interface(mine: str, every: Sequence[str]) -> str:
    """Let gloo use an interface that leads to the other hosts, if there are any; return its name, or "".

    Args:
        mine: the address of this process, as `local_address` returned it for the host of the store.
        every: those of all processes.
    """
    if len(set(every)) == 1 or INTERFACE in os.environ:
        return os.environ.get(INTERFACE, "")
    outside = [address for address in every if not is_loopback(address)]
    if is_loopback(mine) and outside:  # on the host of the store, whose name may map to the loopback address
        mine = local_address(outside[0])
    name = interface_of(mine)
    if name and not is_loopback(mine):
        os.environ[INTERFACE] = name
    return os.environ.get(INTERFACE, "")


def is_loopback(address: str) -> bool:
    """Return whether an address leads to this host only; an unknown one may."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True


def interface_of(address: str) -> str:
    """Return the name of the interface that has an address; "" if that is unknown, as on other systems than Linux."""
    return next((name for name, other in _addresses() if other == address.partition("%")[0]), "")


def _addresses() -> Iterator[tuple[str, str]]:
    """Yield the names and addresses of all interfaces of this host, as far as Linux lists them."""
    if find_spec("fcntl") is None or not Path("/proc/net").is_dir():
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield name, socket.inet_ntoa(found[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            yield name, str(ipaddress.IPv6Address(int(digits, 16)))
