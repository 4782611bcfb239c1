"""Says what it was started with, and ends as it is asked to."""

import os
import sys
import time


def main(asked: list[str]) -> int:
    if asked == ["sleep"]:
        time.sleep(600)
    print(__name__, os.getppid(), os.getcwd(), os.environ.get("TOLD", ""), " ".join(asked), sep="\n")
    print(f"ends with {asked[0]}", file=sys.stderr)
    return int(asked[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
