"""Two embedded stores that are the shards of one cluster; what a Keeper would do, the client does.

The embedded engine has no Keeper, so there are no replicas, and no node tells another what to do. A statement for all
nodes (`ON CLUSTER`) is given to each of them instead, and waiting for replicas is written down and not done.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from backends.store.client import StoreClient
from migrations.store import migrate_store, read_migrations
from tests.conftest import PATIENCE_SECONDS, StoreProcess

NAME = "main"
_ON_ALL = f" ON CLUSTER '{NAME}'"


def without_keeper(statement: str) -> str:
    """Return a statement of one node, with tables that have no replicas."""
    plain = statement.replace(_ON_ALL, "").replace("= Replicated", "= ").replace(" SYNC", "")
    plain = re.sub(r"(MergeTree)\('/clickhouse/[^)]*\)", r"\1", plain)
    plain = re.sub(r", replicated_deduplication_window_seconds = \d+", "", plain)
    return plain.replace("SETTINGS replicated_", "SETTINGS non_replicated_")


class ShardClient(StoreClient):
    """A client of one shard, that plays the Keeper for the whole cluster."""

    nodes: list[StoreProcess] = []
    waited_for: list[str] = []

    def command(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> object:
        if sql.startswith(f"SYSTEM SYNC REPLICA{_ON_ALL} "):
            self.waited_for.append(sql.rpartition(" ")[2])
            return None
        if _ON_ALL not in sql:
            return super().command(sql, parameters, settings=settings)
        for node in self.nodes:
            with_database = StoreClient(replace(node.address("supervisor"), database=self.address.database))
            try:
                with_database.command(without_keeper(sql), parameters, settings=settings)
            finally:
                with_database.close()
        return None


class StoreCluster:
    """Both shards, migrated as a cluster."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [StoreProcess(folder / name) for name in ("one", "two")]
        self._members = "".join(
            "<shard><internal_replication>true</internal_replication><replica><host>127.0.0.1</host>"
            f"<port>{node.native_port}</port><user>supervisor</user>"
            f"<password>{node.address('supervisor').password}</password></replica></shard>"
            for node in self.nodes
        )

    def start(self) -> None:
        for node in self.nodes:
            beside = node.data / "store" / "config" / "config.d"
            beside.mkdir(parents=True)
            (beside / "cluster.xml").write_text(
                f"<clickhouse><remote_servers><{NAME}>{self._members}</{NAME}></remote_servers></clickhouse>"
            )
            node.start()
        ShardClient.nodes = self.nodes
        with patch("migrations.store.StoreClient", ShardClient):
            migrate_store(
                self.nodes[0].address("supervisor"),
                read_migrations(),
                wait_seconds=PATIENCE_SECONDS,
                say=lambda line: None,
                cluster=NAME,
            )

    def client(self, number: int = 0) -> ShardClient:
        ShardClient.nodes = self.nodes
        return ShardClient(self.nodes[number].address("supervisor"))

    def own_rows(self, sql: str) -> list[list[Any]]:
        """Return what each node answers of its own rows."""
        found = []
        for node in self.nodes:
            client = node.client("supervisor")
            found.append([tuple(row.values()) for row in client.query(sql)])
            client.close()
        return found

    def empty(self) -> None:
        ShardClient.waited_for.clear()
        for node in self.nodes:
            client = node.client("supervisor")
            for row in client.query(
                "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' "
                "AND total_rows > 0 AND name != 'schema_migrations'"
            ):
                client.command(f"TRUNCATE TABLE `{row['name']}`")
            client.close()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster = StoreCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(started_cluster: StoreCluster) -> StoreCluster:
    """Provide both shards without rows."""
    started_cluster.empty()
    return started_cluster
