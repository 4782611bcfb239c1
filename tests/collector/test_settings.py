import pytest

from collector.settings import listed, quotas_of, redactions


def test_lists_are_written_with_commas() -> None:
    assert listed("") == ()
    assert listed(" acme, globex ,") == ("acme", "globex")


def test_quotas_are_tenants_and_numbers() -> None:
    assert quotas_of("") == {}
    assert quotas_of("acme=5000, a=b=0.5") == {"acme": 5000.0, "a=b": 0.5}


@pytest.mark.parametrize("text", ["acme", "acme=", "=1", "acme=-1", "acme=inf", "acme=nan", "acme=much"])
def test_what_is_no_quota_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not tenant=number"):
        quotas_of(text)


def test_what_cannot_be_redacted_is_named() -> None:
    assert redactions("emails,keys") == ("emails", "keys")
    with pytest.raises(ValueError, match="'names' is not one of keys, emails"):
        redactions("names")
