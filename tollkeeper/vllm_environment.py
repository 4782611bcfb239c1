"""vLLM's virtual environment: ten gigabytes, made where an engine host of that kind is wanted.

`python -m tollkeeper.vllm_environment` makes it (make vllm).
"""

import sys
from pathlib import Path
from typing import Final

from tollkeeper.own_environment import ROOT, Contents, OwnEnvironment, main

_VLLM: Final = Contents("vLLM", ".venv-vllm", "vllm.txt", "several minutes and ten gigabytes")


class VllmEnvironment(OwnEnvironment):
    """The folder `.venv-vllm` beside the code, or another Python that the operator names."""

    def __init__(self, root: Path = ROOT, python: str = "") -> None:
        super().__init__(_VLLM, root, python)


if __name__ == "__main__":
    sys.exit(main(VllmEnvironment()))
