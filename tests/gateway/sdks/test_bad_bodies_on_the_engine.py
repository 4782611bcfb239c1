"""Bodies that nobody should send, on the way to the torch engine: refused by name or answered, never a fault."""

from pathlib import Path

from bench.fuzzing.body_checks import bad_bodies, check_bad_body
from bench.fuzzing.properties import Property, attempt
from bench.fuzzing.rig import FuzzRig
from tests.gateway.sdks.conftest import TOOLS


def test_no_body_is_a_fault_of_the_gateways_or_the_engines(host_url: str, tmp_path: Path) -> None:
    with FuzzRig(tmp_path, engine=(host_url, TOOLS)) as rig:
        rig.models = [TOOLS]
        attempt(rig, Property("bad_bodies", bad_bodies, check_bad_body), 40)
