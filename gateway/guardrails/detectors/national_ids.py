"""National identity numbers: their format, and whether check digits and dates are valid (python-stdnum)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

# By country and name: its form, and the module that knows its checks.
_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "us_ssn": (r"\b\d{3}-\d{2}-\d{4}\b", "us.ssn"),
    "de_idnr": (r"\b[1-9]\d ?\d{3} ?\d{3} ?\d{3}\b", "de.idnr"),
    "fr_nir": (r"\b[1-478] ?\d{2} ?\d{2} ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}\b", "fr.nir"),
    "es_dni": (r"\b\d{8}-?[A-Z]\b", "es.dni"),
    "es_nie": (r"\b[XYZ]-?\d{7}-?[A-Z]\b", "es.nie"),
    "it_codicefiscale": (r"\b[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z]\b", "it.codicefiscale"),
    "se_personnummer": (r"\b(?:\d{2})?\d{6}[-+]\d{4}\b", "se.personnummer"),
    "fi_hetu": (r"\b\d{6}[-+A]\d{3}[0-9A-Y]\b", "fi.hetu"),
    "be_nn": (r"\b\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}\b", "be.nn"),
    "pl_pesel": (r"\b\d{11}\b", "pl.pesel"),
    "ch_ssn": (r"\b756\.\d{4}\.\d{4}\.\d{2}\b", "ch.ssn"),
    "br_cpf": (r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b", "br.cpf"),
    "in_aadhaar": (r"\b\d{4} \d{4} \d{4}\b(?: \d{4}\b)?", "in_.aadhaar"),
    "cn_ric": (r"\b\d{17}[0-9X]\b", "cn.ric"),
    "uk_nhs": (r"\b\d{3}[ -]?\d{3}[ -]?\d{4}\b", "gb.nhs"),
    "nl_bsn": (r"\b\d{9}\b", "nl.bsn"),
    "za_idnr": (r"\b\d{13}\b", "za.idnr"),
}
# One number in ten or so of that length passes their check: who wants them asks for them.
_UNSURE: Final = frozenset(("uk_nhs", "nl_bsn", "za_idnr"))
SURE_IDS: Final = tuple(name for name in _FORMS if name not in _UNSURE)


def _check_of(module: str) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        check = cast(Callable[[str], bool], import_module(f"stdnum.{module}").is_valid)
        try:
            return check(text)
        except Exception:  # of some numbers the library's own tables know less than it expects
            return False

    return holds


NATIONAL_IDS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    name: (form, _check_of(module)) for name, (form, module) in _FORMS.items()
}
