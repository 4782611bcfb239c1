"""What is sealed can be read with its key alone, and a wrong or damaged one is named without what it hides."""

from pathlib import Path
from secrets import token_urlsafe

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.control.sealer import KEY_FILE, Sealer
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

URL = "https://hooks.slack.example/services/T0/B0/hidden"
SEALER = Sealer(token_urlsafe(32))


@given(st.text(max_size=500))
def test_what_is_sealed_can_be_opened(text: str) -> None:
    assert SEALER.open(SEALER.seal(text)) == text


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789/:.-", max_size=500))
def test_an_address_of_any_length_that_is_taken_fits_its_column(text: str) -> None:
    assert len(SEALER.seal(text)) <= 1000


def test_the_same_text_is_never_sealed_alike() -> None:
    assert SEALER.seal(URL) != SEALER.seal(URL)


def test_another_key_or_a_damaged_text_is_named_and_shows_nothing() -> None:
    sealed = SEALER.seal(URL)
    for sealer, text in ((Sealer(token_urlsafe(32)), sealed), (SEALER, sealed[:-8]), (SEALER, URL), (SEALER, "")):
        with pytest.raises(ConfigurationError, match="another key than secret 'channel_key'") as refused:
            sealer.open(text)
        assert "hidden" not in str(refused.value) and refused.value.__cause__ is None


def test_the_key_is_made_once_in_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    secrets = SecretFiles(tmp_path / "secrets")
    assert Sealer.of(secrets).open(Sealer.of(secrets).seal(URL)) == URL
    assert (secrets.directory / KEY_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", ["", "short", "x" * 44, "ä" * 43, "=" * 43])
def test_a_key_that_is_none_is_named(key: str) -> None:
    with pytest.raises(ConfigurationError, match="not 256 bits in URL-safe Base64"):
        Sealer(key)
