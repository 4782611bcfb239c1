"""Runs a command that cannot outlive its parent: `python leash.py PARENT_PID COMMAND...`.

The supervisor may be killed with SIGKILL, which it cannot answer; Linux then ends its children in its stead.
Run as a file, not as a module, under `-I -S`: it starts in 20 ms because it imports only the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> int:
    """Become the command. 127 if it cannot be started, 1 where the parent is gone already."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        # Survives exec. Elsewhere there is no such request, and a killed supervisor leaves its children.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1  # it died before the request was made, so nothing would ever end us
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
