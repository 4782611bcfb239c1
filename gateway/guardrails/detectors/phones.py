"""Finds telephone numbers: with a country code anywhere, without one as they are dialled in the given regions."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import phonenumbers
from phonenumbers import PhoneMetadata

ABROAD: Final = r"(?:\+|\b00)[1-9](?:[ ()./-]{0,2}\d){6,13}"
# Without a country's code: in groups, as people write them. What it is then depends on the regions.
LOCAL: Final = r"\(?\b\d{2,5}\)?[ ./-]{1,2}\d{2,5}(?:[ ./-]\d{2,5}){1,3}"
_DAY: Final = re.compile(r"(?:19|20)\d\d[-./]\d\d[-./]\d\d(?!\d)")
_SHORTEST: Final = 7  # digits
_LONGEST_CODE: Final = 3  # digits of a country's code
_NO_COUNTRY: Final = "001"  # codes of services, as of satellites
_KINDS: Final = "fixed_line mobile toll_free premium_rate shared_cost personal_number voip pager uan voicemail".split()


class _Dialled:
    """What is dialled in one region, as far as digits alone show it: the library's own reading takes ten times longer.

    A valid number is the end of what is dialled: before it are at most a prefix or the country's own code.
    """

    def __init__(self, region: str) -> None:
        own = PhoneMetadata.metadata_for_region(region)
        assert own is not None, "a supported region"
        code = phonenumbers.country_code_for_region(region)
        shared = [
            found
            for one in phonenumbers.COUNTRY_CODE_TO_REGION_CODE[code]
            if (found := PhoneMetadata.metadata_for_region(one)) is not None
        ]
        descriptions = [found for each in shared for kind in _KINDS if (found := getattr(each, kind)) is not None]
        self._forms = re.compile(
            "|".join({f"(?:{one.national_number_pattern})" for one in descriptions if one.national_number_pattern})
        )
        self._lengths = {length for one in descriptions for length in one.possible_length if length > 0}
        self._abroad = re.compile(own.international_prefix or r"(?!)")
        self._is_rewritten = own.national_prefix_transform_rule is not None

    def may_be_valid(self, digits: str) -> bool:
        """Return whether the library may take these digits for a valid number. Where this says no, it does not."""
        if self._is_rewritten or self._abroad.match(digits) is not None:
            return True
        size = len(digits)
        return any(
            [size >= length and self._forms.fullmatch(digits, size - length) is not None for length in self._lengths]
        )


@cache
def _dialled_in(region: str) -> _Dialled:
    return _Dialled(region)


def _may_be_abroad(number: str) -> bool:
    """Return whether the library may take `+` and what follows for a valid number, by the country's code it has."""
    digits = "".join(filter(str.isdigit, number))
    for size in range(1, _LONGEST_CODE + 1):
        regions = phonenumbers.COUNTRY_CODE_TO_REGION_CODE.get(int(digits[:size]))
        if regions is not None:
            return regions[0] == _NO_COUNTRY or _dialled_in(regions[0]).may_be_valid(digits[size:])
    return False


def phone_spans(text: str, regions: Sequence[str]) -> list[tuple[int, int]]:
    """Find the telephone number at the start of a run of digit groups; the run may continue with other numbers."""
    if _DAY.match(text) is not None:
        return []
    ends = [place for place in range(len(text)) if not text[place].isdigit() and text[place - 1].isdigit() and place]
    for end in (len(text), *reversed(ends)):
        digits = "".join(filter(str.isdigit, text[:end]))
        if len(digits) < _SHORTEST:
            break
        if _is_phone(text[:end], digits, regions):
            return [(0, end)]
    return []


def _is_phone(text: str, digits: str, regions: Sequence[str]) -> bool:
    is_abroad = text.startswith(("+", "00"))
    number = "+" + text[2:] if text.startswith("00") else text
    for region in (None,) if is_abroad else regions:
        may_be = _dialled_in(region).may_be_valid(digits) if region is not None else _may_be_abroad(number)
        if not may_be:
            continue
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(number, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False
