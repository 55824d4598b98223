"""A run that this process reports."""

import contextvars
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, TypedDict

from .calls import ToolCall, _current_call, fact_now, new_id
from .errors import ProsceniumError
from .producer import Producer
from .vocabulary import Fact, Phase

logger = logging.getLogger("proscenium")
_current_run: contextvars.ContextVar["Run | None"] = contextvars.ContextVar("proscenium_run", default=None)

ActionKind = Literal[
    "tool_approval",
    "permission_grant",
    "delegated_permission",
    "plan_decision",
    "teammate_plan_decision",
    "structured_input",
    "clarification",
    "credential_request",
    "artifact_review",
]
Outcome = Literal["approved", "rejected", "answered", "cancelled", "expired", "superseded"]


class _NamedOption(TypedDict):
    optionId: str
    label: str


class ActionOption(_NamedOption, total=False):
    """A choice that an action offers.

    `kind` says what it does: `allow_once`, `allow_always`, `reject_once`, `reject_always`; no label does. `effect` and
    `width` say it where no kind does.
    """

    kind: str
    description: str
    effect: Literal["allow", "reject", "answer"]
    width: Literal["once", "turn", "session", "always", "unknown"]


def current_run() -> "Run | None":
    """Returns the run whose `with` block surrounds the caller."""
    return _current_run.get()


