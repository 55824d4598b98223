"""The client of Proscenium for agents in Python: report runs and tools, and take the decisions of users."""

from . import langgraph, openai
from .calls import ProgressStatus, ToolCall, current_call
from .errors import Problem, ProsceniumError, Rejected, RejectedFact, Unreachable
from .observe import observe
from .producer import Producer, Recording
from ._publisher import Counters
from .reporter import Reporter
from .run import ActionKind, Message, Outcome, Run, current_run
from .vocabulary import Audience, ControlName, EventType, Fact
from .worker import Control, worker

__all__ = [
    "ActionKind",
    "Audience",
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
    "current_call",
    "current_run",
    "langgraph",
    "observe",
    "openai",
    "worker",
]
