"""Runs a command that cannot outlive its parent: `python die_with_parent.py PARENT_PID COMMAND...`.

If the supervisor is killed with SIGKILL, it cannot stop its children; Linux then does (PR_SET_PDEATHSIG). It is run as
a file with `-I -S`, not as a module: it starts in 20 ms because it imports only the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> int:
    """Replace this process by the command. Returns 127 if it cannot be started, 1 if the parent has already ended."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        # Survives exec. Other systems have no such call: there, a killed supervisor leaves its children running.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1  # the parent died before the call above, so no signal would ever come
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
