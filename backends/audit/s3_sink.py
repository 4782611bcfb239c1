"""A bucket with Object Lock: objects can be neither changed nor removed until their retention ends."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from contracts.errors import ConfigurationError, Unavailable

_MODE: Final = "COMPLIANCE"  # unlike GOVERNANCE, not even the account's root can shorten it


class S3Sink:
    """An S3-compatible bucket with Object Lock; uses the standard AWS credentials.

    A locked object can be hidden by a later version or a delete marker, so always its first version is read.
    """

    def __init__(self, address: str, keep_days: int, endpoint: str = "", client: Any = None) -> None:
        """`address` is s3://BUCKET/PREFIX. Raises ConfigurationError without boto3, or if the bucket has no Object
        Lock.
        """
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._keep = timedelta(days=keep_days)
        self._client = client or _client(endpoint)
        self._check_lock()

    def folders(self) -> list[str]:
        """Return the names of all folders of the sink, hidden ones included."""
        start = len(self._key("", ""))
        return sorted({key[start:].partition("/")[0] for key, _ in self._versions(self._key("", ""))})

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's files, hidden ones too."""
        start = len(self._key(folder, ""))
        return sorted({key[start:] for key, _ in self._versions(self._key(folder, ""))})

    def put(self, folder: str, name: str, content: bytes) -> None:
        """Store a file under a lock of `keep_days`. Raises Unavailable."""
        if self._first_version(folder, name) is not None:
            return
        try:
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._key(folder, name),
                Body=content,
                ContentType="application/jsonl",
                ChecksumAlgorithm="SHA256",  # S3 requires a checksum for locked objects
                ObjectLockMode=_MODE,
                ObjectLockRetainUntilDate=datetime.now(UTC) + self._keep,
            )
        except Exception as error:  # boto3 creates its exception classes at run time
            raise self._away(error) from error

    def get(self, folder: str, name: str) -> bytes:
        """Return the first version of a file. Raises Unavailable, also if there is none."""
        version = self._first_version(folder, name)
        try:
            found = self._client.get_object(
                Bucket=self._bucket, Key=self._key(folder, name), **({} if version is None else {"VersionId": version})
            )
            content: bytes = found["Body"].read()
        except Exception as error:  # as above
            raise self._away(error) from error
        return content

    def _key(self, folder: str, name: str) -> str:
        parts = [part for part in (self._prefix, folder) if part]
        return "/".join([*parts, name])

    def _first_version(self, folder: str, name: str) -> str | None:
        key = self._key(folder, name)
        found = [version for other, version in self._versions(key) if other == key]
        return found[-1] if found else None  # the latest are listed first

    def _versions(self, prefix: str) -> list[tuple[str, str]]:
        try:
            pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
            return [(each["Key"], each["VersionId"]) for page in pages for each in page.get("Versions", ())]
        except Exception as error:  # as above
            raise self._away(error) from error

    def _check_lock(self) -> None:
        try:
            found = self._client.get_object_lock_configuration(Bucket=self._bucket)
            state = found["ObjectLockConfiguration"].get("ObjectLockEnabled")
        except Exception as error:  # as above
            if _code(error) not in ("ObjectLockConfigurationNotFoundError", "NoSuchBucket"):
                raise self._away(error) from error
            state = None
        if state != "Enabled":
            raise ConfigurationError(
                f"bucket {self._bucket!r} of TOLLKEEPER_AUDIT_SINK is not there or has no Object Lock; make one with "
                "Object Lock enabled, which an existing bucket without versions cannot have"
            )

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(f"the bucket {self._bucket!r} refused or did not answer ({_code(error)})")


def _code(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code") or type(error).__name__)


def _client(endpoint: str) -> Any:
    try:
        import boto3  # type: ignore[import-untyped]  # it has no types
    except ModuleNotFoundError as error:
        raise ConfigurationError("a sink in a bucket needs boto3; install tollkeeper[audit]") from error
    return boto3.client("s3", endpoint_url=endpoint or None)
