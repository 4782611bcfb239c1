"""Each kind of alert channel has its traits and its sender; an address leads to its kind."""

import pytest

from backends.channels.base import ChannelSettings
from backends.channels.table import open_senders
from contracts.errors import InvalidRequest
from contracts.rules.alert_channels import (
    CHANNEL_KINDS,
    TRAITS,
    ChannelKind,
    check_channel,
    check_report,
    kind_of_address,
    shown_address,
    traits_of,
)


async def test_each_kind_has_traits_and_a_sender() -> None:
    assert tuple(TRAITS) == CHANNEL_KINDS, "TRAITS of contracts/rules/alert_channels.py has each ChannelKind, in order"
    async with open_senders(ChannelSettings()) as senders:
        assert set(senders) == set(CHANNEL_KINDS), "backends/channels/table.py has a sender for each ChannelKind"


@pytest.mark.parametrize("kind", [kind for kind in CHANNEL_KINDS if TRAITS[kind].hosts])
def test_an_address_at_a_kinds_host_is_of_that_kind(kind: ChannelKind) -> None:
    for host in TRAITS[kind].hosts:
        address = f"https://{'some' if host[0] == '.' else ''}{host}/hidden"
        assert kind_of_address(address) == check_channel(kind, address) == kind
        assert kind_of_address(f"https://{host.strip('.')}.example/hidden") == "webhook"
        assert "hidden" not in shown_address(kind, address)


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_only_kinds_that_people_read_take_reports(kind: ChannelKind) -> None:
    check_report(kind, "")
    if TRAITS[kind].takes_reports:
        check_report(kind, "week")
    else:
        with pytest.raises(InvalidRequest, match="one of kind webhook, slack, email, teams or google_chat"):
            check_report(kind, "week")


def test_a_kind_of_a_later_version_is_shown_by_its_name_and_told_nothing_twice() -> None:
    later = traits_of("carrier_pigeon")
    assert (later.label, later.is_repeatable) == ("carrier_pigeon", False)
    assert shown_address("carrier_pigeon", "https://loft.example/hidden") == "https://loft.example/..."
