"""A snapshot that names what does not exist is refused before it serves anything."""

import pytest

from contracts.errors import ConfigurationError
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import EMPTY_SNAPSHOT, ModelSpec, PoolSpec, Snapshot, TargetSpec

POOL = PoolSpec("small", (TargetSpec("small-1", "small", "scripted"),))


def snapshot(models, pools):
    return Snapshot(1, {}, {model.id: model for model in models}, {pool.id: pool for pool in pools}, PriceBook())


def test_a_pool_without_targets_is_refused():
    with pytest.raises(ConfigurationError, match="pool 'empty' has no targets; add one or remove the pool"):
        PoolSpec("empty", ())


def test_a_model_that_names_an_unknown_pool_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError, match="model 'm' names pool 'big'; known pools: small"):
        snapshot([ModelSpec("m", "big")], [POOL])
    with pytest.raises(ConfigurationError, match="known pools: none"):
        snapshot([ModelSpec("m", "big")], [])


def test_several_models_may_share_a_pool():
    assert len(snapshot([ModelSpec("m", "small"), ModelSpec("n", "small")], [POOL]).models) == 2


def test_the_empty_snapshot_is_older_than_any_revision():
    assert EMPTY_SNAPSHOT.revision < 0
    assert not EMPTY_SNAPSHOT.keys
