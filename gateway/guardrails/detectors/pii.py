"""Personal data: card and account numbers, addresses, telephone numbers, national ids. Each kind has a format and a
check.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import phonenumbers
from stdnum import iban

from contracts.errors import ConfigurationError
from contracts.recording.redaction import card_spans
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.detectors.national_ids import NATIONAL_IDS, SURE_IDS
from gateway.guardrails.detectors.personal_data import Kind, PersonalData, Spans
from gateway.guardrails.detectors.phones import ABROAD, LOCAL, phone_spans
from gateway.guardrails.settings import read_settings

# A card number's digits, with the blanks or hyphens that are printed between them (ISO/IEC 7812-1: 13 to 19).
_CARD: Final = r"\d(?:[ -]?\d){12,18}"
_CARD_RUN: Final = r"\d(?:[ -]?\d){12,}"  # the whole run of digits; shorter ones hold no card
_ISSUERS: Final = "23456"  # first digits of payment cards: times in milliseconds begin with 1
_IBAN: Final = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}"
_IBAN_BEGINS: Final = re.compile(r"\b[A-Z]{2}\d{2}")
# Without bounds, which in linear time are not needed and would make an automaton of many states.
_EMAIL: Final = r"\b[\w.+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_SHORTEST_IBAN: Final = 15
_LONGEST_IBAN: Final = 34
_DEFAULT_KINDS: Final = ("card", "iban", "email", "phone", *SURE_IDS)


class PiiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings. `kinds`: what to find. `regions` (ISO 3166): where numbers without a country code are dialled."""

    kinds: tuple[str, ...] = _DEFAULT_KINDS
    regions: tuple[str, ...] = ("US",)


def build(settings: Mapping[str, object], dependencies: DetectorDependencies) -> PersonalData:
    """Build the detector. Raises ConfigurationError on an unknown kind or region."""
    given = read_settings(settings, PiiSettings)
    known = ("card", "iban", "email", "phone", *NATIONAL_IDS)
    for name in given.kinds:
        if name not in known:
            raise ConfigurationError(f"settings.kinds: there is no {name[:40]!r}; there are {', '.join(known)}")
    for region in given.regions:
        if region not in phonenumbers.SUPPORTED_REGIONS:
            raise ConfigurationError(f"settings.regions: {region[:10]!r} is not a region such as US or DE")
    if not given.kinds:
        raise ConfigurationError("settings.kinds is empty; leave it out for the usual ones")
    return PersonalData([_kind(name, given.regions) for name in known if name in given.kinds])


def _kind(name: str, regions: tuple[str, ...]) -> Kind:
    if name == "card":
        return Kind(name, (_CARD,), _CARD_RUN, _cards)
    if name == "iban":
        return Kind(name, (_IBAN,), _IBAN, _ibans)
    if name == "email":
        return Kind(name, (_EMAIL,), _EMAIL, lambda text: [(0, len(text))])
    if name == "phone":
        patterns = (ABROAD, LOCAL) if regions else (ABROAD,)
        return Kind(name, patterns, "|".join(patterns), lambda text: phone_spans(text, regions))
    form, holds = NATIONAL_IDS[name]
    return Kind(name, (form,), form, lambda text: [(0, len(text))] if holds(text) else [])


def _cards(text: str) -> Spans:
    if text[0] not in _ISSUERS and text.isdigit():  # it is one number, or none
        return []
    return [(start, end) for start, end in card_spans(text) if text[start] in _ISSUERS]


def _ibans(text: str) -> Spans:
    """Find account numbers in a run of capitals and digits, which may include words in capitals."""
    for begun in _IBAN_BEGINS.finditer(text):
        places = [place for place in range(begun.start(), len(text)) if text[place] != " "]
        compact = "".join(text[place] for place in places[:_LONGEST_IBAN])
        for length in range(len(compact), _SHORTEST_IBAN - 1, -1):
            number = compact[:length]
            if int("".join(str(int(one, 36)) for one in number[4:] + number[:4])) % 97 == 1 and iban.is_valid(number):
                end = places[length - 1] + 1
                return [(begun.start(), end), *((first + end, last + end) for first, last in _ibans(text[end:]))]
    return []
