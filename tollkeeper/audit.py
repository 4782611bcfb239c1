"""`tollkeeper audit`: verify the audit log, export it, delete old segments, ship it, and print its public key."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from backends.audit.exporting import export_chain, export_rows
from backends.audit.options import AuditOptions, audit_root
from backends.audit.places import DirectoryPlace, chain_directories
from backends.audit.retention import cut_before
from backends.audit.shipping import ship_finished
from backends.audit.signing import AuditSigner, own_keys, read_public_keys
from backends.audit.sink import folder_of
from backends.audit.verification import verify_chain
from backends.control.audit_chain import read_rows
from backends.control.audit_checks import AuditFindings, check_audit
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from tollkeeper.audit_acceptance import Restorer, accept_restore
from tollkeeper.book_author import system_user
from tollkeeper.open_installation import open_control
from tollkeeper.options import DEFAULT_DATA, AsJson, Data
from tollkeeper.printing import one_line_errors, print_json

app = typer.Typer(
    help="The audit log: verify it, export it, remove old segments, copy it to a sink.", no_args_is_help=True
)

_EXPORTED: Final = "jsonl"
SinkAddress = Annotated[
    str,
    typer.Option(
        "--sink", envvar="TOLLKEEPER_AUDIT_SINK", help="Where copies are stored: s3://BUCKET/PREFIX or a directory."
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar="TOLLKEEPER_AUDIT_S3_ENDPOINT",
        help="Endpoint URL of an S3-compatible store (default: Amazon's).",
    ),
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--public-key", help="PEM file with public keys to trust; repeat for more (default: the installation's own)."
    ),
]
SharedSink = Annotated[
    bool,
    typer.Option(
        "--shared-sink", help="The sink also has other machines' chains: do not report chains missing on this machine."
    ),
]
Day = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="Date or time in UTC.")]


@app.command("verify")
def verify(
    data: Data = DEFAULT_DATA,
    sink: SinkAddress = "",
    endpoint: Endpoint = "",
    shared_sink: SharedSink = False,
    public_key: PublicKeys = None,
    with_database: Annotated[
        bool, typer.Option("--database/--no-database", help="Also verify the control database's audit table.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Verify every entry. Status 1: an entry was changed, deleted or moved; the first such entry is printed."""
    with _errors(), ExitStack() as opened:
        keys = read_public_keys(public_key) if public_key else own_keys(SecretFiles(data / "secrets"))
        database = opened.enter_context(_open_database(data)) if with_database else None
        place = AuditOptions(sink, s3_endpoint=endpoint).open_sink()
        findings = check_audit(data, keys, database, place, is_shared=shared_sink)
    if as_json:
        print_json({"is_sound": findings.is_sound, "places": findings.places})
    else:
        _tell(findings)
    if not findings.is_sound:
        raise typer.Exit(1)


@app.command("export")
def export(
    data: Data = DEFAULT_DATA,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--from",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Start, date or time in UTC (default: the first entry).",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--to",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="End (exclusive), date or time in UTC, such as 2026-12-01.",
        ),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="Format: jsonl.")] = _EXPORTED,
    with_database: Annotated[
        bool, typer.Option("--database/--no-database", help="Also export the control database's audit table.")
    ] = True,
) -> None:
    """Print the entries of a period with their hashes, one JSON object a line."""
    with _errors():
        if form != _EXPORTED:
            raise ConfigurationError(f"the audit log is exported as {_EXPORTED}, not as {form!r}")
        bounds = (_ns(since, 0), _ns(until, 2**63 - 1))
        for directory in chain_directories(audit_root(data)):
            _print(export_chain(DirectoryPlace(directory), *bounds))
        if with_database:
            with _open_database(data) as database, database.session() as session:
                _print(export_rows(read_rows(session), *bounds))


