//! Gates: required actions that wait for a decision.
//!
//! A gate does not name its call. Its opener may put the call's id, checksum or tool into the payload; the functional
//! bus then identifies the call. Otherwise the gate belongs to the only running execution, which only telemetry
//! reports. The wire does not contain the answer, only the gate's result.

use super::calls::{Call, Execution};
use super::{EventHandler, TurnRunner};
use crate::Fact;
use crate::bounded::keyed;
use crate::digest::hash_of;
use crate::members::{take_checked_id, take_members, take_question, take_text, take_time};
use crate::turn::resolved;
use proscenium_model::{ActionId, Draft, EventType, Owner, Phase, ToolCallId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An open gate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Gate {
    id: ActionId,
    call: Option<ToolCallId>,
    is_approval: bool,
}

keyed! { Gate: ActionId = id; }

impl TurnRunner {
    /// Returns the call of a gate, if it is unambiguous.
    fn call_of(&self, opener: &Fact) -> Option<ToolCallId> {
        let said = |member: &str| opener.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(id) = said("toolCallId") {
            return Some(self.call_named(id));
        }
        let (checksum, tool) = (said("callId").or(said("checksum")).map(hash_of), said("tool").map(hash_of));
        let is_meant = |call: &&Call| {
            checksum.is_none_or(|checksum| call.checksum == Some(checksum)) && tool.is_none_or(|tool| call.tool == Some(tool))
        };
        let meant: Vec<&Call> = self.calls.iter().filter(is_meant).collect();
        let is_named = checksum.is_some() || tool.is_some();
        let running: Vec<&&Call> = meant.iter().filter(|call| call.execution == Execution::Running).collect();
        match (meant.as_slice(), running.as_slice()) {
            ([call], _) if is_named => Some(call.id.clone()),
            (_, [call]) => Some(call.id.clone()),
            _ => None,
        }
    }

    /// Removes the open turn's id. The id of another turn stays and is carried.
    fn drop_turn(&self, payload: &mut Fact) {
        if payload.get("turnId").and_then(Value::as_str) == self.turn.as_ref().map(TurnId::as_str) {
            payload.shift_remove("turnId");
        }
    }
}

const fn owner(is_approval: bool) -> Owner {
    if is_approval { Owner::Policy } else { Owner::Action }
}

impl EventHandler<'_> {
    pub(super) fn turn_gate_open(&mut self, mut payload: Fact) {
        self.memory.drop_turn(&mut payload);
        let id: ActionId = take_checked_id(&mut payload, "id");
        let reason = take_text(&mut payload, "reason");
        let kind = match reason.as_deref() {
            Some("tool_approval") => "tool_approval",
            Some("clarification") => "clarification",
            _ => "structured_input",
        };
        let is_approval = kind == "tool_approval";
        let mut opener = take_members(&mut payload, "payload", "value");
        let call = self.memory.call_of(&opener);
        if payload.get("isSettled") == Some(&Value::Bool(false)) {
            payload.shift_remove("isSettled");
        }
        let draft = Draft::new(EventType::ActionRequired).with("kind", kind).with_some("reason", reason);
        let draft = draft.with_moved(&mut opener, &[("tool", "toolName"), ("args", "input")]).with_owner(owner(is_approval));
        let mut draft =
            draft.with_timestamp(take_time(&mut payload, "createdAt")).with_action(id.clone()).with_call(call.clone());
        take_question(&mut draft, &mut opener);
        if opener.get("toolCallId").is_some_and(Value::is_string) && call.is_some() {
            opener.shift_remove("toolCallId");
        }
        self.memory.gates.add(Gate { id, call, is_approval });
        self.push_carrying(draft.with_some("payload", (!opener.is_empty()).then_some(opener)), payload);
    }

    pub(super) fn turn_gate_closed(&mut self, mut payload: Fact) {
        self.memory.drop_turn(&mut payload);
        let id: ActionId = take_checked_id(&mut payload, "gateId");
        let gate = self.memory.gates.take(&id);
        let is_approval = gate.as_ref().is_some_and(|gate| gate.is_approval);
        let result = take_text(&mut payload, "result");
        let (outcome, phase) = match result.as_deref() {
            Some("resolved") if is_approval => ("approved", Phase::Acting),
            Some("resolved") => ("answered", Phase::Acting),
            Some("rejected") => ("rejected", Phase::Acting),
            Some("aborted") => ("cancelled", Phase::Cancelled),
            Some("timeout") => ("expired", Phase::Failed),
            _ => ("unknown", Phase::Acting),
        };
        // An aborted gate means an aborted turn: a later failure of its tool is a consequence.
        self.memory.is_aborting |= outcome == "cancelled";
        let draft = resolved(id, gate.and_then(|gate| gate.call), outcome, owner(is_approval)).with_phase(phase);
        let draft = draft.with_timestamp(take_time(&mut payload, "settledAt")).with_some("result", result);
        self.push_carrying(draft, payload);
    }
}
