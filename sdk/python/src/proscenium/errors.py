"""The errors of a producer, and of a worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx


class ProsceniumError(Exception):
    """The base of all errors of this package."""


class Problem(ProsceniumError):
    """A problem document of the server (RFC 9457)."""

    def __init__(self, status: int, document: dict[str, Any]):
        self.status = status
        # Stable; programs compare this. `unknown`: the response is not the server's own, but a proxy's.
        self.code = str(document.get("code", "unknown"))
        self.detail = str(document.get("detail", ""))
        self.document = document
        super().__init__(f"{self.detail} ({status} {self.code})")

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (408, 425, 429) or self.status >= 500 or self.code in ("unknown", "run_erased")

    @property
    def retry_after(self) -> float:
        """The seconds that the server asks to wait; 0 if it asks for none."""
        seconds = self.document.get("retryAfter")
        return float(seconds) if isinstance(seconds, (int, float)) else 0.0

    @staticmethod
    def of(response: httpx.Response) -> "Problem":
        """Reads the problem of a response. Describes the response where it has none."""
        try:
            document = response.json()
        except ValueError:
            document = None
        if isinstance(document, dict) and isinstance(document.get("code"), str):
            return Problem(response.status_code, document)
        excerpt = response.text[:200]
        return Problem(response.status_code, {"detail": f"The response is not a Proscenium server's: {excerpt!r}"})


class Unreachable(ProsceniumError):
    """The server made no progress for too long.

    `waiting` facts are sent again until the producer is closed; `lost` facts are not.
    """

    def __init__(self, waiting: int, why: str, lost: int = 0):
        self.waiting, self.lost = waiting, lost
        super().__init__(f"the server made no progress: {why}; {waiting} facts wait, {lost} are lost")


@dataclass(frozen=True)
class RejectedFact:
    """A fact that the server can never accept."""

    number: int
    text: str
    problem: Problem


class Rejected(ProsceniumError):
    """The server rejected some facts. It has all others."""

    def __init__(self, facts: Sequence[RejectedFact]):
        self.facts = list(facts)
        first = self.facts[0]
        others = f"; {len(self.facts) - 1} more facts were rejected" if len(self.facts) > 1 else ""
        super().__init__(f"fact {first.number} ({first.text[:200]}) was rejected: {first.problem}{others}")
