"""Identify the process at the other end of a local connection: a loopback port is open to all local users."""

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # Linux, proc_net_tcp.txt
# Columns: the address of this end of the connection and of the other, its state, and who owns it.
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7
_ESTABLISHED: Final = "01"  # Linux, tcp_states.h; rows of connections that are over belong to root, whosever they were

End = tuple[str, int | None]  # address and port, as ASGI has it


def is_another_user(client: End | None, server: End | None) -> bool:
    """Return whether the program that connected from `client` to `server` belongs to another user of this machine.

    So it does where the connection is in no table: its other end was closed before an answer. Not where that cannot be
    told: on a system without such tables, or where the server's end is not a loopback address.
    """
    if client is None or server is None or not _is_loopback(server[0]):
        return False
    # Twice: a table that changes while it is read may leave out a row.
    owners = _owners(client, server) or _owners(client, server)
    return owners is not None and set(owners) != {os.getuid()}


def _owners(client: End, server: End) -> list[int] | None:
    """List who owns the client's end of an open connection; `None` if no table can be read."""
    near, far = _written(client), _written(server)
    owners, is_told = [], False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        is_told = True
        for line in lines:
            columns = line.split()
            if columns[_LOCAL] in near and columns[_REMOTE] in far and columns[_STATE] == _ESTABLISHED:
                owners.append(int(columns[_UID]))
    return owners if is_told else None


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _written(end: End) -> set[str]:
    """Write an address as the tables do: hexadecimal, each four bytes in the machine's (little) order; an IPv4 address
    also as IPv6 has it.
    """
    try:
        address = ip_address(end[0])
    except ValueError:
        return set()
    plain = address.packed
    forms = [plain] if len(plain) == 16 else [plain, bytes(10) + b"\xff\xff" + plain]
    return {
        "".join(form[at : at + 4][::-1].hex().upper() for at in range(0, len(form), 4)) + f":{end[1] or 0:04X}"
        for form in forms
    }
