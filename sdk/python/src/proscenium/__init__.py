"""The client of Proscenium for agents in Python: report runs and tools, and take the decisions of users."""

from . import langgraph, openai, vocabulary
from ._publisher import Counters
from .calls import ProgressStatus, ToolCall, current_call
from .controls import Control, worker
from .errors import Problem, ProsceniumError, Rejected, RejectedFact, Unreachable
from .observing import observe
from .producer import Producer, Recording
from .reporter import Reporter
from .run import ActionKind, ActionOption, Message, Outcome, Run, current_run
from .vocabulary import Audience, CallPayload, ControlName, EventType, Fact, WordsPayload

__all__ = [
    "ActionKind",
    "ActionOption",
    "Audience",
    "CallPayload",
    "Control",
    "ControlName",
    "Counters",
    "EventType",
    "Fact",
    "Message",
    "Outcome",
    "Problem",
    "Producer",
    "ProgressStatus",
    "ProsceniumError",
    "Recording",
    "Rejected",
    "RejectedFact",
    "Reporter",
    "Run",
    "ToolCall",
    "Unreachable",
    "WordsPayload",
    "current_call",
    "current_run",
    "langgraph",
    "observe",
    "openai",
    "vocabulary",
    "worker",
]
