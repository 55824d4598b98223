//! `ListTasks`: the tasks of an agent that a client may see, page by page.
//!
//! A task is listed by the status of its run, which the index of runs has, so only the tasks of a page are read. Tasks that
//! have not ended come first, the newest first; then the others, the last to end first. A task that ends between two pages
//! may come twice, and never not at all. A page token names the last task of its page, and nothing of other tasks.

use super::{Asked, Refusal, history_of, wrong};
use crate::auth::rights::Verb;
use crate::log::LogId;
use crate::log::run_index::IndexedRun;
use crate::model::{AgentId, RunId, SessionId};
use crate::serve::access::authorization::{Authorization, Resource, authorize};
use crate::serve::access::requested_run::{RequestedRun, requested_of_agent};
use crate::serve::api::run_filter::agent_name;
use crate::serve::http::request::quoted;
use crate::source::kind_of;
use crate::source::ledger::Status;
use axum::response::Response;
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The most tasks of one page, and how many it has unless the client names another number.
pub const TASKS_PER_PAGE_MAX: usize = 100;
const TASKS_PER_PAGE: usize = 50;
/// Bytes of tasks after which a page takes no further one. Bodies that moved out of the log do not count.
pub const TASKS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The states of tasks, and the statuses of the runs that may be in them. What was only requested is submitted.
const STATES: [(&str, &[Status]); 8] = [
    (SUBMITTED, &[]),
    ("TASK_STATE_WORKING", &[Status::Accepted, Status::Running, Status::Unknown]),
    ("TASK_STATE_INPUT_REQUIRED", &[Status::Waiting]),
    ("TASK_STATE_AUTH_REQUIRED", &[Status::Waiting]),
    ("TASK_STATE_COMPLETED", &[Status::Completed]),
    ("TASK_STATE_FAILED", &[Status::Failed, Status::Interrupted]),
    ("TASK_STATE_CANCELED", &[Status::Cancelled]),
    ("TASK_STATE_REJECTED", &[]),
];
const SUBMITTED: &str = "TASK_STATE_SUBMITTED";

/// The place of a task in the list; the smaller one comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TaskPlace {
    has_ended: bool,
    /// When it ended, or else when it began or was requested, in milliseconds since 1970.
    at: Reverse<i64>,
    run: RunId,
}

impl TaskPlace {
    fn of(run: &IndexedRun<'_>, has_ended: bool) -> Self {
        let at = if has_ended { run.ended() } else { run.started() };
        Self { has_ended, at: Reverse(at.unwrap_or(0)), run: run.run().clone() }
    }

    fn token(&self) -> String {
        let text = format!("{} {} {}", u8::from(self.has_ended), self.at.0, self.run);
        BASE64URL_NOPAD.encode(text.as_bytes())
    }

    /// Reads a token. `None`: this server did not make it.
    fn from_token(token: &str) -> Option<Self> {
        let text = String::from_utf8(BASE64URL_NOPAD.decode(token.as_bytes()).ok()?).ok()?;
        let mut parts = text.splitn(3, ' ');
        let has_ended = match parts.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        Some(Self { has_ended, at: Reverse(parts.next()?.parse().ok()?), run: RunId::new(parts.next()?).ok()? })
    }
}

/// What a client asks for.
struct TaskQuery {
    context: Option<SessionId>,
    /// The name of a state, and the statuses of its runs.
    state: Option<(&'static str, &'static [Status])>,
    /// In milliseconds since 1970.
    since: Option<i64>,
    after: Option<TaskPlace>,
    limit: usize,
    history: usize,
    has_artifacts: bool,
}

