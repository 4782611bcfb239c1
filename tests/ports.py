"""Ports for servers that tests start: no two test processes are given the same one."""

import functools
import socket

# Below what Linux gives to whoever asks for any port (32768 on): no client's socket takes one in between.
FIRST_PORT = 10_000
END_PORT = 20_000
BLOCK_PORTS = 100


class PortBlock:
    """A hundred ports in a row, ours for as long as this process keeps the first of them bound."""

    def __init__(self) -> None:
        for first in range(FIRST_PORT, END_PORT, BLOCK_PORTS):
            holder = socket.socket()
            try:
                holder.bind(("127.0.0.1", first))
            except OSError:
                holder.close()
                continue
            self._holder = holder
            self._ports = range(first + 1, first + BLOCK_PORTS)
            self._next = self._ports.start
            return
        raise AssertionError(f"every block of ports from {FIRST_PORT} to {END_PORT} is held by another process")

    def take(self, count: int) -> list[int]:
        """Return free ports in a row. One comes round again only after all the others, if nobody listens on it then."""
        for _ in self._ports:
            if self._next + count > self._ports.stop:
                self._next = self._ports.start
            ports = list(range(self._next, self._next + count))
            if all(map(_is_free, ports)):
                self._next += count
                return ports
            self._next += 1
        raise AssertionError(f"no {count} free ports in a row among {self._ports}")


def find_free_ports(count: int) -> list[int]:
    """Return ports in a row that nobody listens on and that no other test process is given."""
    return _block_of_this_process().take(count)


def find_free_port() -> int:
    return find_free_ports(1)[0]


@functools.cache
def _block_of_this_process() -> PortBlock:
    return PortBlock()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