class Run(Producer):
    """A run, reported by a `with` block. `Producer` describes the options.

    The first fact of the agent is preceded by `run.started`. The end of the block publishes `run.finished`, or
    `run.failed` after an exception, and waits until everything is durable. A run with an unanswered action stays open
    instead. While the block runs, silence does not make the run stale.
    """

    _is_accepted = False
    _has_started = False
    _has_ended = False
    _pending: frozenset[str] = frozenset()
    _outer: "Run | None" = None

    def continuing(self) -> "Run":
        """Returns this run, for a run that has started before: another `run.started` would be another attempt."""
        self._has_started = True
        return self

    def resume(self) -> int:
        """As `Producer.resume`, for a run that only publishes facts. Its own `run.started` does not count."""
        expected = super().resume()
        if self._has_started or expected == 0:
            return expected
        self._has_started = True
        return expected - 1

    # Facts

    def publish(self, *facts: Fact) -> None:
        """Publishes native facts."""
        self._start()
        for fact in facts:
            self._send(fact, "agentui")

    def forward(self, source: str, *facts: Mapping[str, Any], ends: bool = False) -> None:
        """Publishes facts of another vocabulary, whose source starts the run. `ends`: the facts also end it."""
        self._has_started = True
        self._has_ended = self._has_ended or ends
        for fact in facts:
            self._send(fact, source)

    def message(self, message_id: str | None = None) -> "Message":
        """Returns a message of the agent, to stream its text."""
        return Message(self, message_id or new_id("message"))

    def user_message(self, text: str, message_id: str | None = None) -> None:
        """Publishes a message of the user. It accepts the run but does not start it: a forwarded source does that."""
        if not self._has_started and not self._is_accepted:
            self.status("accepted")
        payload = {"role": "user", "text": text}
        fact: Fact = {"type": "text.final", "messageId": message_id or new_id("message"), "payload": payload}
        self._send(fact_now(fact), "agentui")

    def tool(self, tool_name: str, input: Any = None, *, call_id: str | None = None) -> ToolCall:
        """Returns a call of a tool that this process runs. Its `with` block reports the start and the end."""
        self._start()
        call = self.call(call_id or new_id("call"), tool_name)
        above = _current_call.get()
        call.parent, call.input = above.call_id if above else None, input
        return call

    def status(self, phase: Phase, message: str | None = None) -> None:
        """Publishes a status of the run. `accepted` precedes its start."""
        fact: Fact = {"type": "run.status", "phase": phase, "payload": {"message": message} if message else {}}
        if phase == "accepted":
            self._is_accepted = True
            self._send(fact_now(fact), "agentui")
        else:
            self._publish(fact)

    def require_action(
        self,
        kind: ActionKind,
        message: str | None = None,
        *,
        action_id: str | None = None,
        tool_call_id: str | None = None,
        **payload: Any,
    ) -> str:
        """Asks a person, and returns the action's id. The run waits until `resolve_action`, also after its block.

        `payload` has further members: `risk`, `options` (a list of `ActionOption`), `responseSchema`, `expiresAt`, …
        """
        action_id = action_id or new_id("action")
        members = {"kind": kind, **({"message": message} if message else {}), **payload}
        fact: Fact = {"type": "action.required", "actionId": action_id, "payload": members}
        if tool_call_id:
            fact["toolCallId"] = tool_call_id
        self._publish(fact)
        self._pending |= {action_id}
        return action_id

    def resolve_action(self, action_id: str, outcome: Outcome, value: Any = None) -> None:
        """Reports the outcome of an action."""
        payload = {"outcome": outcome, **({} if value is None else {"value": value})}
        self._publish({"type": "action.resolved", "actionId": action_id, "payload": payload})
        self._pending -= {action_id}

    def suspend(self) -> None:
        """Leaves the run open when its block ends: something outside this process continues it."""
        self._has_ended = True

    def finish(self, result: Any = None, *, phase: Phase = "completed") -> None:
        """Ends the run. The end of the block does it otherwise."""
        self._publish({"type": "run.finished", "phase": phase, "payload": {} if result is None else {"result": result}})
        self._has_ended = True

    def fail(self, message: str, code: str | None = None) -> None:
        """Ends the run as failed. An exception that leaves the block does it otherwise."""
        error = {"message": message, **({"code": code} if code else {})}
        self._publish({"type": "run.failed", "payload": {"error": error}})
        self._has_ended = True

    def _publish(self, fact: Fact) -> None:
        self.publish(fact_now(fact))

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._report(fact_now({"type": "run.started"}))

    # The block

    def __enter__(self) -> "Run":
        self._outer = _current_run.get()
        _current_run.set(self)
        if self._publisher:
            self._publisher.keeps_alive = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(error)
        try:
            self.close()
        except ProsceniumError as loss:
            self._lose(loss, error)

    async def __aenter__(self) -> "Run":
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(error)
        try:
            await self.aclose()
        except ProsceniumError as loss:
            self._lose(loss, error)

    def _lose(self, loss: ProsceniumError, error: BaseException | None) -> None:
        """Raises the loss, unless the block has an error of its own."""
        if error is None:
            raise loss
        logger.error("the failure of run %s is not durable: %s", self.run_id, loss)

    def _leave(self, error: BaseException | None) -> None:
        # Not by a token, which is bound to a context: a framework may leave the block in another one.
        _current_run.set(self._outer)
        try:
            if error is None:
                if not self._has_ended and not self._pending:
                    self.finish()
            elif isinstance(error, Exception):
                self.fail(str(error) or type(error).__name__, type(error).__name__)
            else:
                # A cancelled task, or Ctrl-C.
                self.finish(phase="cancelled")
        except ProsceniumError:
            pass  # `close` raises it.


class Message:
    """A message of the agent. Its `with` block ends it."""

    def __init__(self, run: Run, message_id: str):
        self._run, self.message_id = run, message_id
        self._is_reasoning = False
        self._has_text = False

    def text(self, text: str) -> None:
        """Appends to the text."""
        self._end_reasoning()
        self._has_text = True
        self._publish({"type": "text.delta", "payload": {"text": text}})

    def reasoning(self, text: str) -> None:
        """Appends to the reasoning."""
        self._is_reasoning = True
        self._publish({"type": "reasoning.delta", "payload": {"text": text}})

    def close(self) -> None:
        """Ends the message."""
        self._end_reasoning()
        if self._has_text:
            self._has_text = False
            self._publish({"type": "text.final"})

    def _end_reasoning(self) -> None:
        if self._is_reasoning:
            self._is_reasoning = False
            self._publish({"type": "reasoning.summary"})

    def _publish(self, fact: Fact) -> None:
        fact["messageId"] = self.message_id
        self._run._publish(fact)

    def __enter__(self) -> "Message":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A message that a failure cut off is not complete: the end of the run closes it.
        if error is None:
            self.close()
