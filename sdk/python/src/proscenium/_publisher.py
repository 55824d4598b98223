"""The queue of a producer, and the thread that sends it.

Each fact has a number, and keeps it until the server has acknowledged it. After a lost answer the thread sends the same
facts under the same numbers again, so the server stores each once.
"""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ._json import to_json
from ._transport import Acknowledged, BodyRejected, FactRejected, Gap, Outcome, Refused, Retry, Transport
from .errors import Problem, ProsceniumError, Rejected, RejectedFact, Unreachable

logger = logging.getLogger("proscenium")

# The most unacknowledged facts, by count and by bytes. A single fact may be larger.
QUEUE_FACTS_MAX = 16_384
QUEUE_BYTES_MAX = 8 * 1024 * 1024
# The most facts and bytes of one request. Its answer acknowledges them.
BODY_FACTS_MAX = 8_192
BODY_BYTES_MAX = 4 * 1024 * 1024
# The bytes that one write to the connection joins.
CHUNK_BYTES = 64 * 1024
STALL_TIMEOUT = 30.0
# The server calls a silent run stale after 60 s, by default.
KEEP_ALIVE_S = 20.0
BACKOFF_S, BACKOFF_MAX_S, RETRY_AFTER_MAX_S = 0.1, 5.0, 60.0
# The most rejected facts that an error names.
REJECTED_MAX = 100


@dataclass(frozen=True)
class Counters:
    """Counts a producer's facts by outcome. `published` is the sum of the others without `repeated`."""

    published: int = 0
    # Durable at the server.
    acknowledged: int = 0
    # Acknowledged facts that the server already had, because an earlier answer was lost.
    repeated: int = 0
    # The server never accepts them; a diagnostic has their place.
    rejected: int = 0
    # Lost, because the server was away for too long or refuses this producer.
    dropped: int = 0
    waiting: int = 0


@dataclass
class _Entry:
    text: bytes
    source: str
    is_placeholder: bool = False


class _Body:
    """The body of one request: waiting facts of one source, as long as some wait and the body is not full."""

    def __init__(self, publisher: "Publisher", source: str, facts_max: int):
        self._publisher, self._source, self._facts_max = publisher, source, facts_max
        self.taken = 0
        self._bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        while self._bytes < BODY_BYTES_MAX:
            lines = self._publisher._take(self._source, self._facts_max - self.taken)
            if not lines:
                return
            chunk = b"\n".join([*lines, b""])
            self.taken += len(lines)
            self._bytes += len(chunk)
            yield chunk


