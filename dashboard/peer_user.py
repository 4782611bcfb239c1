"""Check which user owns the other end of a local connection: all local users can connect to a loopback port."""

import os
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # Linux, proc_net_tcp.txt
# Columns: local address, remote address, state, owner's user id.
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7
_ESTABLISHED: Final = "01"  # Linux, tcp_states.h; rows of closed connections belong to root

End = tuple[str, int | None]  # address and port, as in ASGI


def is_another_user(client: End | None, server: End | None) -> bool:
    """Return whether the program that connected from `client` to `server` belongs to another user of this machine.

    Also true if no table has the connection: its other end was closed. False if it cannot be determined: on a system
    without such tables, or if the server's address is not a loopback address.
    """
    if client is None or server is None or not _is_loopback(server[0]):
        return False
    # Twice: a table that changes while it is read may omit a row.
    owners = _owners(client, server) or _owners(client, server)
    return owners is not None and set(owners) != {os.getuid()}


def _owners(client: End, server: End) -> list[int] | None:
    """Return the user ids that own the client's end of a connection; `None` if no table can be read."""
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
    """Return an address as the tables have it: hexadecimal, little-endian by four bytes; IPv4 also in its IPv6 form."""
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