impl TaskQuery {
    fn read(params: &Map<String, Value>) -> Result<Self, Refusal> {
        let text = |member: &'static str| match params.get(member) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(&**text).filter(|text| !text.is_empty())),
            Some(other) => Err(wrong(member, kind_of(other), "text")),
        };
        let context = text("contextId")?.map(str::parse).transpose();
        let context = context.map_err(|error| wrong("contextId", &format!("not a valid id ({error})"), "the id of a context"))?;
        let state = match text("status")?.filter(|name| *name != "TASK_STATE_UNSPECIFIED") {
            None => None,
            Some(name) => Some(STATES.into_iter().find(|(known, _)| *known == name).ok_or_else(|| {
                wrong("status", &quoted(name), &format!("one of {}", STATES.map(|(known, _)| known).join(", ")))
            })?),
        };
        let since = text("statusTimestampAfter")?.map(|at| {
            let parsed = at.parse::<jiff::Timestamp>().ok();
            parsed
                .map(jiff::Timestamp::as_millisecond)
                .ok_or_else(|| wrong("statusTimestampAfter", &quoted(at), "a time of RFC 3339"))
        });
        let after = text("pageToken")?.map(|token| {
            TaskPlace::from_token(token)
                .ok_or_else(|| wrong("pageToken", &quoted(token), "a nextPageToken of this list, unchanged"))
        });
        let limit = match params.get("pageSize") {
            None | Some(Value::Null) => TASKS_PER_PAGE,
            Some(size) => {
                let number = size.as_u64().and_then(|size| usize::try_from(size).ok());
                let fits = number.filter(|size| (1..=TASKS_PER_PAGE_MAX).contains(size));
                fits.ok_or_else(|| {
                    wrong("pageSize", &quoted(&size.to_string()), &format!("a number from 1 to {TASKS_PER_PAGE_MAX}"))
                })?
            }
        };
        let has_artifacts = match params.get("includeArtifacts") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(includes)) => *includes,
            Some(other) => return Err(wrong("includeArtifacts", kind_of(other), "true or false")),
        };
        let (since, after, history) = (since.transpose()?, after.transpose()?, history_of(params)?);
        Ok(Self { context, state, since, after, limit, history, has_artifacts })
    }

    /// Whether a task may be in the list by its status.
    fn takes(&self, status: Status) -> bool {
        self.state.is_none_or(|(_, statuses)| statuses.contains(&status))
    }

    fn takes_requested(&self) -> bool {
        self.state.is_none_or(|(name, _)| name == SUBMITTED)
    }

    /// Whether the status of a task may have changed since the time that the client names. When a run that goes on began to
    /// wait, or to work again, is not known here.
    fn is_recent(&self, place: &TaskPlace) -> bool {
        !place.has_ended || self.since.is_none_or(|since| place.at.0 >= since)
    }

    /// Whether a task is of the context. A run without a session is a context of its own.
    fn is_in_context(&self, run: &RunId, session: Option<&SessionId>) -> bool {
        let own = session.map_or(run.as_str(), SessionId::as_str);
        self.context.as_ref().is_none_or(|context| context.as_str() == own)
    }
}

/// The first tasks after a place, at most so many, and how many the whole list has.
struct FirstTasks<'q> {
    query: &'q TaskQuery,
    /// With the context of a task that was only requested.
    places: BTreeMap<TaskPlace, Option<SessionId>>,
    total: usize,
}

impl FirstTasks<'_> {
    fn add(&mut self, place: TaskPlace, requested_in: Option<&SessionId>) {
        if !self.query.is_recent(&place) {
            return;
        }
        self.total += 1;
        if self.query.after.as_ref().is_none_or(|after| place > *after) {
            self.places.insert(place, requested_in.cloned());
            // One more than the page has tells whether there is a next one.
            if self.places.len() > self.query.limit + 1 {
                self.places.pop_last();
            }
        }
    }
}

