"""Measure the time of appending and verifying, for the benchmark."""

import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from backends.audit.chain import AuditChain
from backends.audit.entries import KIND_REQUEST, RequestFacts
from backends.audit.keyed_hash import KeyedHash
from backends.audit.places import DirectoryPlace
from backends.audit.signing import AuditKeys, AuditSigner
from backends.audit.verification import verify_chain


def append_microseconds(directory: Path, entries: int = 20_000, said_bytes: int = 1024) -> tuple[float, float]:
    """Return p50 and p99 of one request's audit, in microseconds: both hashes of `said_bytes` bytes, and the append.

    Checkpoints are signed meanwhile, as in a gateway. `directory` must not contain a chain.
    """
    chain = AuditChain(directory, "bench", AuditSigner(Ed25519PrivateKey.generate()))
    hashes, took = KeyedHash(b"bench"), []
    prompts = [bytes([number % 256]) * said_bytes for number in range(256)]
    for number in range(entries):
        prompt = prompts[number % 256]
        began = time.perf_counter_ns()
        answer = hashes.begin("acme")
        answer.update(prompt)
        chain.append(KIND_REQUEST, _facts(number, time.time_ns(), hashes.digest("acme", prompt), answer.hexdigest()))
        took.append(time.perf_counter_ns() - began)
    chain.close()
    took.sort()
    return took[entries // 2] / 1e3, took[entries * 99 // 100] / 1e3


def verify_seconds(directory: Path, entries: int = 1_000_000) -> float:
    """Return how long the verification of a chain of `entries` requests takes, in seconds; the chain is written first,
    and must be valid.
    """
    signer = AuditSigner(Ed25519PrivateKey.generate())
    chain = AuditChain(directory, "bench", signer)
    digest = KeyedHash(b"bench").digest("acme", b"what was said")
    for number in range(entries):
        chain.append(KIND_REQUEST, _facts(number, 1_700_000_000_000_000_000 + number, digest, digest))
        if number % 100_000 == 0:
            chain.tend()
    chain.close()
    began = time.perf_counter()
    report = verify_chain(DirectoryPlace(directory), AuditKeys([signer.public]))
    seconds = time.perf_counter() - began
    if report.fault is not None or report.last < entries:
        raise AssertionError(f"a chain of {entries} entries does not verify: {report}")
    return seconds


def _facts(number: int, at_ns: int, prompt_hash: str, response_hash: str) -> RequestFacts:
    return RequestFacts(
        at_ns=at_ns,
        request=f"{number:032x}",
        tenant="acme",
        status=200,
        outcome="ok",
        team="search",
        key="key_0193f0c2a4c07d2d9a3e5d5b1c8f7a60",
        address="192.0.2.7",
        api="chat.completions",
        asked_for="chat",
        model="small",
        version="small-2026-10",
        provider="engine",
        prompt_hash=prompt_hash,
        response_hash=response_hash,
    )
