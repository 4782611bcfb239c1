"""Sinks: what is kept there stays as it was, is verified, and shows what was done to the chain here."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.audit.chain import AuditChain
from backends.audit.places import DirectoryPlace, segment_names
from backends.audit.retention import cut_before
from backends.audit.s3_sink import S3Sink
from backends.audit.shipping import ship_finished, verify_sink
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.sink import DirectorySink, Sink, folder_of, open_sink
from backends.audit.verification import verify_chain
from contracts.errors import ConfigurationError
from tests.backends.audit.conftest import Opened, StillClock, fill

BUCKET = "audit"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import boto3  # type: ignore[import-untyped]  # it has no types
    from moto import mock_aws

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-test")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
        client.create_bucket(Bucket="open")
        yield client


@pytest.fixture(params=["directory", "s3"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    if request.param == "directory":
        return DirectorySink(tmp_path / "sink")
    return S3Sink(f"s3://{BUCKET}/some/prefix", 30, client=request.getfixturevalue("s3"))


@pytest.fixture
def chain(opened: Opened) -> Iterator[AuditChain]:
    chain = opened()
    for _ in range(3):
        fill(chain, 4)
        chain.rotate()
    fill(chain, 2)
    chain.checkpoint()
    yield chain
    chain.close()


def verified(sink: Sink, chain: AuditChain, keys: AuditKeys, first: int = 1) -> Any:
    return verify_sink(sink, folder_of(chain.chain), keys, DirectoryPlace(chain.directory), first)


def test_finished_segments_are_sent_once_and_verify(sink: Sink, chain: AuditChain, keys: AuditKeys) -> None:
    folder = folder_of(chain.chain)
    names = segment_names(chain.directory)
    assert ship_finished(chain.directory, folder, sink) == names[:-1] == sink.names(folder)
    assert ship_finished(chain.directory, folder, sink) == [] and sink.folders() == [folder]
    assert sink.get(folder, names[0]) == (chain.directory / names[0]).read_bytes()
    report = verified(sink, chain, keys)
    assert report.fault is None and report.entries == 16 and report.chain == chain.chain


def test_what_is_there_cannot_be_put_again_as_something_else(sink: Sink, chain: AuditChain) -> None:
    folder, name = folder_of(chain.chain), segment_names(chain.directory)[0]
    ship_finished(chain.directory, folder, sink)
    sink.put(folder, name, b"something else")
    assert sink.get(folder, name) == (chain.directory / name).read_bytes()


def test_a_chain_made_anew_here_is_found_by_the_sink(
    sink: Sink, chain: AuditChain, keys: AuditKeys, signer: AuditSigner, clock: StillClock
) -> None:
    """The one that has the machine has its key too, and can sign a history of their own: the sink has the other one."""
    folder = folder_of(chain.chain)
    ship_finished(chain.directory, folder, sink)
    name = segment_names(chain.directory)[1]
    path = chain.directory / name
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"192.0.2.7", b"192.0.2.8", 1))
    fault = verified(sink, chain, keys).fault
    assert fault is not None and fault.segment == name and "another one than in the sink" in fault.what


def test_an_end_that_was_cut_together_with_its_head_is_found_by_the_sink(
    sink: Sink, chain: AuditChain, keys: AuditKeys, tmp_path: Path
) -> None:
    folder = folder_of(chain.chain)
    ship_finished(chain.directory, folder, sink)
    cut = tmp_path / "cut"
    shutil.copytree(chain.directory, cut)
    names = segment_names(cut)
    for name in names[1:]:
        (cut / name).unlink()
    (cut / "head").write_bytes((cut / names[0]).read_bytes().splitlines(keepends=True)[-1])
    assert verify_chain(DirectoryPlace(cut), keys).fault is None, "here alone it looks like the end"
    fault = verify_sink(sink, folder, keys, DirectoryPlace(cut), 1).fault
    assert fault is not None and fault.segment == names[1] and "gone here" in fault.what


def test_what_was_cut_here_as_signed_is_not_missed(
    sink: Sink, chain: AuditChain, keys: AuditKeys, signer: AuditSigner, clock: StillClock
) -> None:
    ship_finished(chain.directory, folder_of(chain.chain), sink)
    cut_before(chain.directory, clock.now_ns + 1, signer, clock.now_ns)
    report = verify_chain(DirectoryPlace(chain.directory), keys)
    assert report.fault is None and report.first == 17
    assert verified(sink, chain, keys, report.first).fault is None
    assert verified(sink, chain, keys, 1).fault is not None


def test_a_torn_end_is_kept_in_the_sink_as_it_is(
    sink: Sink, opened: Opened, keys: AuditKeys, signer: AuditSigner
) -> None:
    chain = opened()
    fill(chain, 2)
    os.close(chain._lock)  # as kill -9 does
    with (chain.directory / chain.segment).open("ab") as file:
        file.write(b"torn")
    again = opened()
    ship_finished(again.directory, folder_of(again.chain), sink)
    assert verified(sink, again, keys).fault is None
    again.rotate()
    ship_finished(again.directory, folder_of(again.chain), sink)
    assert verified(sink, again, keys).fault is None
    again.close()


def test_objects_are_locked_and_a_deleted_or_overwritten_one_is_still_read(chain: AuditChain, s3: Any) -> None:
    sink, folder = S3Sink(f"s3://{BUCKET}", 30, client=s3), folder_of(chain.chain)
    name = ship_finished(chain.directory, folder, sink)[0]
    kept = s3.head_object(Bucket=BUCKET, Key=f"{folder}/{name}")
    assert kept["ObjectLockMode"] == "COMPLIANCE" and kept["ObjectLockRetainUntilDate"] is not None
    before = sink.get(folder, name)
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/{name}", Body=b"forged")
    s3.delete_object(Bucket=BUCKET, Key=f"{folder}/{name}")
    assert sink.get(folder, name) == before and name in sink.names(folder)
    with pytest.raises(s3.exceptions.ClientError, match="AccessDenied"):
        s3.delete_object(Bucket=BUCKET, Key=f"{folder}/{name}", VersionId=kept["VersionId"])


@pytest.mark.parametrize("bucket", ["open", "absent"])
def test_a_bucket_without_object_lock_is_refused(s3: Any, bucket: str) -> None:
    with pytest.raises(ConfigurationError, match="no Object Lock"):
        S3Sink(f"s3://{bucket}", 30, client=s3)


def test_an_address_that_is_no_sink_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"s3://BUCKET/PREFIX or a directory"):
        open_sink("ftp://host/x", 1)
