//! How existing clients branch: they regenerate an answer, or send a known message with another text.
//!
//! They keep the id of their thread. So the branch becomes the head of what they know by that id. A list of messages that
//! is shorter than the thread never branches: clients trim what they send.

use super::requests::hashed_id;
use super::threads::{Thread, ThreadRun};
use crate::branches::NewBranch;
use crate::control::Requester;
use crate::encode::frames::ActivityView;
use crate::guard::redact_text;
use crate::model::{Audience, RunId, Sequence};
use crate::serve::App;
use crate::serve::api::branches::branch_problem;
use crate::serve::http::problem::Problem;
use serde_json::Value;

/// Where a request leaves a thread: after this sequence of a run of it; 0: before the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    run: RunId,
    sequence: Sequence,
}

impl Leave {
    /// Before a run of the thread, or before its last one. `None`: the thread has no such run.
    #[must_use]
    pub fn before_run(thread: &Thread, run: Option<&str>) -> Option<Self> {
        let named = run.and_then(|run| thread.runs.iter().find(|part| part.run.as_str() == run));
        let run = named.or_else(|| thread.runs.last().filter(|_| run.is_none()))?.run.clone();
        Some(Self { run, sequence: Sequence::NONE })
    }

    /// After an older run of the thread that has ended. `None`: it is the newest one, or none of them.
    #[must_use]
    pub fn after_older_run(thread: &Thread, run: &str, audience: Audience) -> Option<Self> {
        let (newest, older) = thread.runs.split_last()?;
        let left = older.iter().find(|part| part.run.as_str() == run && newest.run != part.run)?;
        left.state(audience).status.is_end().then(|| Self { run: left.run.clone(), sequence: last_seen(left, audience) })
    }

    /// Before a message of the user that the client sends with another text. `None`: it is unknown, or as it was.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn before_edited(
        app: &App,
        thread: &Thread,
        message: &str,
        text: &str,
        audience: Audience,
    ) -> Result<Option<Self>, Problem> {
        for part in thread.runs.iter().rev() {
            let shown = part.shown().activities(app, audience).await?;
            let Some(known) = shown.iter().find(|shown| is_of_user(shown) && *shown.id == *message) else { continue };
            // The log has no secrets of the text, and not all of a long one.
            let parts = known.content.get("parts").and_then(Value::as_array).into_iter().flatten();
            let is_whole = !known.content.contains_key("clipped") && parts.into_iter().all(|part| part["clipped"].is_null());
            let sent = redact_text(text);
            if !is_whole || sent.trim().is_empty() || text_of(known).trim() == sent.trim() {
                return Ok(None);
            }
            // A run begins with the messages that asked for it. One in its middle leaves what came before.
            let is_first =
                shown.iter().take_while(|shown| *shown.id != *message).all(|shown| is_of_user(shown) || &*shown.kind == "run");
            let sequence = if is_first { Sequence::NONE } else { Sequence(known.opened.0.saturating_sub(1)) };
            return Ok(Some(Self { run: part.run.clone(), sequence }));
        }
        Ok(None)
    }
}

fn last_seen(part: &ThreadRun, audience: Audience) -> Sequence {
    part.frozen.as_ref().map_or(part.tail.summary.seen_last[audience.index()], |frozen| frozen.until)
}

fn is_of_user(shown: &ActivityView) -> bool {
    &*shown.kind == "message" && shown.text("role") == Some("user")
}

fn text_of(message: &ActivityView) -> String {
    let parts = message.content.get("parts").and_then(Value::as_array).into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Branches off a thread for a run that a client asks for. A repeated request finds the branch of the first.
///
/// # Errors
/// Why the client may not, or the store's failure.
pub async fn branch_off(app: &App, thread: Thread, leave: Leave, run: &RunId, by: &Requester) -> Result<Thread, Problem> {
    let sessions = app.logs.sessions();
    if sessions.created_order(&thread.id).is_none() {
        // A run without a session.
        return Ok(thread);
    }
    app.disk.check_space()?;
    let name = Some(hashed_id(&["branch", run.as_str()]));
    let Leave { run, sequence } = leave;
    let new = NewBranch { session: &thread.id, run, sequence, id: None, name };
    let branch = app.branches.begin(new, by).await.map_err(branch_problem)?;
    Ok(Thread { name: thread.name, ..Thread::of_session(app, &branch).await? })
}

/// Makes the thread what its client reads and writes from now on, if it is not.
///
/// After the run was requested: a repeated request either finds the thread as the first one did, or the requested run.
///
/// # Errors
/// The store's failure.
pub async fn take_head(app: &App, thread: &Thread, by: &Requester) -> Result<(), Problem> {
    let sessions = app.logs.sessions();
    if thread.id == thread.name || sessions.head_of(&thread.name) == thread.id {
        return Ok(());
    }
    app.branches.set_head(&thread.name, Some(&thread.id), &by.decider).await.map_err(branch_problem)
}
