"""Redis URLs: what is accepted, what is refused, and what is shown."""

import pytest

from backends.counters.address import CountersAddress
from contracts.errors import ConfigurationError


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379",
        "redis://127.0.0.1:6379/3",
        "rediss://user:pass%40word@redis.internal:6380/0",
        "redis://[::1]:6379/0",
        "unix:///run/redis.sock",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_a_usable_url_is_accepted(url):
    assert CountersAddress(url).url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "begins with ''"),
        ("localhost:6379", "begins with 'localhost'"),
        ("http://localhost:6379", "begins with 'http'"),
        ("redis://", "names no host"),
        ("redis://localhost:70000", "port"),
        ("redis://localhost:0", "port 0"),
        ("redis://localhost:port", "port"),
        ("redis://localhost/first", "database 'first'"),
        ("redis://localhost/0?socket_timeout=60", "parameters"),
        ("unix://", "names no socket"),
        ("unix:///run/redis.sock?db=x", "database 'x'"),
    ],
)
def test_an_unusable_url_is_refused_with_what_is_wrong(url, says):
    with pytest.raises(ConfigurationError) as refused:
        CountersAddress(url)
    assert says in refused.value.message
    assert "redis://HOST:PORT/DATABASE" in refused.value.message or "parameters" in says


@pytest.mark.parametrize("url", ["redis://anna:secret@h:0", "redis://anna:secret@h/x", "redis://anna:secret@h:99999"])
def test_credentials_are_never_shown(url):
    with pytest.raises(ConfigurationError) as refused:
        CountersAddress(url)
    assert "secret" not in refused.value.message
    assert "anna" not in refused.value.message
    good = CountersAddress("redis://anna:secret@host:6379/1")
    assert good.shown == "redis://host:6379/1"
    assert "secret" not in repr(good)
