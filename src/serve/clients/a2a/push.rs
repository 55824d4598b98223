//! Push addresses of tasks: a client names where it hears of one that waits or has ended.

use super::{Asked, Refusal, UNSUPPORTED, find_task, wrong};
use crate::auth::rights::Verb;
use crate::encode::a2a::A2aVersion;
use crate::log::server_state::EntryChange;
use crate::model::RunId;
use crate::notify::task_push::{
    TASK_PUSHES_MAX, TASK_PUSHES_PER_PERSON_MAX, TASK_PUSHES_PER_TASK_MAX, TaskPush, TaskPushAuthentication,
};
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::acp::rpc::RpcError;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::quoted;
use crate::source::kind_of;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// Addresses past their end that one new one removes.
const SWEPT_MAX: usize = 256;

/// What a request does with the push addresses of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushMethod {
    Set,
    Get,
    List,
    Delete,
}

/// Answers a request about the push addresses of a task: those of the person who asks.
pub(super) async fn answer(
    asked: &Asked,
    authorization: &Authorization,
    method: PushMethod,
    params: &Map<String, Value>,
) -> Result<Value, Refusal> {
    let is_old = asked.version == A2aVersion::V03;
    let task_member = if is_old && method != PushMethod::Set { "id" } else { "taskId" };
    let (run, _, tail) = find_task(asked, params, task_member, Verb::Read).await?;
    let config_member = if is_old { "pushNotificationConfigId" } else { "id" };
    let named = params.get(config_member).and_then(Value::as_str).filter(|id| !id.is_empty());
    let mut own = addresses_of(asked, &run);
    match method {
        PushMethod::Set => {
            if tail.is_some_and(|tail| tail.summary.run_for(asked.audience).status.is_end()) {
                return Err(RpcError::new(UNSUPPORTED, format!("Task {run} has ended: there is nothing to hear of.")).into());
            }
            let config = match (is_old, params.get("pushNotificationConfig")) {
                (false, _) => params,
                (true, Some(Value::Object(config))) => config,
                (true, other) => {
                    return Err(wrong("pushNotificationConfig", other.map_or("missing", kind_of), "an object"));
                }
            };
            Ok(shown(&save(asked, authorization, &run, config).await?, is_old))
        }
        PushMethod::List => {
            let all: Value = own.iter().map(|push| shown(push, is_old)).collect();
            Ok(if is_old { all } else { json!({ "configs": all }) })
        }
        PushMethod::Get => {
            own.retain(|push| named.is_none_or(|id| push.config == id));
            let found = own.first().ok_or_else(|| {
                let of = named.map_or_else(String::new, |id| format!(" {}", quoted(id)));
                RpcError::params(config_member, format!("Task {run} has no push address{of} of yours."))
            })?;
            Ok(shown(found, is_old))
        }
        PushMethod::Delete => {
            let Some(id) = named else { return Err(wrong(config_member, "missing", "the id of a push address")) };
            let gone: Vec<_> = own.iter().filter(|push| push.config == id).collect();
            let gone: Vec<_> = gone.into_iter().map(|push| EntryChange::remove::<TaskPush>(&push.id())).collect();
            if !gone.is_empty() {
                asked.app.ingest.append_to_server(&[], &gone).await?;
            }
            Ok(if is_old { Value::Null } else { json!({}) })
        }
    }
}

/// The push address that a message's configuration names.
pub(super) fn of_message(asked: &Asked, configuration: &Map<String, Value>) -> Result<Option<Map<String, Value>>, Refusal> {
    let member = match asked.version {
        A2aVersion::V03 => "pushNotificationConfig",
        A2aVersion::V10 => "taskPushNotificationConfig",
    };
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(config)) => Ok(Some(config.clone())),
        Some(other) => Err(wrong(&format!("configuration.{member}"), kind_of(other), "an object")),
    }
}

/// The person's push addresses of a task that have not ended.
fn addresses_of(asked: &Asked, run: &RunId) -> Vec<TaskPush> {
    let (now, person) = ((asked.app.environment.now)().as_millisecond(), subject(asked));
    let all = asked.app.logs.server_state().all::<TaskPush>("").into_iter().map(|(_, push)| push);
    let mut own: Vec<_> = all.filter(|push| push.task == *run && push.is_of(person) && push.until() > now).collect();
    own.sort_by_key(|push| push.created_at);
    own
}

