"""Whose program is at the other end of a connection on this machine: a loopback port is open to all of its users."""

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # Linux, proc_net_tcp.txt
_LOCAL, _UID = 1, 7  # columns: the address of this end of the connection, and who owns it
_ROOT: Final = 0


def is_another_user(client: tuple[str, int] | None) -> bool:
    """Say whether the program that connected from this address and port belongs to another user of this machine.

    Not where that cannot be told, as on a system that has no such table; root may do anything anyway.
    """
    if client is None:
        return False
    owners = set(_owners(client))
    return bool(owners) and owners.isdisjoint({os.getuid(), _ROOT})


def _owners(client: tuple[str, int]) -> Iterator[int]:
    wanted = _written(client)
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[_LOCAL] in wanted:
                yield int(columns[_UID])


def _written(client: tuple[str, int]) -> set[str]:
    """Write an address as the tables do: hexadecimal, each four bytes in the machine's (little) order; an IPv4 address
    also as IPv6 has it.
    """
    try:
        address = ip_address(client[0])
    except ValueError:
        return set()
    plain = address.packed
    forms = [plain] if len(plain) == 16 else [plain, bytes(10) + b"\xff\xff" + plain]
    return {
        "".join(form[at : at + 4][::-1].hex().upper() for at in range(0, len(form), 4)) + f":{client[1]:04X}"
        for form in forms
    }
