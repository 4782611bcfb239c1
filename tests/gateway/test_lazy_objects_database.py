"""The database of kept things: opened once, at first use, by whichever thread comes first."""

import asyncio

import pytest

from contracts.errors import ConfigurationError
from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase


async def test_everybody_gets_the_same_database_and_it_is_opened_at_first_use(tmp_path):
    kept = LazyObjectsDatabase(f"sqlite:///{tmp_path}/objects.db")
    states = [(kept.is_open, kept.holds_anything)]
    opened = await asyncio.gather(*(asyncio.to_thread(kept.database) for _ in range(8)))
    states.append((kept.is_open, kept.holds_anything))
    await kept.close()
    states.append((kept.is_open, kept.holds_anything))
    assert len({id(one) for one in opened}) == 1
    assert states == [(False, False), (True, True), (False, False)], "nothing was ever written to the file"


async def test_what_was_kept_before_is_looked_after_from_the_start(tmp_path):
    before = LazyObjectsDatabase(f"sqlite:///{tmp_path}/objects.db")
    await before.database().run(lambda connection: None)
    await before.close()
    assert LazyObjectsDatabase(f"sqlite:///{tmp_path}/objects.db").holds_anything
    assert LazyObjectsDatabase("postgresql://127.0.0.1/objects").holds_anything, (
        "a server is not asked whether it holds any"
    )


def test_an_address_that_is_none_is_said_at_first_use():
    with pytest.raises(ConfigurationError):
        LazyObjectsDatabase("objects.db").database()


async def test_closing_what_was_never_opened_does_nothing():
    await LazyObjectsDatabase("sqlite:///nowhere/objects.db").close()
