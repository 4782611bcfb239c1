"""What guardrails cost, and how well their detectors judge: on one core, stage by stage as policies have them.

What runs is what a gateway's process would have it be: the compiled modules, where they are fresh (`make compile`).
"""

import sys
from collections.abc import Sequence

from backends.processes.compiled import use_compiled


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    found = use_compiled()
    if found.state != "compiled":
        print(f"measured interpreted, which the bounds are not meant for: {found.reason}", file=sys.stderr)
    # From here on a module is what was found of it.
    from bench.guardrail_rows import measure
    from bench.report import run_bench

    return run_bench("guardrails", measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