class Publisher:
    """A bounded queue with a thread. All methods may be called from any thread."""

    def __init__(self, transport: Transport, stall_timeout: float = STALL_TIMEOUT):
        self._transport = transport
        self._stall_timeout = stall_timeout
        self.keeps_alive = False
        # One lock. `_work` wakes the thread, `_settled` those who wait for it.
        lock = threading.Lock()
        self._work, self._settled = threading.Condition(lock), threading.Condition(lock)
        self._waiting: deque[_Entry] = deque()
        self._in_flight: deque[_Entry] = deque()
        self._bytes = 0
        # The number of the first fact that is not acknowledged.
        self._number = 0
        self._counters = Counters()
        # Losses that `flush` has not reported yet.
        self._rejected: list[RejectedFact] = []
        self._reported_drops = 0
        # When the server last settled a fact or, if later, when the queue began to fill.
        self._progress_at = time.monotonic()
        self._failure = "it has not answered yet"
        self._refusal: Problem | None = None
        self._is_closed = False
        self._has_ended = False
        self._thread: threading.Thread | None = None

    # The side of the producer.

    def resume(self) -> int:
        """Asks the server which number comes next, and continues there. Must precede the first fact."""
        attempt, deadline = 0, time.monotonic() + self._stall_timeout
        while not isinstance(expected := self._transport.expected(), int):
            if isinstance(expected, (Refused, BodyRejected)):
                raise expected.problem
            why, after = (expected.why, expected.after) if isinstance(expected, Retry) else (str(expected), 0.0)
            if time.monotonic() > deadline:
                raise Unreachable(0, why)
            time.sleep(delay(attempt, after))
            attempt += 1
        with self._work:
            if self._counters.published:
                raise RuntimeError("resume() comes before the first fact: the facts after it are numbered already")
            self._number = expected
        return expected

    def put(self, text: bytes, source: str = "agentui", *, waits: bool = True) -> bool:
        """Adds a fact. Returns whether it is in the queue; else it is lost and counted.

        Waits while the queue is full, at most until the stall timeout.
        """
        with self._work:
            self._count(published=1)
            if self._waits_for_room(len(text), waits):
                if not self._waiting and not self._in_flight:
                    self._progress_at = time.monotonic()
                self._waiting.append(_Entry(text, source))
                self._bytes += len(text)
                self._work.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="proscenium-publisher", daemon=True)
                    self._thread.start()
                return True
            self._count(dropped=1)
            return False

    @property
    def is_full(self) -> bool:
        return self._is_full(1)

    def wait_for_room(self) -> None:
        """Waits until the queue is not full, at most until the stall timeout."""
        with self._work:
            self._waits_for_room(1, waits=True)

    def loss(self) -> ProsceniumError:
        """Says why `put` lost a fact."""
        with self._work:
            if self._is_closed and not self._refusal:
                return ProsceniumError("the producer is closed")
            return self._refusal or Unreachable(self._counters.waiting, self._failure, self._counters.dropped)

    def flush(self) -> None:
        """Waits until all facts so far are durable.

        Raises `Unreachable` after the stall timeout without progress, `Rejected` for facts that the server rejected
        since the last call, and `Problem` if the server refuses this producer.
        """
        with self._settled:
            target = self._counters.published
            while self._settled_count() < target:
                left = self._progress_at + self._stall_timeout - time.monotonic()
                if left <= 0 and not self._has_ended:
                    raise Unreachable(self._counters.waiting, self._failure)
                self._settled.wait(max(left, 0.01))
            if self._refusal:
                raise self._refusal
            if lost := self._counters.dropped - self._reported_drops:
                self._reported_drops += lost
                raise Unreachable(self._counters.waiting, self._failure, lost)
            if self._rejected:
                rejected, self._rejected = self._rejected, []
                raise Rejected(rejected)

    def close(self) -> None:
        """Accepts no more facts, and flushes. Facts that are not durable after the stall timeout are lost."""
        with self._work:
            self._is_closed = True
            self._work.notify()
        try:
            self.flush()
        finally:
            if self._thread is None:
                self._transport.close()

    @property
    def counters(self) -> Counters:
        return self._counters

    def _is_full(self, size: int) -> bool:
        facts = len(self._waiting) + len(self._in_flight)
        return facts >= QUEUE_FACTS_MAX or (facts > 0 and self._bytes + size > QUEUE_BYTES_MAX)

    def _waits_for_room(self, size: int, waits: bool) -> bool:
        while not self._is_closed and not self._refusal and self._is_full(size):
            left = self._progress_at + self._stall_timeout - time.monotonic()
            if not waits or left <= 0:
                return False
            self._settled.wait(left)
        return not self._is_closed and not self._refusal

    def _settled_count(self) -> int:
        return self._counters.published - self._counters.waiting

    def _count(
        self, *, published: int = 0, acknowledged: int = 0, repeated: int = 0, rejected: int = 0, dropped: int = 0
    ) -> None:
        was = self._counters
        waiting = was.waiting + published - acknowledged - rejected - dropped
        self._counters = replace(
            was,
            published=was.published + published,
            acknowledged=was.acknowledged + acknowledged,
            repeated=was.repeated + repeated,
            rejected=was.rejected + rejected,
            dropped=was.dropped + dropped,
            waiting=waiting,
        )

    # The side of the thread.

    def _take(self, source: str, facts_max: int) -> list[bytes]:
        """Moves waiting facts of this source into flight: one chunk at most."""
        lines: list[bytes] = []
        size = 0
        with self._work:
            while self._waiting and len(lines) < facts_max and size < CHUNK_BYTES and self._waiting[0].source == source:
                entry = self._waiting.popleft()
                self._in_flight.append(entry)
                lines.append(entry.text)
                size += len(entry.text)
        return lines

    def _run(self) -> None:
        attempt, facts_max = 0, BODY_FACTS_MAX
        try:
            while (source := self._next_source()) is not None:
                if not source:
                    self._transport.keep_alive()
                    continue
                body = _Body(self, source, facts_max)
                outcome = self._transport.send(source, self._number, body)
                facts_max = (
                    max(1, body.taken // 2) if isinstance(outcome, BodyRejected) else min(BODY_FACTS_MAX, facts_max * 2)
                )
                wait = self._settle(outcome, attempt)
                attempt = 0 if wait is None else attempt + 1
                if wait is not None:
                    time.sleep(wait)
        except BaseException as error:
            logger.exception("the publisher's thread has failed; its facts are lost")
            self._failure = repr(error)
            raise
        finally:
            self._end()

    def _next_source(self) -> str | None:
        """Waits for a fact, and returns its source.

        Empty: a sign of life is due. `None`: the queue is closed and empty, or is given up.
        """
        with self._work:
            while not self._waiting and not self._is_closed and not self._refusal:
                if not self._work.wait(KEEP_ALIVE_S) and self.keeps_alive:
                    return ""
            is_given_up = self._refusal or (
                self._is_closed and time.monotonic() > self._progress_at + self._stall_timeout
            )
            return self._waiting[0].source if self._waiting and not is_given_up else None

    def _settle(self, outcome: Outcome, attempt: int) -> float | None:
        """Applies an outcome to the facts in flight. Returns how long to wait before the next request."""
        with self._work:
            match outcome:
                case Acknowledged(repeated):
                    self._count(repeated=repeated)
                    self._acknowledge(len(self._in_flight))
                case FactRejected(index, problem):
                    self._acknowledge(index)
                    self._reject(problem)
                case BodyRejected(problem) if len(self._in_flight) == 1:
                    self._reject(problem)
                case Refused(problem):
                    logger.error("the server refuses this producer: %s", problem)
                    self._refusal = problem
                case Gap(expected) if expected < self._number:
                    # The run was erased, or the store is in memory. The acknowledged facts are gone for good.
                    logger.warning("the server lost facts %d to %d", expected, self._number - 1)
                    self._number = expected
                case Gap(expected):
                    outcome = Retry(f"it expects fact {expected} after {self._number}")
            # The next request begins with the facts that are not settled.
            self._waiting.extendleft(reversed(self._in_flight))
            self._in_flight.clear()
            self._settled.notify_all()
            if not isinstance(outcome, Retry):
                return None
            if attempt == 0:
                logger.warning("facts do not reach the server, which is tried again: %s", outcome.why)
            self._failure = outcome.why
            return delay(attempt, outcome.after)

    def _acknowledge(self, facts: int) -> None:
        placeholders = 0
        for _ in range(facts):
            entry = self._in_flight.popleft()
            self._bytes -= len(entry.text)
            placeholders += entry.is_placeholder
        self._number += facts
        self._count(acknowledged=facts - placeholders)
        self._progress_at = time.monotonic()

    def _reject(self, problem: Problem) -> None:
        """Replaces the first fact in flight by a placeholder under its number, so that all others keep theirs."""
        entry = self._in_flight.popleft()
        self._bytes -= len(entry.text)
        self._progress_at = time.monotonic()
        if entry.is_placeholder:
            return  # The next fact takes the number.
        text = entry.text.decode()
        logger.error("the server rejected fact %d: %s", self._number, problem)
        if len(self._rejected) < REJECTED_MAX:
            self._rejected.append(RejectedFact(self._number, text, problem))
        payload = {"kind": "report_refused", "message": problem.detail[:300], "bytes": len(entry.text)}
        fact = to_json({"type": "diagnostic.changed", "audience": "internal", "payload": payload})
        self._in_flight.appendleft(_Entry(fact, "agentui", is_placeholder=True))
        self._bytes += len(fact)
        self._count(rejected=1)

    def _end(self) -> None:
        self._transport.close()
        with self._work:
            self._is_closed = self._has_ended = True
            left = [*self._in_flight, *self._waiting]
            self._in_flight.clear()
            self._waiting.clear()
            self._count(dropped=sum(not entry.is_placeholder for entry in left))
            self._settled.notify_all()


def delay(attempt: int, after: float) -> float:
    """The wait after a failed attempt. Half of it is random, so that producers do not return together."""
    backoff: float = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(attempt, 10))
    return min(after, RETRY_AFTER_MAX_S) + backoff * random.uniform(0.5, 1.0)
