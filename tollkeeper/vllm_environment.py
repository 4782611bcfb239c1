"""vLLM's virtual environment, ten gigabytes. `python -m tollkeeper.vllm_environment` installs it (make vllm)."""

import sys
from pathlib import Path
from typing import Final

from tollkeeper.own_environment import Contents, OwnEnvironment, main
from tollkeeper.packaged_files import ROOT

_VLLM: Final = Contents("vLLM", ".venv-vllm", "vllm.txt", "several minutes and ten gigabytes", "make vllm")


class VllmEnvironment(OwnEnvironment):
    """The virtual environment `.venv-vllm` beside the code, or a Python that the operator names."""

    def __init__(self, root: Path = ROOT, python: str = "", *, installs: bool = False) -> None:
        super().__init__(_VLLM, root, python, installs=installs)


if __name__ == "__main__":
    sys.exit(main(VllmEnvironment(installs=True)))
