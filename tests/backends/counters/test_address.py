"""Redis URLs: what is accepted, what is refused, and what is shown."""

from pathlib import Path

import pytest

from backends.counters.address import CountersAddress, RedisDependencies
from backends.network.tls import TlsFiles
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
        "redis://anna:secret@a:6379,b:6380,[::1]:7000",
        "redis+sentinel://a,b:26380/main",
        "rediss+sentinel://anna:secret@a:26379/main/2",
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
        ("redis://a:1,a:1", "a host twice"),
        ("redis://a:1,b:0", "port 0"),
        ("redis://a:1,", "names no host"),
        ("redis://a:1,b:2/1", "only database 0"),
        ("redis+sentinel://a:1", "names no primary"),
        ("redis+sentinel://a:1/main/x", "database 'x'"),
    ],
)
def test_an_unusable_url_is_refused_with_what_is_wrong(url, says):
    with pytest.raises(ConfigurationError) as refused:
        CountersAddress(url)
    assert says in refused.value.message
    plain = ("parameters", "twice", "only database 0")
    assert "redis://HOST:PORT/DATABASE" in refused.value.message or says.endswith(plain)


@pytest.mark.parametrize("url", ["redis://anna:secret@h:0", "redis://anna:secret@h/x", "redis://anna:secret@h:99999"])
def test_credentials_are_never_shown(url):
    with pytest.raises(ConfigurationError) as refused:
        CountersAddress(url)
    assert "secret" not in refused.value.message
    assert "anna" not in refused.value.message
    good = CountersAddress("redis://anna:secret@host:6379/1")
    assert good.shown == "redis://host:6379/1"
    assert "secret" not in repr(good)


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "name", "database", "confirming"),
    [
        ("redis://a", "server", (("a", 6379),), "", 0, 0),
        ("redis://a:1/3", "server", (("a", 1),), "", 3, 0),
        ("unix:///r.sock?db=2", "socket", (), "", 2, 0),
        ("redis://a:1,b", "cluster", (("a", 1), ("b", 6379)), "", 0, 1),
        ("rediss+sentinel://a,b:2/main/4", "sentinel", (("a", 26379), ("b", 2)), "main", 4, 1),
    ],
)
def test_what_a_url_says(url, kind, hosts, name, database, confirming):
    address = CountersAddress(url)
    assert (address.kind, address.hosts, address.primary_name, address.database) == (kind, hosts, name, database)
    assert address.confirming_replicas == confirming
    assert address.is_encrypted == url.startswith("rediss")


@pytest.mark.parametrize("replicas", [0, 5])
def test_as_many_replicas_confirm_as_are_asked_for(replicas):
    assert CountersAddress("redis://a:1,b:2", replicas).confirming_replicas == replicas


@pytest.mark.parametrize("replicas", [-1, 6])
def test_an_impossible_number_of_replicas_is_refused(replicas):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_REDIS_REPLICAS from 0 to 5"):
        CountersAddress("redis://a", replicas)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (TlsFiles(certificate=Path("c.pem")), "TOLLKEEPER_REDIS_KEY"),
        (TlsFiles(key=Path("k.pem")), "TOLLKEEPER_REDIS_CERTIFICATE"),
    ],
)
def test_half_of_a_client_certificate_is_refused(files, says):
    with pytest.raises(ConfigurationError, match=says):
        CountersAddress("rediss://a", tls=files)


def test_each_redis_gets_what_its_url_asks_for_and_what_none_asks_for_is_refused():
    files = TlsFiles(authorities=Path("ca.pem"))
    means = RedisDependencies(files, "asking", "secret")
    plain, encrypted = means.address("redis://a", None), means.address("rediss://b", None)
    watched, both = means.address("redis+sentinel://c/main", 2), means.address("REDISS+sentinel://d/main", None)
    assert [each.tls for each in (plain, encrypted, watched, both)] == [TlsFiles(), files, TlsFiles(), files]
    assert [each.sentinel_password for each in (plain, encrypted, watched, both)] == ["", "", "secret", "secret"]
    assert watched.replicas == 2
    means.require_use([encrypted, watched])
    means.require_use([both])
    with pytest.raises(ConfigurationError, match=r"redis://a and redis\+sentinel://c/main is without TLS.*rediss"):
        means.require_use([plain, watched])
    with pytest.raises(ConfigurationError, match="names no Sentinels.*redis\\+sentinel") as refused:
        means.require_use([plain, encrypted])
    assert "secret" not in refused.value.message
    with pytest.raises(ConfigurationError, match="none is set"):
        means.require_use([])
    RedisDependencies().require_use([])


def test_a_sentinel_s_credentials_are_never_shown_and_a_user_needs_a_password():
    address = CountersAddress("redis+sentinel://:server@a/main", sentinel_user="asking", sentinel_password="secret")
    assert address.sentinel_credentials == ("asking", "secret") and address.credentials == (None, "server")
    assert "secret" not in repr(address) and "secret" not in address.shown
    assert CountersAddress("redis+sentinel://a/main").sentinel_credentials == (None, None)
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_REDIS_SENTINEL_PASSWORD"):
        CountersAddress("redis+sentinel://a/main", sentinel_user="asking")


def test_credentials_are_read_with_what_is_escaped():
    assert CountersAddress("redis://anna:p%40ss@a:1,b:2").credentials == ("anna", "p@ss")
    assert CountersAddress("redis://:p@a").credentials == (None, "p")
    assert CountersAddress("redis://a").credentials == (None, None)
    assert CountersAddress("redis://anna:secret@a:1,b:2").shown == "redis://a:1,b:2"
