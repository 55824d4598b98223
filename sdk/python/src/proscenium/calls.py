"""A tool's own reports: its progress, its activities, and its start and end."""

import contextvars
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Literal

from .vocabulary import Audience, CallPayload, Fact

ProgressStatus = Literal["pending", "running", "done", "failed", "cancelled"]
TOOL_CALL_PROGRESS_ACTIVITY_TYPE = "tool-call-progress"
TOOL_CALL_PROGRESS_SCHEMA = "tool-call-progress.v1"

# Takes a fact, and returns whether it is on its way. `waits`: whether to wait while the queue is full.
Sink = Callable[[Fact, bool], bool]

_current_call: contextvars.ContextVar["ToolCall | None"] = contextvars.ContextVar("proscenium_call", default=None)


def current_call() -> "ToolCall":
    """Returns the call that runs here; without one, a call whose methods do nothing."""
    return _current_call.get() or ToolCall(None, "", "")


def new_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"


def fact_now(fact: Fact) -> Fact:
    """Stamps a fact with the time of its report: it may wait long for the server."""
    fact["timestamp"] = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return fact


class ToolCall:
    """Reports one call of a tool.

    No method fails the tool: a report that does not reach the server is counted, and `flush` of its run or reporter
    says so. As a context manager it also reports the start and the end of the call, and is the `current_call`.
    """

    def __init__(self, sink: Sink | None, call_id: str, tool_name: str, parent: str | None = None):
        self._sink = sink
        self.call_id, self.tool_name, self.parent = call_id, tool_name, parent
        self.input: Any = None
        # The first report of a call decides its audience.
        self._has_begun = False
        self._status: ProgressStatus | None = None
        self._has_ended = False

    def child(self, call_id: str, tool_name: str) -> "ToolCall":
        """Returns a call that this call makes."""
        return ToolCall(self._sink, call_id, tool_name, self.call_id or None)

    def report_progress(
        self,
        status: ProgressStatus,
        message: str | None = None,
        progress: float | None = None,
        *,
        loaded: int | None = None,
        total: int | None = None,
    ) -> None:
        """Reports progress: a fraction from 0.0 to 1.0 (`None`: unknown), and counts in the tool's own unit."""
        state: dict[str, Any] = {
            "schema": TOOL_CALL_PROGRESS_SCHEMA,
            "node_id": self.call_id,
            "call_id": self.call_id,
            "tool_name": self.tool_name,
            "status": status,
        }
        members = {"progress": progress, "loaded": loaded, "total": total, "message": message}
        members |= {"parent_node_id": self.parent, "parent_call_id": self.parent}
        state |= {name: value for name, value in members.items() if value is not None}
        payload: CallPayload = {
            "activityType": TOOL_CALL_PROGRESS_ACTIVITY_TYPE,
            "content": state,
            "replace": True,
        }
        if self._put({"type": "tool.progress", "audience": "user", "payload": payload}):
            self._has_begun, self._status = True, status

    def report_activity(self, activity_type: str, content: Any) -> None:
        """Reports the whole content of the tool's own activity. Plain text is valid content."""
        self._report_activity({"activityType": activity_type, "content": content, "replace": True})

    def report_activity_delta(self, activity_type: str, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Reports a change of an activity, as a JSON Patch (RFC 6902). A single operation needs no list."""
        operations = [patch] if isinstance(patch, Mapping) else list(patch)
        self._report_activity({"activityType": activity_type, "patch": operations})

    def _report_activity(self, payload: CallPayload) -> None:
        # A compacted log needs the history of an activity. Progress is useful only while the run is live.
        self._put({"type": "tool.progress", "audience": "user", "persistence": "snapshot", "payload": payload})

    def emit(self, message: str, percent: float | None = None, *, audience: Audience = "internal") -> None:
        """Emits a progress event for logs and telemetry. Never waits; a full queue drops it."""
        payload: dict[str, Any] = {"toolName": self.tool_name, "message": message}
        if percent is not None:
            payload |= {"percent": percent, "progress": min(max(percent / 100, 0.0), 1.0)}
        fact: Fact = {"type": "tool.progress", "audience": audience, "payload": payload}
        if self._has_begun:
            # With the last status, so that the event does not reopen a completed call.
            payload |= {"status": self._status} if self._status else {}
            self._put(fact, waits=False)
        else:
            fact["refs"] = {"toolCallId": self.call_id}
            self._send(fact, waits=False)

    def output(self, text: str, channel: str | None = None) -> None:
        """Streams output of the call. It is internal, unless the result says otherwise."""
        payload: CallPayload = {"text": text}
        if channel:
            payload["channel"] = channel
        self._put({"type": "tool.output.delta", "payload": payload})

    def started(self, input: Any = None) -> None:
        """Reports the start of the call, if no runtime does."""
        payload: CallPayload = {"toolName": self.tool_name}
        if input is not None:
            payload["input"] = input
        if self.parent is not None:
            payload["parentToolCallId"] = self.parent
        if self._put({"type": "tool.started", "payload": payload}):
            self._has_begun = True

    def result(self, output: Any = None, *, audience: Audience = "internal") -> None:
        """Reports the result of the call, if no runtime does. Every reader of the start sees the end; the output is for
        `audience`."""
        self._has_ended = True
        payload: CallPayload = {"toolName": self.tool_name}
        if output is not None:
            payload["output"] = output
        self._put({"type": "tool.result", "audience": audience, "payload": payload})

    def failed(self, message: str, code: str | None = None) -> None:
        """Reports the failure of the call, if no runtime does. Every reader of the start sees it."""
        self._has_ended = True
        error = {"message": message, **({"code": code} if code else {})}
        self._put({"type": "tool.failed", "payload": {"toolName": self.tool_name, "error": error}})

    def __enter__(self) -> "ToolCall":
        self._outer = _current_call.get()
        _current_call.set(self)
        if not self._has_begun:
            self.started(self.input)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _current_call.set(self._outer)
        if self._has_ended:
            return
        if error is None:
            self.result()
        else:
            self.failed(str(error) or type(error).__name__, type(error).__name__)

    def _put(self, fact: Fact, waits: bool = True) -> bool:
        fact["toolCallId"] = self.call_id
        return self._send(fact, waits)

    def _send(self, fact: Fact, waits: bool) -> bool:
        return self._sink is not None and self._sink(fact_now(fact), waits)
