"""The embedded engine's `config.xml` and `users.xml`, rewritten at each start with mode 0600.

They contain passwords only as SHA-256. The engine reads both once, at the start, from its working directory.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from backends.network.network_addresses import listens_on_loopback
from backends.store.row_policies import POLICIES
from backends.store.settings import StoreSettings
from contracts.errors import ConfigurationError

# The engine itself logs in as `default` without a password, which cannot be changed. So `default` has a quota of failed
# logins that the launcher exhausts as soon as the engine listens; after that no one can log in as `default`. The
# interval is the longest that the engine accepts (until 2038).
_LAUNCH_QUOTA: Final = {"duration": str(2**31 - 1), "failed_sequential_authentications": "1"}
_LAUNCH_GRANTS: Final = ("GRANT SYSTEM LISTEN ON *.*", "GRANT CREATE TEMPORARY TABLE ON *.*")
_DISK_ROOM: Final = "GRANT SELECT(name, free_space) ON system.disks"
_LOOPBACK: Final = ("127.0.0.1", "::1")
# Names of this machine in a Host header: localhost and IP addresses, with or without a port.
_OWN_NAMES: Final = r"(?i)(localhost|\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])(:\d+)?"
_ANYWHERE: Final = ("::/0",)


@dataclass(frozen=True, slots=True)
class StorePasswords:
    """The passwords of users that may log in over the network."""

    supervisor: str
    writer: str
    reader: str


def write_engine_files(directory: Path, settings: StoreSettings, passwords: StorePasswords) -> None:
    """Write both files into an existing directory. Raises ConfigurationError if it cannot be written."""
    users = directory / "users.xml"
    try:
        _write(users, _users(settings, passwords))
        _write(directory / "config.xml", _config(settings, users))
    except OSError as error:
        raise ConfigurationError(
            f"the store cannot write to {directory} ({error.strerror}); "
            "choose a writable data directory with --data or TOLLKEEPER_DATA"
        ) from error


def _write(path: Path, root: ElementTree.Element) -> None:
    ElementTree.indent(root)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(ElementTree.tostring(root, encoding="unicode") + "\n")


def _config(settings: StoreSettings, users: Path) -> ElementTree.Element:
    root = ElementTree.Element("clickhouse")
    values = {
        "listen_host": settings.host,
        "http_port": settings.store_http_port,
        "tcp_port": settings.store_native_port,
        "users_config": users,
        "max_server_memory_usage": settings.store_memory_bytes,
        # Sized for a laptop: a server's defaults would reserve more than the limit above.
        "mark_cache_size": settings.store_memory_bytes // 16,
        "uncompressed_cache_size": 0,
        "umask": "077",  # otherwise the engine sets its own
        # Periodic work at rest: by default the engine checks its memory 20 times a second, its counters every second
        # and these files every two. Queries and their limits do not depend on it.
        "memory_worker_period_ms": 1_000,
        "asynchronous_metrics_update_period_s": 60,
        "asynchronous_heavy_metrics_update_period_s": 3_600,
        "config_reload_interval_ms": 600_000,
        "dns_cache_update_period": 3_600,
    }
    for name, value in values.items():
        ElementTree.SubElement(root, name).text = str(value)
    merge_tree = ElementTree.SubElement(root, "merge_tree")
    for name, text in {
        # Buffers that grow with a column's data. Otherwise every column of a new part takes 2 MiB: 450 MB for an insert
        # of 16 MB into `requests`.
        "min_columns_to_activate_adaptive_write_buffer": "1",
        # Merge column by column, which needs less memory and is as fast.
        "vertical_merge_algorithm_min_rows_to_activate": "1",
    }.items():
        ElementTree.SubElement(merge_tree, name).text = text
    handlers = ElementTree.SubElement(root, "http_handlers")  # the defaults include /play and /dashboard
    for url, methods, kind in (("/ping", "GET,HEAD", "ping"), ("/", "GET,HEAD,POST", "dynamic_query_handler")):
        rule = ElementTree.SubElement(handlers, "rule")
        ElementTree.SubElement(rule, "url").text = url
        ElementTree.SubElement(rule, "methods").text = methods
        headers = ElementTree.SubElement(rule, "headers")
        # Only requests of web pages have an Origin, and the engine would let any page read the answer.
        ElementTree.SubElement(headers, "Origin").text = "regex:^$"
        if listens_on_loopback(settings.host):  # against DNS rebinding
            ElementTree.SubElement(headers, "Host").text = f"regex:{_OWN_NAMES}"
        handler = ElementTree.SubElement(rule, "handler")
        ElementTree.SubElement(handler, "type").text = kind
        if kind == "dynamic_query_handler":
            ElementTree.SubElement(handler, "query_param_name").text = "query"
    query_log = ElementTree.SubElement(root, "query_log")
    for name, text in {
        "database": "system",
        "table": "query_log",
        "partition_by": "event_date",
        "ttl": f"event_date + INTERVAL {settings.store_query_log_days} DAY DELETE",
        "flush_interval_milliseconds": "60000",  # each flush creates a part, which must be merged
    }.items():
        ElementTree.SubElement(query_log, name).text = text
    return root


def _users(settings: StoreSettings, passwords: StorePasswords) -> ElementTree.Element:
    root = ElementTree.Element("clickhouse")
    users = ElementTree.SubElement(root, "users")
    database = f"`{settings.store_database}`"
    networks = _LOOPBACK if listens_on_loopback(settings.host) else _ANYWHERE
    _add_user(users, "default", None, _LOOPBACK, profile="default", quota="launch", grants=_LAUNCH_GRANTS)
    _add_user(users, "supervisor", passwords.supervisor, _LOOPBACK, profile="default", quota="default", grants=())
    _add_user(
        users,
        "writer",
        passwords.writer,
        networks,
        profile="default",
        quota="default",
        grants=(
            f"GRANT SHOW, SELECT, INSERT, ALTER, CREATE, DROP, TRUNCATE, OPTIMIZE, UNDROP TABLE, CHECK ON {database}.*",
            "GRANT TABLE ENGINE ON *",
            "GRANT SELECT(database, table, max_block_number) ON system.parts",  # to read the progress of its own tables
            _DISK_ROOM,
        ),
    )
    _add_user(
        users,
        "reader",
        passwords.reader,
        networks,
        profile="readonly",
        quota="default",
        grants=(f"GRANT SHOW, SELECT ON {database}.*", _DISK_ROOM),
    )
    for name, policies in POLICIES.items():
        grants = tuple(f"GRANT SELECT ON {database}.`{table}`" for table in policies)
        user = _add_user(users, name, passwords.reader, networks, profile="readonly", quota="default", grants=grants)
        of_database = ElementTree.SubElement(ElementTree.SubElement(user, "databases"), settings.store_database)
        for table, rows in policies.items():
            ElementTree.SubElement(ElementTree.SubElement(of_database, table), "filter").text = rows
    _add_profiles(ElementTree.SubElement(root, "profiles"))
    _add_quotas(ElementTree.SubElement(root, "quotas"))
    return root


def _add_profiles(profiles: ElementTree.Element) -> None:
    default = ElementTree.SubElement(profiles, "default")
    # Asynchronous inserts lose the deduplication token, and so exactly-once inserts.
    ElementTree.SubElement(default, "async_insert").text = "0"
    readonly = ElementTree.SubElement(profiles, "readonly")
    ElementTree.SubElement(readonly, "profile").text = "default"
    ElementTree.SubElement(readonly, "readonly").text = "2"  # reads, and may set formats and time limits
    # A dashboard query reads about ten thousand rows, which by the default bound use only one thread.
    ElementTree.SubElement(readonly, "merge_tree_min_rows_for_concurrent_read").text = "16384"
    ElementTree.SubElement(readonly, "merge_tree_min_bytes_for_concurrent_read").text = str(1 << 20)


def _add_quotas(quotas: ElementTree.Element) -> None:
    ElementTree.SubElement(quotas, "default")
    interval = ElementTree.SubElement(ElementTree.SubElement(quotas, "launch"), "interval")
    for name, text in _LAUNCH_QUOTA.items():
        ElementTree.SubElement(interval, name).text = text


def _add_user(
    users: ElementTree.Element,
    name: str,
    password: str | None,
    networks: Sequence[str],
    *,
    profile: str,
    quota: str,
    grants: Sequence[str],
) -> ElementTree.Element:
    user = ElementTree.SubElement(users, name)
    fields: Mapping[str, str] = {"profile": profile, "quota": quota}
    if password is None:
        ElementTree.SubElement(user, "password")
    else:
        ElementTree.SubElement(user, "password_sha256_hex").text = hashlib.sha256(password.encode()).hexdigest()
    addresses = ElementTree.SubElement(user, "networks")
    for network in networks:
        ElementTree.SubElement(addresses, "ip").text = network
    for field, text in fields.items():
        ElementTree.SubElement(user, field).text = text
    if grants:
        list_of_grants = ElementTree.SubElement(user, "grants")
        for grant in grants:
            ElementTree.SubElement(list_of_grants, "query").text = grant
    return user
