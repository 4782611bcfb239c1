"""An OAuth authorization server, Authlib's, over HTTP in a thread: both grants, refresh tokens that are used once."""

import secrets
import threading
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants
from flask import Flask, jsonify, request
from mcp.server.auth.provider import AccessToken
from werkzeug.serving import make_server

CLIENT_ID, CLIENT_SECRET = "tollkeeper", "s3cret/with+signs="


class _Client(ClientMixin):  # type: ignore[misc]  # Authlib has no types
    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(client_secret, CLIENT_SECRET)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("client_credentials", "refresh_token")


class _Token(TokenMixin):  # type: ignore[misc]  # as above
    def check_client(self, client: ClientMixin) -> bool:
        return True

    def get_scope(self) -> str:
        return "read write"


class _ClientCredentials(grants.ClientCredentialsGrant):  # type: ignore[misc]  # as above
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")


class OAuthServer:
    """`grants` has the form of each token request. A refresh token is used once: used again, it is refused."""

    def __init__(self, methods: tuple[str, ...] = ("client_secret_basic", "client_secret_post")) -> None:
        self.grants: list[dict[str, str]] = []
        self.expires_in = 3600
        self.issued: list[str] = []
        self.refused = 0
        self.is_away = False
        self.delay_seconds = 0.0
        self._refresh_tokens: set[str] = set()
        self._resources: dict[str, str] = {}
        self._revoked: set[str] = set()
        self._app = app = Flask("oauth")
        server = AuthorizationServer(app, lambda _: _Client(), self._save)
        server.register_token_generator("default", self._generate)
        server.register_grant(_ClientCredentials)
        server.register_grant(self._refresh_grant())
        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

        @app.get("/.well-known/oauth-authorization-server")
        def metadata() -> Any:
            return jsonify(
                issuer=self.issuer,
                token_endpoint=f"{self.issuer}/token",
                token_endpoint_auth_methods_supported=list(methods),
            )

        @app.post("/token")
        def token() -> Any:
            if self.is_away:
                return "bad gateway", 502
            threading.Event().wait(self.delay_seconds)
            self.grants.append(request.form.to_dict())
            reply = server.create_token_response()
            self.refused += reply.status_code != 200
            return reply

        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def refresh_token(self) -> str:
        """Return a refresh token, as a person's authorization would have brought it."""
        self._refresh_tokens.add(made := secrets.token_urlsafe(24))
        return made

    def revoke_access(self) -> None:
        """Refuse every access token that was issued so far."""
        self._revoked.update(self.issued)

    def resource_of(self, token: str) -> str:
        """Return the resource that an access token was asked for."""
        return self._resources[token]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what an MCP server of the SDK wants to know of a token; `None` if it is not valid."""
        if token not in self.issued or token in self._revoked:
            return None
        return AccessToken(
            token=token, client_id=CLIENT_ID, scopes=["read", "write"], resource=self._resources.get(token)
        )

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def _generate(self, *, include_refresh_token: bool = True, **_: Any) -> dict[str, Any]:
        made: dict[str, Any] = {
            "token_type": "Bearer",
            "access_token": secrets.token_urlsafe(24),
            "expires_in": self.expires_in,
        }
        return made | ({"refresh_token": self.refresh_token()} if include_refresh_token else {})

    def _save(self, token: dict[str, Any], asked: Any) -> None:
        self.issued.append(token["access_token"])
        self._resources[token["access_token"]] = asked.form.get("resource", "")

    def _refresh_grant(self) -> type[grants.RefreshTokenGrant]:
        known = self._refresh_tokens

        class Rotating(grants.RefreshTokenGrant):  # type: ignore[misc]  # as above
            INCLUDE_NEW_REFRESH_TOKEN = True

            def authenticate_refresh_token(self, refresh_token: str) -> _Token | None:
                try:
                    known.remove(refresh_token)
                except KeyError:
                    return None
                return _Token()

            def authenticate_user(self, refresh_token: _Token) -> str:
                return "ada"

            def revoke_old_credential(self, refresh_token: _Token) -> None:
                """Do nothing: it was taken out when it was used."""

        return Rotating
