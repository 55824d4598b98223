"""The client of Proscenium for agents in Python: report runs and tools, and take the decisions of users."""

from . import langgraph, openai, vocabulary
from ._publisher import Counters
from .calls import ProgressStatus, ToolCall, current_call
from .controls import Control, worker
from .decisions import (
    AttentionItem,
    DecidedBy,
    Decision,
    Link,
    OpenLink,
    Quorum,
    WaitStep,
    attention,
    decisions,
    links,
    make_link,
    revoke_link,
)
from .errors import Problem, ProsceniumError, Rejected, RejectedFact, Unreachable
from .observing import observe
from .producer import Producer, Recording
from .reporter import Reporter
from .run import ActionKind, ActionOption, Message, Outcome, Run, current_run
from .vocabulary import Audience, CallPayload, ControlName, EventType, Fact, WordsPayload

__all__ = [
    "ActionKind",
    "ActionOption",
    "AttentionItem",
    "Audience",
    "CallPayload",
    "Control",
    "ControlName",
    "Counters",
    "DecidedBy",
    "Decision",
    "EventType",
    "Fact",
    "Link",
    "Message",
    "OpenLink",
    "Outcome",
    "Problem",
    "Producer",
    "ProgressStatus",
    "ProsceniumError",
    "Quorum",
    "Recording",
    "Rejected",
    "RejectedFact",
    "Reporter",
    "Run",
    "ToolCall",
    "Unreachable",
    "WaitStep",
    "WordsPayload",
    "attention",
    "current_call",
    "current_run",
    "decisions",
    "langgraph",
    "links",
    "make_link",
    "observe",
    "openai",
    "revoke_link",
    "vocabulary",
    "worker",
]
