"""Scores answers by a judge, an HTTP service of the operator, for some requests whose content is stored."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import httpx

from analytics.quality.feedback import Feedback, insert_feedback
from analytics.queries import query
from analytics.rows import text_of
from analytics.settings import AnalyticsSettings
from backends.store.client import Row, StoreClient
from contracts.errors import ConfigurationError, Unavailable

_LOOKS_BACK: Final = timedelta(hours=24)
_AT_A_TIME: Final = 20
_SCORE: Final = "quality"
_MOST_REFUSED: Final = 1000  # requests that this process remembers and does not send again


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The judge's URL and name, and the share of stored contents that it scores."""

    url: str
    name: str
    share: float
    timeout_seconds: float

    @classmethod
    def of(cls, settings: AnalyticsSettings) -> "JudgeSettings":
        """Return the judge's settings. Raises ConfigurationError on an unusable URL."""
        url = httpx.URL(settings.judge_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigurationError("TOLLKEEPER_JUDGE_URL is not an http:// or https:// URL with a host")
        return cls(settings.judge_url, settings.judge_name, settings.judge_share, settings.judge_timeout_seconds)


class _NoScore(Unavailable):
    """The judge answered without a score."""


class Judge:
    """Posts `{"model", "prompt", "completion"}`, reads `{"score": 0 to 1, "comment"}` and stores it as feedback.

    Only contents that their tenant stores are sent to the judge, in the stored form.
    """

    def __init__(self, settings: JudgeSettings, store: StoreClient, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._store = store
        self._now = now
        self._refused: dict[UUID, None] = {}  # in order of time
        self._client = httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=settings.timeout_seconds)

    async def judge_some(self) -> int:
        """Send some answers to the judge, oldest first; return the number judged.

        Raises StoreUnavailable, and Unavailable if the judge does not respond (the answer is retried later) or returns
        no score (the answer is skipped).
        """
        judged = 0
        refusal: _NoScore | None = None
        for row in await asyncio.to_thread(self._waiting):
            request_id = row["request_id"]
            assert isinstance(request_id, UUID)  # the store's type for UUID
            if request_id in self._refused:
                continue
            try:
                score, comment = await self._ask(row)
            except _NoScore as error:
                refusal = error
                self._refused[request_id] = None
                if len(self._refused) > _MOST_REFUSED:
                    self._refused.pop(next(iter(self._refused)))
                continue
            given = Feedback(request_id, _SCORE, score, comment, self._settings.name, False)
            await asyncio.to_thread(insert_feedback, self._store, row, given, "judge", self._now())
            judged += 1
        if refusal is not None:
            raise refusal
        return judged

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        self._store.close()

    def _waiting(self) -> list[Row]:
        now = self._now()
        parameters = {
            "start": int((now - _LOOKS_BACK).timestamp()),
            "end": int(now.timestamp()) + 1,
            "tenant": None,
            "share": round(self._settings.share * 1_000_000),
            "judge": self._settings.name,
            "row_limit": _AT_A_TIME + len(self._refused),
        }
        return self._store.query(query("content_to_judge"), parameters)

    async def _ask(self, row: Row) -> tuple[float, str]:
        shown = {name: text_of(row[name]) for name in ("model", "prompt", "completion")}
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                reply = await self._client.post(self._settings.url, json=shown)
            answer = reply.json() if reply.is_success else {}
            score = answer.get("score") if isinstance(answer, dict) else None
        except (TimeoutError, httpx.HTTPError, ValueError) as error:
            raise Unavailable(f"the judge {self._settings.name!r} does not answer ({type(error).__name__})") from error
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise _NoScore(
                f"the judge {self._settings.name!r} answered {reply.status_code} without a score from 0 to 1"
            )
        return float(score), str(answer.get("comment", ""))[:2000]
