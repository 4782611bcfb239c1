"""A network to the store that loses packets: a client gives up in time, and what it sends again is stored once."""

from dataclasses import replace
from typing import Any

import pyarrow
import pytest

from backends.store.client import StoreClient
from contracts.errors import StoreUnavailable
from tests.lossy_network import LossyNetwork
from tests.steady_time import poll_within


def test_an_insert_whose_answer_is_lost_is_stored_once_when_it_is_sent_again(empty_store: Any) -> None:
    rows, own = pyarrow.table({"tenant": ["acme"] * 3}), empty_store.client()
    with LossyNetwork(empty_store.http_port) as network:
        address = replace(empty_store.address(), url=f"http://127.0.0.1:{network.port}")
        client = StoreClient(address, answer_seconds=1)
        assert client.ping()
        network.cut_answers()
        answered = network.answered_bytes
        with pytest.raises(StoreUnavailable, match="does not answer"):
            client.insert_arrow("requests", rows, deduplication_token="lost answer")
        assert poll_within(lambda: network.answered_bytes > answered, 30)
        count = "SELECT count() AS n, (SELECT sum(requests) FROM requests_day) AS summed FROM requests"
        assert own.query(count) == [{"n": 3, "summed": 3}], "the store has it, the client does not know"
        network.mend()
        client.insert_arrow("requests", rows, deduplication_token="lost answer")
        assert own.query(count) == [{"n": 3, "summed": 3}]
        client.close()
    own.close()


def test_a_store_behind_a_cut_network_is_away_and_comes_back(empty_store: Any) -> None:
    with LossyNetwork(empty_store.http_port) as network:
        address = replace(empty_store.address(), url=f"http://127.0.0.1:{network.port}")
        client = StoreClient(address, answer_seconds=1)
        assert client.query("SELECT 1 AS one") == [{"one": 1}]
        network.cut()
        with pytest.raises(StoreUnavailable):
            client.query("SELECT 1")
        network.mend()
        assert client.query("SELECT 1 AS one") == [{"one": 1}]
        client.close()
