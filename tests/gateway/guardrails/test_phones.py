"""Telephone numbers without a country's code: what digits alone rule out, the library would not accept either."""

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.guardrails.detectors.phones import _dialled_in, _may_be_abroad, phone_spans

REGIONS = ("US", "DE", "GB", "FR", "IT", "AR", "BR", "AG", "AU", "JP", "IN", "MX")
NUMBERS = st.from_regex(r"(?:0|1|9|011|00)?[0-9]{4,13}", fullmatch=True)


def is_valid(text: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False


@given(NUMBERS, st.sampled_from(REGIONS))
def test_what_digits_rule_out_is_no_valid_number(digits: str, region: str) -> None:
    assert _dialled_in(region).may_be_valid(digits) or not is_valid(digits, region)


@given(st.from_regex(r"\+[1-9][0-9]{6,13}", fullmatch=True))
def test_what_a_countrys_code_rules_out_is_no_valid_number(number: str) -> None:
    assert _may_be_abroad(number) or not is_valid(number, None)


@pytest.mark.parametrize("region", sorted(phonenumbers.SUPPORTED_REGIONS))
def test_a_number_of_each_region_is_ruled_out_in_none_of_the_ways_it_is_dialled(region: str) -> None:
    for kind in (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE):
        number = phonenumbers.example_number_for_type(region, kind)
        if number is None:
            continue
        for form in (phonenumbers.PhoneNumberFormat.NATIONAL, phonenumbers.PhoneNumberFormat.INTERNATIONAL):
            dialled = phonenumbers.format_number(number, form)
            digits = "".join(filter(str.isdigit, dialled))
            assert _may_be_abroad(dialled) or not dialled.startswith("+")
            assert _dialled_in(region).may_be_valid(digits) or not is_valid(digits, region), dialled


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("212 555 0123", 12),
        ("212 555 0123 99", 12),  # other digits behind it
        ("1 212 555 0123", 14),
        ("12 34 56 78 90", None),
        ("112 555 0123", None),  # no area begins with 1
        ("2026-11-29 15", None),  # a day
        ("0049 30 901820", 14),
        ("555 012", None),  # six digits
    ],
)
def test_a_number_is_found_at_the_beginning_of_a_run(text: str, end: int | None) -> None:
    assert phone_spans(text, ("US",)) == ([] if end is None else [(0, end)])
