"""Signs people in by an identity provider. Its tokens are verified here, whoever sends them."""

from typing import Any, Final

import jwt

from contracts.errors import AuthenticationFailed, Unavailable
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import IssuerSpec, Snapshot
from gateway.control.people import Person
from gateway.identity.issuer_documents import IssuerDocuments
from gateway.identity.token_issuers import TokenIssuers
from gateway.request.clock import Clock

_MAX_NAME: Final = 200
_MAX_GROUPS: Final = 1_000
_STALE_SECONDS: Final = 3_600.0
_NO_TENANT: Final = "people"  # who a person pays for is their account's business; the verifier asks for a payer


class IdentityProvider:
    """Verifies ID tokens of one provider for one client (OpenID Connect Core 1.0, section 3.1.3.7).

    The provider's metadata is fetched at the first use, and again after a failure.
    """

    def __init__(
        self, metadata_url: str, client_id: str, clock: Clock | None = None, groups_claim: str = "groups"
    ) -> None:
        self._groups_claim = groups_claim
        self._metadata_url = metadata_url
        self._client_id = client_id
        self._documents = IssuerDocuments()
        self._issuers = TokenIssuers(clock or Clock(), _STALE_SECONDS)
        self._snapshot: Snapshot | None = None

    async def person_of(self, id_token: str) -> Person:
        """Return the person that the provider confirms. Raises AuthenticationFailed if the token is invalid or does not
        confirm the e-mail address, Unavailable if the provider does not answer.
        """
        if self._snapshot is None:
            self._snapshot = await self._read()
        await self._issuers.verify(id_token, self._snapshot)
        claims: dict[str, Any] = jwt.decode(id_token, options={"verify_signature": False})  # verified just now
        email = claims.get("email")
        if not isinstance(email, str) or not email:
            raise AuthenticationFailed("the identity provider names no e-mail address; add the scope `email` there")
        # A provider with unverified addresses marks them here. Without a mark, the provider has verified the address.
        if claims.get("email_verified", True) not in (True, "true"):
            raise AuthenticationFailed("the identity provider has not verified this e-mail address")
        name, groups = claims.get("name"), claims.get(self._groups_claim)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return Person(
            email,
            name[:_MAX_NAME] if isinstance(name, str) and name.isprintable() else "",
            tuple(group for group in listed[:_MAX_GROUPS] if isinstance(group, str) and group),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._issuers.close()
        await self._documents.close()

    async def _read(self) -> Snapshot:
        found = await self._documents.get(self._metadata_url)
        issuer, keys_url = found.get("issuer"), found.get("jwks_uri")
        if not isinstance(issuer, str) or not isinstance(keys_url, str):
            raise Unavailable(f"{self._metadata_url} is no OpenID configuration: issuer or jwks_uri is missing")
        spec = IssuerSpec(issuer=issuer, audience=self._client_id, keys_url=keys_url, tenant=_NO_TENANT)
        return Snapshot(0, {}, {}, {}, PriceBook(), issuers=(spec,))
