"""Checks at start whether the installed vLLM has the parts that the host uses."""

import logging
from importlib import metadata
from typing import Final

from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

TESTED: Final = "0.25.1"


def check_vllm() -> str:
    """Return the installed version, with a warning if it is not the tested one.

    Raises ConfigurationError if vLLM lacks a part that serving needs.
    """
    version = metadata.version("vllm")
    missing = missing_parts()
    if missing:
        raise ConfigurationError(
            f"vLLM {version} lacks {', '.join(missing)}, which this host needs; install {TESTED} (make vllm)"
        )
    if version != TESTED:
        _log.warning("vLLM %s is not the version this host was tested with, %s", version, TESTED)
    return version


def missing_parts() -> list[str]:
    """Return the parts that serving needs and the installed vLLM lacks. Imports vLLM, which is slow."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestOutputCollector

    wanted = ("from_vllm_config", "add_request", "abort", "add_lora", "remove_lora", "sleep", "wake_up", "shutdown")
    missing = [f"AsyncLLM.{name}" for name in wanted if not callable(getattr(AsyncLLM, name, None))]
    if not callable(getattr(RequestOutputCollector, "put", None)):
        missing.append("RequestOutputCollector.put")
    return missing