@app.command("cut")
def cut(
    before: Annotated[
        datetime,
        typer.Option(
            "--before",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            help="Remove segments that are older than this date or time in UTC, such as 2025-11-01.",
        ),
    ],
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Delete old segments (files of the log). A signed stub replaces them, so that the rest still verifies."""
    with _errors():
        files, removed = SecretFiles(data / "secrets"), {}
        own_keys(files)  # raises if there is no key: a stub signed with a new key would not verify
        signer = AuditSigner.of(files)
        for directory in chain_directories(audit_root(data)):
            removed[directory.name] = cut_before(directory, _ns(before, 0), signer, time.time_ns())
    if as_json:
        print_json(removed)
    else:
        typer.echo(
            "; ".join(f"{name}: {len(segments)} segments cut" for name, segments in removed.items()) or "no chains"
        )


@app.command("ship")
def ship(
    sink: SinkAddress,
    data: Data = DEFAULT_DATA,
    endpoint: Endpoint = "",
    sink_days: Annotated[
        int,
        typer.Option(
            envvar="TOLLKEEPER_AUDIT_SINK_DAYS", help="Days for which the bucket locks each copy (S3 Object Lock)."
        ),
    ] = 400,
    as_json: AsJson = False,
) -> None:
    """Copy finished segments (files of the log) to the sink now. Gateways and control plane also do this themselves."""
    with _errors():
        place, sent = AuditOptions(sink, sink_days, endpoint).open_sink(), {}
        if place is None:
            raise ConfigurationError("name the sink with --sink or TOLLKEEPER_AUDIT_SINK")
        keys = own_keys(SecretFiles(data / "secrets"))
        for directory in chain_directories(audit_root(data)):
            report = verify_chain(DirectoryPlace(directory), keys)
            if report.fault is not None:
                raise ConfigurationError(f"{directory.name} does not verify and is not sent: {report.fault.what}")
            sent[directory.name] = ship_finished(directory, folder_of(report.chain), place)
    if as_json:
        print_json(sent)
    else:
        typer.echo(
            "; ".join(f"{name}: {len(segments)} segments sent" for name, segments in sent.items()) or "no chains"
        )


@app.command("accept-restore")
def accept(
    reason: Annotated[str, typer.Option("--reason", help="Which backup was restored and why; stays in the log.")],
    data: Data = DEFAULT_DATA,
    sink: SinkAddress = "",
    endpoint: Endpoint = "",
    shared_sink: SharedSink = False,
    as_json: AsJson = False,
) -> None:
    """Write a signed entry that a backup was restored. Entries missing from the backup are then no longer reported.

    Stop the control plane first. Changed entries and gaps are never accepted.
    """
    with _errors(), _open_database(data) as database:
        files = SecretFiles(data / "secrets")
        own_keys(files)  # raises if there is no key: an acceptance signed with a new key would prove nothing
        place = AuditOptions(sink, s3_endpoint=endpoint).open_sink()
        restorer = Restorer(system_user(), reason)
        made = accept_restore(data, AuditSigner.of(files), database, restorer, place, is_shared=shared_sink)
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        chains = "".join(f"; {end.chain} ends with entry {end.last}" for end in made.chains)
        typer.echo(f"accepted: {made.voided} entries of the control database behind {made.entry}{chains}")


@app.command("key")
def key(data: Data = DEFAULT_DATA) -> None:
    """Print the public key as PEM, for `--public-key` elsewhere. Creates it if there is none."""
    with _errors():
        files = SecretFiles(data / "secrets")
        if chain_directories(audit_root(data)):
            own_keys(files)  # raises if there is no key: a new key would not match the chains
        typer.echo(AuditSigner.of(files).public.pem, nl=False)


def _tell(findings: AuditFindings) -> None:
    for place in findings.places:
        fault = place["fault"]
        state = "verified" if fault is None else "NOT VERIFIED"
        signed = f", signed up to {place['signed_upto']}" if "signed_upto" in place else ""
        typer.echo(f"{place['place']}: {place['entries']} entries{signed}: {state}")
        for note in place.get("notes", ()):
            typer.echo(f"  note: {note}")
        if fault is not None:
            where = f"entry {fault['entry']}" if fault["entry"] is not None else "as a whole"
            segment = f" in {fault['segment']}" if fault["segment"] else ""
            typer.echo(f"  {where}{segment}: {fault['what']}", err=True)
    if not findings.places:
        typer.echo("nothing was audited here yet")


@contextmanager
def _errors() -> Iterator[None]:
    """Print errors as one line, as every command does, also for files that cannot be read or written."""
    with one_line_errors():
        try:
            yield
        except OSError as error:
            named = error.filename or "the audit log"
            raise ConfigurationError(f"{named} cannot be read or written ({error.strerror})") from error


@contextmanager
def _open_database(data: Path) -> Iterator[ControlDatabase]:
    """Open the control database without creating it: a missing one must be reported."""
    with open_control(data, os.environ) as database:
        path = database.url.database if database.url.get_backend_name() == "sqlite" else None
        if path and not Path(path).exists():
            raise ConfigurationError(f"{path} is not there; an installation without a control plane has --no-database")
        yield database


def _print(lines: Iterator[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _ns(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000_000
