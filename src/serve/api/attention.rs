//! What waits for a person: the pending actions of all sessions.

use crate::log::pending_actions::{ActionPlace, OpenAction, PendingActions};
use crate::log::{LogId, StoreError};
use crate::model::{AgentId, Audience, OwnerId, Sequence, SessionId};
use crate::projection::action;
use crate::projection::activity_set::Activity;
use crate::projection::members::TypedContent;
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Enumerated};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, id_of, quoted};
use crate::serve::http::response::{echo, no_store_json};
use axum::extract::State;
use axum::response::Response;
use data_encoding::BASE64URL_NOPAD;
use http::Uri;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Items per page: default and maximum. Each item reads the activities of its log.
const ITEMS_DEFAULT: u64 = 50;
const ITEMS_MAX: u64 = 200;
/// Pending actions that one step examines, and that one request examines.
const SCAN_STEP: usize = 1024;
const ACTIONS_SCANNED_MAX: usize = 64 * SCAN_STEP;
/// The largest subject of an item, in bytes of JSON.
const SUBJECT_BYTES_MAX: usize = 2048;
/// The lengths to which the texts of a subject are cut until it fits, in characters, and the entries of its lists.
const SUBJECT_CUTS: [(usize, usize); 3] = [(1024, 16), (256, 8), (64, 4)];
/// `GET /v1/attention`: the pending actions that the token may see, oldest first.
pub async fn attention(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let limit = query.number("limit")?.unwrap_or(ITEMS_DEFAULT).clamp(1, ITEMS_MAX);
    let after = query.get("cursor").map(parse_place).transpose()?;
    let filter = AttentionFilter::from_query(&query, authorization)?;
    let (page, next) = filter.page(&app, after, usize::try_from(limit).unwrap_or(1)).await;
    let items: Vec<Value> = filter.items(&app, page).await?.into_iter().map(|(_, item)| item).collect();
    let total = filter.total(&app).await;
    let next = next.map(|place| place_text(&place));
    Ok(no_store_json(echo(&query, json!({ "items": items, "total": total, "nextCursor": next }))))
}

/// The pending actions that a request asks for.
#[derive(Clone)]
pub(super) struct AttentionFilter {
    audience: Audience,
    agent: Option<AgentId>,
    authorization: Authorization,
}

impl AttentionFilter {
    pub(super) fn from_query(query: &Query, authorization: Authorization) -> Result<Self, Problem> {
        let agent = query.get("agentId").map(|agent| id_of("agentId", agent)).transpose()?;
        Ok(Self { audience: query.audience()?, agent, authorization })
    }

    /// Whether the client asks for an action and may see it.
    pub(super) fn takes(&self, asked: &OpenAction) -> bool {
        self.audience.admits(asked.audience)
            && self.agent.as_ref().is_none_or(|agent| *agent == asked.agent)
            && self.authorization.has_log(&asked.log, asked.session.as_ref(), asked.owner.as_ref())
    }

    /// The logs to look at. `None`: all.
    fn logs(&self, pending: &PendingActions) -> Option<BTreeSet<LogId>> {
        let Enumerated { owners, sessions, runs } = self.authorization.enumerated()?;
        Some(pending.logs_among(&owners, &sessions, &runs?))
    }

    /// A page of actions, and the place after which the next one begins.
    pub(super) async fn page(
        &self,
        app: &App,
        after: Option<ActionPlace>,
        limit: usize,
    ) -> (Vec<Arc<OpenAction>>, Option<ActionPlace>) {
        let (logs, filter) = (app.logs.clone(), self.clone());
        app.logs.work(move |_| filter.find(logs.pending_actions(), after, limit)).await
    }