fn subject(asked: &Asked) -> Option<&str> {
    asked.principal.grant().map(|grant| &*grant.subject)
}

/// Saves a push address, in place of that of the same id.
pub(super) async fn save(
    asked: &Asked,
    authorization: &Authorization,
    run: &RunId,
    config: &Map<String, Value>,
) -> Result<TaskPush, Refusal> {
    if authorization.link().is_some() {
        let detail = "A share link is no person. Name a push address with a token of your own.";
        return Err(forbidden("token", detail.into()).into());
    }
    let text = |of: &Map<String, Value>, member: &str| match of.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(other) => Err(wrong(member, kind_of(other), "text")),
    };
    let authentication = match config.get("authentication") {
        None | Some(Value::Null) => None,
        Some(Value::Object(of)) => {
            let first = of.get("schemes").and_then(|schemes| schemes.get(0)?.as_str()).map(str::to_owned);
            let scheme = text(of, "scheme")?.or(first).unwrap_or_else(|| "Bearer".to_owned());
            Some(TaskPushAuthentication { scheme, credentials: text(of, "credentials")? })
        }
        Some(other) => return Err(wrong("authentication", kind_of(other), "an object")),
    };
    let (app, now) = (&asked.app, (asked.app.environment.now)().as_millisecond());
    let push = TaskPush {
        task: run.clone(),
        config: text(config, "id")?.unwrap_or_else(|| run.to_string()),
        url: text(config, "url")?.ok_or_else(|| wrong("url", "missing", "the address that takes notifications"))?,
        token: text(config, "token")?,
        authentication,
        version: asked.version,
        audience: asked.audience,
        holder: asked.principal.grant().map(|grant| grant.holder()),
        created_at: now,
    };
    push.check(app.notifier.services())
        .map_err(|error| RpcError::params(error.member, format!("The {} is not taken: {}.", error.member, error.what)))?;
    app.disk.check_space()?;
    let _held = app.notifier.subscribing.lock().await;
    let id = push.id();
    let others = app.logs.server_state().all::<TaskPush>("").into_iter().filter(|(other, _)| *other != id);
    let (open, ended): (Vec<_>, Vec<_>) = others.partition(|(_, known)| known.until() > now);
    let count = |is_one: &dyn Fn(&TaskPush) -> bool| open.iter().filter(|(_, known)| is_one(known)).count();
    let limits = [
        (count(&|known| known.task == *run), TASK_PUSHES_PER_TASK_MAX, "of this task"),
        (count(&|known| known.is_of(subject(asked))), TASK_PUSHES_PER_PERSON_MAX, "of this person"),
        (open.len(), TASK_PUSHES_MAX, "of this server"),
    ];
    if let Some((_, limit, of)) = limits.into_iter().find(|(count, limit, _)| count >= limit) {
        let detail = format!("{limit} push addresses {of} are known, the limit. Delete one, or wait until its task has ended.");
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_push_addresses", detail);
        return Err(problem.with("limit", limit).into());
    }
    let mut entries = vec![EntryChange::set(&id, &push)];
    entries.extend(ended.iter().take(SWEPT_MAX).map(|(id, _)| EntryChange::remove::<TaskPush>(id)));
    app.ingest.append_to_server(&[], &entries).await?;
    Ok(push)
}

/// A push address in the form of a version, without the credentials.
fn shown(push: &TaskPush, is_old: bool) -> Value {
    let mut config = json!({ "id": push.config, "url": push.url });
    if let Some(token) = &push.token {
        config["token"] = token.as_str().into();
    }
    if let Some(TaskPushAuthentication { scheme, .. }) = &push.authentication {
        config["authentication"] = if is_old { json!({ "schemes": [scheme] }) } else { json!({ "scheme": scheme }) };
    }
    if is_old {
        return json!({ "taskId": push.task, "pushNotificationConfig": config });
    }
    config["taskId"] = push.task.as_str().into();
    config
}
