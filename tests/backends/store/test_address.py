"""Where the store is: usable URLs, and whose credentials win."""

from pathlib import Path

import pytest

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from contracts.errors import ConfigurationError

URL = "http://127.0.0.1:8123"


@pytest.mark.parametrize("url", ["127.0.0.1:8123", "ftp://host", "http://", "http://host:x", "http://host:70000", ""])
def test_an_unusable_url_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is unusable; give http://HOST:PORT"):
        StoreAddress(url, "tollkeeper", "writer", "")


def test_credentials_in_the_url_are_refused_unseen() -> None:
    with pytest.raises(ConfigurationError, match="must not hold credentials") as refused:
        StoreAddress("http://user:hunter2@host:8123", "tollkeeper", "writer", "")
    assert "hunter2" not in refused.value.message


def test_the_password_is_not_in_the_representation() -> None:
    assert "hunter2" not in repr(StoreAddress(URL, "tollkeeper", "writer", "hunter2"))


def test_both_processes_find_the_same_password_whoever_comes_first(tmp_path: Path) -> None:
    early = StoreAddress.resolve(URL, "tollkeeper", "writer", SecretFiles(tmp_path))
    late = StoreAddress.resolve(URL, "tollkeeper", "writer", SecretFiles(tmp_path))
    assert early == late
    assert early.password == SecretFiles(tmp_path).get("store_writer")


def test_explicit_credentials_win_and_make_no_file(tmp_path: Path) -> None:
    secrets = SecretFiles(tmp_path)
    both = StoreAddress.resolve(URL, "tollkeeper", "reader", secrets, user="ada", password="hunter2")
    assert (both.user, both.password) == ("ada", "hunter2")
    no_password = StoreAddress.resolve(URL, "tollkeeper", "reader", secrets, user="ada")
    assert (no_password.user, no_password.password) == ("ada", "")
    no_user = StoreAddress.resolve(URL, "tollkeeper", "reader", secrets, password="hunter2")
    assert (no_user.user, no_user.password) == ("reader", "hunter2")
    assert secrets.get("store_reader") is None


def test_empty_variables_are_unset_ones(tmp_path: Path) -> None:
    empty = StoreAddress.resolve(URL, "tollkeeper", "writer", SecretFiles(tmp_path), user="", password="")
    assert (empty.user, empty.password) == ("writer", SecretFiles(tmp_path).get("store_writer"))