    fn find(
        &self,
        pending: &PendingActions,
        mut after: Option<ActionPlace>,
        limit: usize,
    ) -> (Vec<Arc<OpenAction>>, Option<ActionPlace>) {
        if let Some(logs) = self.logs(pending) {
            let asked = logs.iter().flat_map(|log| pending.of_log(log)).map(|asked| (asked.place(), asked));
            let later = asked.filter(|(place, asked)| after.as_ref().is_none_or(|after| place > after) && self.takes(asked));
            let later: BTreeMap<_, _> = later.collect();
            let next = later.keys().nth(limit - 1).filter(|_| later.len() > limit).cloned();
            return (later.into_values().take(limit).collect(), next);
        }
        let mut page: Vec<Arc<OpenAction>> = Vec::new();
        // The place of an action that the client may not see would name its log. So a restricted client gets the places of
        // its own, however many it takes to look at.
        let steps_max = if self.authorization.is_unrestricted() { ACTIONS_SCANNED_MAX / SCAN_STEP } else { usize::MAX };
        for _ in 0..steps_max {
            let step = pending.list(after.as_ref(), SCAN_STEP);
            let is_last = step.len() < SCAN_STEP;
            after = step.last().map(|asked| asked.place());
            for asked in step.into_iter().filter(|asked| self.takes(asked)) {
                if page.len() == limit {
                    let next = page.last().map(|last| last.place());
                    return (page, next);
                }
                page.push(asked);
            }
            if is_last {
                return (page, None);
            }
        }
        (page, after)
    }

    /// The number of actions without a decision under way.
    async fn total(&self, app: &App) -> u64 {
        if self.agent.is_none() && self.authorization.is_unrestricted() {
            return app.logs.pending_actions().unanswered(self.audience);
        }
        let (logs, filter) = (app.logs.clone(), self.clone());
        app.logs
            .work(move |_| {
                let covers = |log: &LogId, session: Option<&SessionId>, owner: Option<&OwnerId>| {
                    filter.authorization.has_log(log, session, owner)
                };
                let pending = logs.pending_actions();
                pending.unanswered_where(filter.audience, filter.agent.as_ref(), filter.logs(pending).as_ref(), covers)
            })
            .await
    }

    /// The items of actions. An action that was resolved meanwhile is left out.
    pub(super) async fn items(&self, app: &App, of: Vec<Arc<OpenAction>>) -> Result<Vec<(Arc<OpenAction>, Value)>, StoreError> {
        let mut shown: HashMap<LogId, HashMap<Box<str>, Activity>> = HashMap::new();
        for asked in &of {
            if !shown.contains_key(&asked.log) {
                let view = app.feed.activities(&asked.log, self.audience, None).await?;
                let activities = view.iter().flat_map(crate::projection::View::activities);
                let actions = activities.filter(|activity| action::is_pending(activity));
                shown.insert(asked.log.clone(), actions.map(|action| (action.id.clone(), action.clone())).collect());
            }
        }
        let item = |asked: Arc<OpenAction>| {
            let item = item(&asked, shown.get(&asked.log)?.get(asked.action.as_str())?);
            Some((asked, item))
        };
        Ok(of.into_iter().filter_map(item).collect())
    }
}

fn item(asked: &OpenAction, shown: &Activity) -> Value {
    let content = &shown.content;
    let mut item = Map::new();
    item.extend(asked.session.as_ref().map(|session| ("sessionId".to_owned(), session.as_str().into())));
    if let LogId::Run(run) = &asked.log {
        item.insert("runId".into(), run.as_str().into());
    }
    item.insert("actionId".into(), asked.action.as_str().into());
    item.insert("title".into(), action::title(content).into());
    item.insert("subject".into(), subject(content));
    item.insert("agentId".into(), asked.agent.as_str().into());
    item.insert("askedAt".into(), shown.opened_at.to_string().into());
    item.extend(action::LISTED.into_iter().filter_map(|member| Some((member.to_owned(), content.get(member)?.clone()))));
    item.into()
}

