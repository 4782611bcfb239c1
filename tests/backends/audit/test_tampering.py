"""Whatever is done to a chain's files is found, and the first wrong entry named."""

import hashlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.audit.chain import AuditChain, ChainBounds
from backends.audit.entries import KIND_REQUEST
from backends.audit.places import DirectoryPlace, segment_names
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.verification import verify_chain
from backends.secrets.secret_files import SecretFiles
from tests.backends.audit.conftest import fill, request_facts
from tests.backends.audit.tampering import TAMPERINGS, copy_of

_TAMPERINGS = 1000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, signer: AuditSigner) -> Path:
    """Provide a chain of several segments, with checkpoints within and at its end."""
    directory = tmp_path_factory.mktemp("audit") / "chain"
    chain = AuditChain(directory, "test:1", signer, ChainBounds(checkpoint_entries=4))
    for _ in range(3):
        fill(chain, 6)
        chain.rotate()
    fill(chain, 3)
    chain.close()
    return directory


def test_a_thousand_random_tamperings_are_all_found(sound: Path, keys: AuditKeys, tmp_path: Path) -> None:
    assert verify_chain(DirectoryPlace(sound), keys).fault is None
    chance = random.Random(11)
    missed = []
    for number in range(_TAMPERINGS):
        tamper = TAMPERINGS[number % len(TAMPERINGS)]
        spoilt = copy_of(sound, tmp_path / "spoilt")
        tamper(spoilt, chance)
        if verify_chain(DirectoryPlace(spoilt), keys).fault is None:
            missed.append((number, tamper.__name__))
    assert missed == []


@given(at=st.integers(min_value=0), value=st.integers(1, 255), where=st.integers(min_value=0))
@settings(max_examples=60, deadline=None)
def test_no_byte_of_a_chain_can_be_another(sound: Path, keys: AuditKeys, at: int, value: int, where: int) -> None:
    names = segment_names(sound)
    name = names[where % len(names)]
    content = bytearray((sound / name).read_bytes())
    content[at % len(content)] ^= value

    class Spoilt(DirectoryPlace):
        def lines(self, segment: str) -> Iterator[bytes]:
            return io.BytesIO(bytes(content)) if segment == name else super().lines(segment)

    assert verify_chain(Spoilt(sound), keys).fault is not None


def test_the_first_wrong_entry_is_named(sound: Path, keys: AuditKeys, tmp_path: Path) -> None:
    spoilt = copy_of(sound, tmp_path / "spoilt")
    path = spoilt / segment_names(spoilt)[0]
    path.chmod(0o600)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"acme", b"evil")
    lines[5] = lines[5].replace(b"acme", b"evil")
    path.write_bytes(b"".join(lines))
    fault = verify_chain(DirectoryPlace(spoilt), keys).fault
    assert fault is not None and (fault.entry, fault.segment) == (4, path.name) and "changed" in fault.what


@pytest.mark.parametrize(
    "body", [b'"x', b'"control","entry":"no number"}', b'"opened"', b'"checkpoint"}', b'"request",not JSON']
)
def test_a_line_of_the_right_form_that_is_no_entry_is_named(
    sound: Path, keys: AuditKeys, tmp_path: Path, body: bytes
) -> None:
    spoilt = copy_of(sound, tmp_path / "spoilt")
    path = spoilt / segment_names(spoilt)[-1]
    path.chmod(0o600)
    last = path.read_bytes().splitlines()[-1]
    seq = json.loads(last[65:])["seq"] + 1
    text = b'{"prev":"%b","seq":%d,"kind":%b' % (last[:64], seq, body)
    with path.open("ab") as file:
        file.write(hashlib.sha256(text).hexdigest().encode() + b" " + text + b"\n")
    fault = verify_chain(DirectoryPlace(spoilt), keys).fault
    if body.startswith(b'"request"'):
        assert fault is None, "what no checkpoint covers may be anybody's; the next one does not follow it"
    else:
        assert fault is not None and fault.entry == seq


def test_a_chain_signed_by_another_key_is_refused(sound: Path, tmp_path: Path) -> None:
    stranger = AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    fault = verify_chain(DirectoryPlace(sound), AuditKeys([stranger.public])).fault
    assert fault is not None and "signature" in fault.what


def test_a_rebuilt_chain_cannot_be_signed(sound: Path, keys: AuditKeys, tmp_path: Path) -> None:
    """The one that writes all hashes again still lacks the key."""
    forger = AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    forged = AuditChain(tmp_path / "forged", "test:1", forger)
    forged.append(KIND_REQUEST, request_facts(7))
    forged.close()
    assert verify_chain(DirectoryPlace(forged.directory), keys).fault is not None
