//! The one decision of a share link: what it may decide, and that it decides once.

use crate::auth::links::OpenedLink;
use crate::auth::{EndReason, TokenError};
use crate::links::{DecisionTurn, LinkDecision, LinkError};
use crate::log::LogId;
use crate::model::options::{self, Effect, OfferedOption, Width};
use crate::model::{Audience, Control, ControlId};
use crate::projection::action;
use crate::projection::members::TypedContent;
use crate::serve::App;
use crate::serve::access::authorization::{forbidden, unauthenticated};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::id_of;
use crate::source::kind_of;
use http::StatusCode;
use serde_json::{Map, Value};

/// The risks that a link may decide: no risk that is unstated, high, or of an unknown word.
const RISKS: [&str; 3] = ["none", "low", "medium"];

pub(super) fn bad_member(member: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_member", detail.into()).with("member", member)
}

pub(super) fn link_problem(error: LinkError) -> Problem {
    let detail = error.to_string();
    match error {
        LinkError::TooMany { limit, .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_links", detail).with("limit", limit)
        }
        LinkError::TooOften => Problem::new(StatusCode::TOO_MANY_REQUESTS, "link_rate", detail).with_retry_after(60),
        LinkError::Unknown => Problem::not_found("no_such_link", detail),
        LinkError::Decided { control, .. } => {
            Problem::new(StatusCode::CONFLICT, "link_has_decided", detail).with("controlId", control.to_string())
        }
        LinkError::Store(error) => error.into(),
    }
}

pub(super) fn text_of<'b>(body: &'b Map<String, Value>, member: &'static str) -> Result<Option<&'b str>, Problem> {
    match body.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(bad_member(member, format!("{member} is {}. It must be text.", kind_of(other)))),
    }
}

fn not_by_link(detail: &str) -> Problem {
    forbidden("token", format!("{detail} Decide with a token of your own."))
}

/// What a link decides: the action, and the body of its control.
struct LinkAnswer {
    action: Box<str>,
    control: Box<str>,
    body: Map<String, Value>,
}

/// Checks that a link may decide what a body asks for.
///
/// The decision is about the question as it is checked here: a later version of it refuses the control.
async fn checked_answer(app: &App, link: &OpenedLink, log: &LogId, mut body: Map<String, Value>) -> Result<LinkAnswer, Problem> {
    let is_verdict = |name: &str| [Control::Approve, Control::Reject, Control::Answer].iter().any(|known| known.as_str() == name);
    let action = body.get("actionId").and_then(Value::as_str).map(Box::<str>::from);
    let Some(action) = action.filter(|_| body.get("control").and_then(Value::as_str).is_some_and(is_verdict)) else {
        return Err(not_by_link("A link may approve, reject or answer one action, and submits no other control."));
    };
    let control = body.entry("controlId").or_insert_with(|| format!("link-{}", link.id).into());
    let control: Box<str> = id_of::<ControlId>("controlId", control.as_str().unwrap_or_default())?.as_str().into();
    // A repeated request finds its control, also once the action is resolved.
    if app.links.get(&link.id).and_then(|record| record.decided).is_some() {
        return Ok(LinkAnswer { action, control, body });
    }
    let view = app.feed.activities(log, Audience::Internal, None).await?;
    let asked = view.as_ref().and_then(|view| {
        view.activities().iter().find(|shown| action::is_pending(shown) && *shown.id == *action).map(|shown| (view, shown))
    });
    let Some((view, asked)) = asked else {
        let detail = format!("Action {action} is not pending here. Read the run again.");
        return Err(Problem::new(StatusCode::CONFLICT, "action_not_pending", detail));
    };
    let content = &asked.content;
    let risk = content.get("risk").and_then(Value::as_str).map(str::to_ascii_lowercase);
    if !risk.is_some_and(|risk| RISKS.contains(&&*risk)) {
        return Err(not_by_link("A link decides no action whose risk is high, unknown or unstated."));
    }
    if content.get("approvals").is_some_and(|approvals| approvals.as_u64().is_none_or(|approvals| approvals > 1)) {
        return Err(not_by_link("A link decides no action that needs several approvals."));
    }
    let value = body.get("value");
    let named = value.and_then(|value| value.get("optionId").unwrap_or(value).as_str());
    let offered = content.read(action::OPTIONS).map(options::offered).unwrap_or_default();
    let is_wide = |option: &OfferedOption| {
        option.effect == Effect::Allow && matches!(option.width, Width::Turn | Width::Session | Width::Always)
    };
    if offered.iter().any(|option| named == Some(&*option.id) && is_wide(option)) {
        return Err(not_by_link("A link allows this request alone, and no later ones."));
    }
    let seen = body.get("seenSequence").and_then(Value::as_u64).unwrap_or(u64::MAX).min(view.through.0);
    body.insert("seenSequence".into(), seen.into());
    Ok(LinkAnswer { action, control, body })
}

/// Reserves the decision that a body asks for. Returns the control's body, which the caller submits in this turn.
///
/// # Errors
/// 403 for what a link may not decide, 409 if the link has decided.
pub(super) async fn reserve<'a>(
    app: &'a App,
    link: &OpenedLink,
    log: &LogId,
    body: Map<String, Value>,
) -> Result<(DecisionTurn<'a>, Map<String, Value>), Problem> {
    let LinkAnswer { action, control, body } = checked_answer(app, link, log, body).await?;
    let decision = LinkDecision { log: log.to_string().into(), action_id: action, control_id: control };
    let turn = app.links.reserve_decision(&link.id, decision).await.map_err(|error| match error {
        LinkError::Unknown => unauthenticated(&TokenError::Ended(EndReason::LinkEnded)),
        error => link_problem(error),
    })?;
    Ok((turn, body))
}