/// What is decided, within [`SUBJECT_BYTES_MAX`] and without the bodies of diffs.
fn subject(content: &Map<String, Value>) -> Value {
    let several = || content.read(action::SUBJECTS).and_then(|subjects| subjects.get(0));
    let mut subject = content.read(action::SUBJECT).or_else(several).cloned().unwrap_or_else(|| json!({ "kind": kind(content) }));
    for diff in subject.get_mut("diffs").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(diff) = diff {
            diff.retain(|member, _| member == "path");
        }
    }
    for (chars, entries) in SUBJECT_CUTS {
        if subject.to_string().len() <= SUBJECT_BYTES_MAX {
            return subject;
        }
        cut(&mut subject, chars, entries);
    }
    match subject.to_string().len() <= SUBJECT_BYTES_MAX {
        true => subject,
        false => json!({ "kind": subject["kind"] }),
    }
}

/// The kind of a subject that no member of the action states.
fn kind(content: &Map<String, Value>) -> &'static str {
    match content.read(action::ACTION_KIND) {
        Some("plan_decision" | "teammate_plan_decision") => "plan",
        Some("structured_input" | "clarification" | "credential_request") => "question",
        _ => "tool",
    }
}

/// Cuts every text and every list of a value.
fn cut(value: &mut Value, chars: usize, entries: usize) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(chars) {
                text.truncate(end);
                text.push('…');
            }
        }
        Value::Array(list) => {
            list.truncate(entries);
            for entry in list {
                cut(entry, chars, entries);
            }
        }
        Value::Object(members) => members.values_mut().for_each(|member| cut(member, chars, entries)),
        _ => {}
    }
}

fn place_text(place: &ActionPlace) -> String {
    let ActionPlace { asked_at, log, sequence, action } = place;
    let (kind, id) = match log {
        LogId::Run(id) => ("run", id.as_str()),
        LogId::Session(id) => ("session", id.as_str()),
    };
    BASE64URL_NOPAD.encode(json!([asked_at, kind, id, sequence, action]).to_string().as_bytes())
}

fn parse_place(text: &str) -> Result<ActionPlace, Problem> {
    let read = || {
        let place = serde_json::from_slice(&BASE64URL_NOPAD.decode(text.as_bytes()).ok()?).ok()?;
        let (asked_at, kind, id, sequence, action): (i64, String, String, u64, String) = place;
        let log = match &*kind {
            "run" => LogId::Run(id.parse().ok()?),
            _ => LogId::Session(id.parse().ok()?),
        };
        Some(ActionPlace { asked_at, log, sequence: Sequence(sequence), action: action.parse().ok()? })
    };
    read().ok_or_else(|| {
        let detail = format!("The query's cursor is {}. It must be a nextCursor of this list.", quoted(text));
        Problem::bad_request("bad_cursor", detail).with("member", "cursor")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_no_body_of_a_diff_and_a_limit() {
        let of = |subject: Value| {
            let Value::Object(content) = json!({ "subject": subject }) else { panic!("an object") };
            super::subject(&content)
        };
        let edit = json!({ "kind": "edit", "path": "a", "diffs": [{ "path": "a", "oldText": "x", "newText": "y" }] });
        assert_eq!(of(edit), json!({ "kind": "edit", "path": "a", "diffs": [{ "path": "a" }] }));
        let long = of(json!({ "kind": "command", "command": "é".repeat(5000) }));
        assert!(long["command"].as_str().unwrap().ends_with('…') && long.to_string().len() <= SUBJECT_BYTES_MAX);
        let fields: Vec<_> = (0..200).map(|n| json!({ "name": n.to_string(), "value": "v".repeat(200) })).collect();
        let many = of(json!({ "kind": "fields", "fields": fields }));
        assert!(!many["fields"].as_array().unwrap().is_empty() && many.to_string().len() <= SUBJECT_BYTES_MAX);
    }

    #[test]
    fn a_cursor_is_the_place_that_it_came_from() {
        for log in [LogId::Run("r.1".parse().unwrap()), LogId::Session("s/ü".parse().unwrap())] {
            let place = ActionPlace { asked_at: 7, log, sequence: Sequence(3), action: "a,b".parse().unwrap() };
            assert_eq!(parse_place(&place_text(&place)).unwrap(), place);
        }
        for text in ["", "x", "W10", "!"] {
            assert_eq!(parse_place(text).unwrap_err().code, "bad_cursor", "{text}");
        }
    }
}