/// Answers `ListTasks`.
pub(super) async fn answer(asked: &Asked, agent: &AgentId, params: &Map<String, Value>) -> Result<Response, Refusal> {
    let query = TaskQuery::read(params)?;
    let (app, audience) = (&asked.app, asked.audience);
    let authorization = authorize(app, &asked.principal, Verb::Read, Resource::Unspecified, Some(audience)).await?;
    let requested = if query.takes_requested() { requested_of_agent(app, agent).await? } else { Vec::new() };
    let mut first = FirstTasks { query: &query, places: BTreeMap::new(), total: 0 };
    for RequestedRun { run, thread, at } in requested {
        if authorization.has_session(&thread) && query.is_in_context(&run, Some(&thread)) {
            first.add(TaskPlace { has_ended: false, at: Reverse(at), run }, Some(&thread));
        }
    }
    app.logs.runs().visit(|run| {
        let status = run.status(audience);
        let is_covered = || authorization.covers_run(run.run(), run.session(), run.owner());
        if agent_name(&run) == agent.as_str()
            && query.takes(status)
            && query.is_in_context(run.run(), run.session())
            && is_covered()
        {
            first.add(TaskPlace::of(&run, status.is_end()), None);
        }
        ControlFlow::Continue(())
    });
    let FirstTasks { places, total, .. } = first;
    page(asked, &authorization, &query, places, total).await
}

/// Reads the tasks of a page.
async fn page(
    asked: &Asked,
    authorization: &Authorization,
    query: &TaskQuery,
    places: BTreeMap<TaskPlace, Option<SessionId>>,
    total: usize,
) -> Result<Response, Refusal> {
    let (mut tasks, mut runs, mut bytes, mut last) = (Vec::new(), Vec::new(), 0, None);
    let has_more = places.len() > query.limit;
    let mut places = places.into_iter().take(query.limit).peekable();
    while let Some((place, requested_in)) = places.next_if(|_| bytes < TASKS_BYTES_MAX) {
        let task = match requested_in {
            Some(thread) => Some(asked.options(thread.as_str(), &place.run).requested(false)),
            None => read(asked, authorization, query, &place.run).await?,
        };
        // A run that waits may have either of two states, and one that changed meanwhile any other.
        let is_asked_for = |task: &Value| query.state.is_none_or(|(name, _)| task["status"]["state"] == name);
        if let Some(task) = task.filter(is_asked_for) {
            bytes += task.to_string().len();
            tasks.push(task);
            runs.push(place.run.clone());
        }
        last = Some(place);
    }
    let next = last.filter(|_| has_more || places.peek().is_some());
    let result = json!({
        "tasks": tasks,
        "nextPageToken": next.map_or_else(String::new, |place| place.token()),
        "pageSize": query.limit,
        "totalSize": total,
    });
    Ok(asked.respond(runs, result))
}

/// Reads the task of a run. `None`: the client may not see it any longer.
async fn read(asked: &Asked, authorization: &Authorization, query: &TaskQuery, run: &RunId) -> Result<Option<Value>, Refusal> {
    let tail = asked.app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() || !authorization.has_run(run, &tail.summary) {
        return Ok(None);
    }
    let context = tail.summary.session_id.as_ref().map_or(run.as_str(), SessionId::as_str);
    let mut task = asked.task(context, run, query.history).await?;
    if !query.has_artifacts {
        task.as_object_mut().into_iter().for_each(|task| drop(task.shift_remove("artifacts")));
    }
    Ok(Some(task))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_go_on_come_first_and_then_the_last_to_end() {
        let place = |has_ended, at, run: &str| TaskPlace { has_ended, at: Reverse(at), run: RunId::new(run).unwrap() };
        let sorted = [
            place(false, 9, "new"),
            place(false, 3, "old"),
            place(true, 8, "a"),
            place(true, 8, "b c"),
            place(true, i64::MIN, "x"),
        ];
        assert!(sorted.is_sorted());
        for place in sorted {
            assert_eq!(TaskPlace::from_token(&place.token()), Some(place));
        }
        for token in ["", "x", "MSAy", &BASE64URL_NOPAD.encode(b"2 3 r"), &BASE64URL_NOPAD.encode(b"1 x r")] {
            assert_eq!(TaskPlace::from_token(token), None, "{token}");
        }
    }
}
