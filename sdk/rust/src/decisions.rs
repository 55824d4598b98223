//! What waits for people, what they decided, and share links, as the server's pages of JSON have them.
//!
//! The library itself only reports. These types are for programs that read `GET /v1/attention`, `…/decisions` and
//! `/v1/links` with an HTTP client of their own. Times are RFC 3339 in UTC. Unknown members are ignored.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who decided, and by which face.
/// Only the server writes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedBy {
    /// The face, such as `page`, `ag-ui`, `rule` or `link`.
    pub via: String,
    /// When the server accepted the decision.
    pub at: String,
    /// The last envelope of the question that the person saw.
    pub seen: Option<u64>,
    /// The `sub` of the person's token.
    pub sub: Option<String>,
    /// The person's name.
    pub name: Option<String>,
    /// The person for whom the holder of the token decided.
    pub on_behalf_of: Option<String>,
    /// Whether it was another person, whom the token may not see.
    #[serde(default)]
    pub other: bool,
}

/// The approvals of an action that needs several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Quorum {
    /// The people who have approved.
    pub have: u64,
    /// The people who must approve.
    pub need: u64,
}

/// A step of a rule of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WaitStep {
    /// Its number among those of the action, from 1.
    pub step: u64,
    /// When the server did it.
    pub at: String,
}

/// A page of `GET /v1/attention`: the pending actions, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttentionPage {
    /// The actions of this page.
    pub items: Vec<AttentionItem>,
    /// All pending actions that have no decision under way.
    pub total: u64,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
}

/// A pending action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttentionItem {
    /// The action.
    pub action_id: String,
    /// The request in one line, for a person.
    pub title: String,
    /// What is decided, at most 2 KiB, without the bodies of diffs.
    /// `kind` says which further members it has.
    pub subject: Map<String, Value>,
    /// The agent that takes the decision.
    pub agent_id: String,
    /// When it was asked.
    pub asked_at: String,
    /// The session of the run.
    pub session_id: Option<String>,
    /// The run, unless a session itself asks.
    pub run_id: Option<String>,
    /// The risk, as the source states it.
    pub risk: Option<Value>,
    /// When the request ends.
    pub expires_at: Option<String>,
    /// `submitted` while a decision is under way.
    pub control: Option<String>,
    /// The approvals so far, of an action that needs several.
    pub quorum: Option<Quorum>,
    /// The last reminder.
    pub reminded: Option<WaitStep>,
    /// The last escalation.
    pub escalated: Option<WaitStep>,
}

/// A page of the decisions of a run or of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionsPage {
    /// The decisions of this page.
    pub decisions: Vec<Decision>,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
}

/// A question as it was shown, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The action.
    pub action_id: String,
    /// What was decided.
    pub subject: Map<String, Value>,
    /// The calls that it was about.
    pub call_ids: Vec<String>,
    /// The envelopes of the decision.
    pub sequences: DecisionSequences,
    /// The run, unless a session itself asked.
    pub run_id: Option<String>,
    /// The control that decided.
    pub control_id: Option<String>,
    /// Its name, such as `approve`.
    pub control: Option<String>,
    /// How the action ended; `None` until it is resolved.
    pub outcome: Option<String>,
    /// The request in one line.
    pub title: Option<Value>,
    /// The choices.
    pub options: Option<Vec<Value>>,
    /// Who decided.
    pub decided_by: Option<DecidedBy>,
    /// All who approved, of an action that needs several approvals.
    #[serde(default)]
    pub approvals: Vec<DecidedBy>,
    /// When it was first asked.
    pub asked_at: Option<String>,
    /// When it was decided.
    pub decided_at: Option<String>,
    /// The time between the two, in milliseconds.
    pub waited_ms: Option<u64>,
}

/// The envelopes of a decision, by their sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct DecisionSequences {
    /// The last request.
    pub asked: u64,
    /// The control that decided, else the resolution.
    pub decided: u64,
    /// What the person had seen.
    pub shown: Option<u64>,
    /// The resolution.
    pub resolved: Option<u64>,
}

/// A link to make: to one run or to one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkWanted {
    /// When the link ends.
    pub until: String,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The sequence of the run after which the link shows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// `control`: the link may decide one action, once, whose risk is stated and not high.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub can: Vec<String>,
}

/// A link that was made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Link {
    /// Its id, by which it is listed and revoked.
    pub id: String,
    /// The address to share, with the secret, which the server does not keep.
    pub url: String,
    /// When it ends.
    pub until: String,
}

/// A page of `GET /v1/links`: those that have not ended, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinksPage {
    /// The links of this page.
    pub links: Vec<OpenLink>,
    /// The `cursor` of the next page.
    pub next_cursor: Option<String>,
}

/// A link that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenLink {
    /// Its id.
    pub id: String,
    /// When it ends.
    pub until: String,
    /// When it was made.
    pub created_at: String,
    /// What it permits: `read`, and `control` for one decision.
    pub can: Vec<String>,
    /// How often its secret was exchanged.
    pub uses: u64,
    /// The run that it leads to.
    pub run_id: Option<String>,
    /// The session that it leads to.
    pub session_id: Option<String>,
    /// The sequence of the run after which it shows nothing.
    pub at: Option<u64>,
    /// When its secret was exchanged last.
    pub used_at: Option<String>,
    /// The `sub` of its maker's token.
    pub sub: Option<String>,
    /// The decision that it made.
    pub decided: Option<LinkDecision>,
}

/// The decision that a link made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkDecision {
    /// The action.
    pub action_id: String,
    /// The control.
    pub control_id: String,
}
