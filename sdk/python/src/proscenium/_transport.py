"""One streamed body to the server, and the meaning of the answer for its facts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import httpx

from ._server import Server
from .errors import Problem

# A number that no producer reaches: the server answers with the number that it expects.
NUMBER_MAX = 2**53 - 1
# Problems that concern the address, the numbering or the right to send, and so every fact.
PRODUCER_CODES = ("bad_id", "bad_query", "bad_producer", "unknown_source", "too_many_producers", "too_many_subjects")


@dataclass(frozen=True)
class Acknowledged:
    """All facts are durable. The server already had `repeated` of them."""

    repeated: int


@dataclass(frozen=True)
class Gap:
    """The server lacks facts before the first one, and expects this number."""

    expected: int


@dataclass(frozen=True)
class FactRejected:
    """The facts before `index` are durable, and the server never accepts that one."""

    index: int
    problem: Problem


@dataclass(frozen=True)
class BodyRejected:
    """One fact is invalid, or the body is too large. Smaller bodies tell which."""

    problem: Problem


@dataclass(frozen=True)
class Refused:
    """The server accepts nothing from this producer."""

    problem: Problem


@dataclass(frozen=True)
class Retry:
    """The same body may succeed later, after `after` seconds at the earliest."""

    why: str
    after: float = 0.0


Outcome = Acknowledged | Gap | FactRejected | BodyRejected | Refused | Retry


class Body(Protocol):
    """Facts that enter the request while it is sent."""

    taken: int

    def __iter__(self) -> Iterator[bytes]: ...


class Transport(Protocol):
    def send(self, source: str, number: int, body: Body) -> Outcome: ...

    def expected(self) -> int | Outcome:
        """Asks for the number of the next fact."""

    def keep_alive(self) -> None:
        """Tells the server that the producer lives."""

    def close(self) -> None: ...


class HttpTransport:
    """Sends to the facts of one run or session."""

    def __init__(self, server: Server, path: str, ids: Mapping[str, str], producer: str, epoch: int):
        self._server = server
        self._client = server.client()
        self._url = server.address(path)
        self._ids = dict(ids)
        self._producer = {"producer-id": producer, "producer-epoch": str(epoch)}

    def send(self, source: str, number: int, body: Body) -> Outcome:
        headers = {**self._producer, "producer-seq": str(number), "content-type": "application/x-ndjson"}
        try:
            response = self._post(source, headers, iter(body))
        except httpx.TransportError as error:
            return Retry(_reason(error))
        return classify(response, body.taken)

    def expected(self) -> int | Outcome:
        headers = {**self._producer, "producer-seq": str(NUMBER_MAX), "content-type": "application/json"}
        try:
            outcome = classify(self._post("agentui", headers, b"[]"), 0)
        except httpx.TransportError as error:
            return Retry(_reason(error))
        return outcome.expected if isinstance(outcome, Gap) else outcome

    def keep_alive(self) -> None:
        try:
            self._post("agentui", {"content-type": "application/json"}, b"[]")
        except httpx.TransportError:
            pass  # The next fact finds out, and retries.

    def close(self) -> None:
        self._client.close()

    def _post(self, source: str, headers: Mapping[str, str], content: bytes | Iterator[bytes]) -> httpx.Response:
        headers = {**self._server.headers(), **headers}
        return self._client.post(self._url, params={"source": source, **self._ids}, headers=headers, content=content)


def classify(response: httpx.Response, facts: int) -> Outcome:
    """Returns the meaning of the answer to a body of `facts` facts.

    Only an answer in the form of our server settles facts. Any other comes from something between, and is retried.
    """
    if response.status_code == 200:
        counts = _counts(response)
        if sum(counts.values()) == facts:
            return Acknowledged(counts["duplicates"])
        return Retry(f"the answer does not account for {facts} facts: {response.text[:200]!r}")
    problem = Problem.of(response)
    expected, line = problem.document.get("expected"), problem.document.get("line")
    if problem.code == "producer_gap" and isinstance(expected, int):
        return Gap(expected)
    if problem.is_transient and problem.status != 413:
        return Retry(str(problem), problem.retry_after)
    if problem.code in PRODUCER_CODES or problem.status not in (400, 413, 422):
        return Refused(problem)
    if isinstance(line, int) and 1 <= line <= facts:
        return FactRejected(line - 1, problem)
    return BodyRejected(problem)


def _counts(response: httpx.Response) -> dict[str, int]:
    try:
        receipt = response.json()
    except ValueError:
        return {"duplicates": -1}
    members = ("accepted", "duplicates", "shed")
    return {member: receipt.get(member, 0) if isinstance(receipt, dict) else -1 for member in members}


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
