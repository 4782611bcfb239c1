"""The configuration that `tollkeeper init` writes: validates five answers and writes a file for `tollkeeper apply`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from contracts.errors import ConfigurationError
from contracts.rules.alert_channels import check_channel, kind_of_address
from tollkeeper.upstream import PROVIDER_HOSTS, UpstreamPrice, price_of, slug_of, target_of

CHANNEL: Final = "alerts"
_HEADER: Final = (
    "# Written by `tollkeeper init`. Change it and run `tollkeeper apply -f {name}`;\n"
    "# `tollkeeper schema` has all fields. Secrets are in other files and are named here.\n"
)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to `tollkeeper init`'s questions; "" means none."""

    upstream: str = ""  # URL of an OpenAI-compatible API, or directory of a model; empty: the built-in model
    model: str = ""  # name that applications ask for
    upstream_model: str = ""  # its name at the upstream; empty: the same
    api_key_variable: str = ""
    price: tuple[str, str] | None = None  # USD per million input and output tokens; None: from the built-in list
    tenant: str = "main"
    key: str = "app"
    budget_usd: str = ""  # per month
    alert: str = ""  # e-mail address, webhook's URL or PagerDuty's routing key
    account: str = ""  # e-mail address of the first dashboard account

    @property
    def is_url(self) -> bool:
        """Return whether the upstream is a server's URL."""
        return self.upstream.startswith(("http://", "https://"))

    @property
    def directory(self) -> str:
        """Return the directory of the model that this machine's engine host serves; "" if there is none."""
        return "" if self.is_url else self.upstream


def checked(answers: Answers) -> Answers:
    """Validate the answers and return them. Raises ConfigurationError for the first invalid one."""
    if answers.directory and not (Path(answers.directory) / "config.json").is_file():
        raise ConfigurationError(
            f"--upstream {answers.directory!r} is neither a URL (http://, https://) nor a directory with a config.json"
        )
    if answers.is_url and not answers.model:
        raise ConfigurationError("give --model, the name that applications ask for")
    if answers.budget_usd:
        try:
            amount = Decimal(answers.budget_usd)
        except InvalidOperation as error:
            raise ConfigurationError(f"--budget-usd {answers.budget_usd!r} is not a number, such as 50") from error
        if not amount.is_finite() or amount <= 0:
            raise ConfigurationError(f"--budget-usd is {answers.budget_usd}; give more than 0, or leave it out")
    if answers.alert:
        check_channel(kind_of_address(answers.alert), answers.alert)
    if answers.account and "@" not in answers.account:
        raise ConfigurationError(f"--account {answers.account!r} is not an e-mail address")
    if answers.api_key_variable and not os.environ.get(answers.api_key_variable, "").strip():
        raise ConfigurationError(f"the variable {answers.api_key_variable} is not set or empty; export it first")
    return answers


def document_of(answers: Answers, address_file: Path) -> dict[str, Any]:
    """Return the sections of the configuration file. Raises ConfigurationError if no price is known."""
    document: dict[str, Any] = {"tenants": [{"id": answers.tenant, "name": answers.tenant}]}
    if answers.is_url:
        document |= _serving(answers)
    document["keys"] = [{"tenant": answers.tenant, "name": answers.key}]
    if answers.alert:
        kind = kind_of_address(answers.alert)
        address = answers.alert if kind == "email" else f"file:{address_file}"
        document["alert_channels"] = [{"id": CHANNEL, "kind": kind, "address": address}]
    if answers.budget_usd:
        budget: dict[str, Any] = {"tenant": answers.tenant, "period": "month", "amount_usd": answers.budget_usd}
        budget["thresholds"] = [80, 100]
        document["budgets"] = [budget | ({"channels": [CHANNEL]} if answers.alert else {})]
    return document


def _serving(answers: Answers) -> dict[str, Any]:
    provider = PROVIDER_HOSTS.get(urlsplit(answers.upstream).hostname or "", "")
    upstream_model = answers.upstream_model or answers.model
    found: UpstreamPrice = price_of(provider, upstream_model, answers.price, False)
    pool = slug_of(answers.model)
    reference = f"stored:{pool}" if answers.api_key_variable else ""
    target = target_of(answers.model, answers.upstream, provider, upstream_model, reference, "")
    card = {"model": answers.model, "version": f"{answers.model}/1", "usd_per_mtok": found.usd_per_mtok, **found.more}
    return {
        "pools": [{"name": pool, "targets": [target]}],
        "models": [{"name": answers.model, "pool": pool}],
        "prices": [card],
    }


def write_files(answers: Answers, file: Path, data: Path) -> None:
    """Write the configuration file, and the alert channel's secret address into the data directory.

    Raises ConfigurationError if a file exists or cannot be written.
    """
    if file.exists():
        raise ConfigurationError(
            f"{file} exists already; apply it with `tollkeeper apply -f {file}`, or name another with --file"
        )
    address_file = (data / "alert-address").absolute()
    document = document_of(answers, address_file)
    try:
        if answers.alert and kind_of_address(answers.alert) != "email":
            data.mkdir(parents=True, exist_ok=True)
            address_file.unlink(missing_ok=True)
            descriptor = os.open(address_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(answers.alert + "\n")
        file.write_text(_HEADER.format(name=file) + yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written ({error.strerror})") from error


def stored_key(answers: Answers) -> Mapping[str, str]:
    """Return the provider's API key to store, by name; {} if the upstream needs none."""
    if not answers.api_key_variable:
        return {}
    return {slug_of(answers.model): os.environ[answers.api_key_variable].strip()}
