//! The dry run of retention: what rules would do now, found as the task that acts finds it.

use super::link_decision::bad_member;
use crate::retention_rules::{DRY_RUN_NAMED_MAX, RetentionRule, RetentionRules};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use crate::serve::http::response::no_store_json;
use crate::serve::maintenance::due::{DueItem, DueItems, DueTarget};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The largest body of a request, in bytes.
const DRY_RUN_BODY_BYTES_MAX: usize = 256 * 1024;
/// Of what a rule is due for, and of what a hold keeps: the oldest that an answer names by default.
const NAMED_DEFAULT: u64 = 10;
/// The members of a request.
const MEMBERS: [&str; 2] = ["rules", "limit"];

/// `POST /v1/retention/dry-run`
pub async fn dry_run(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    if !authorization.is_unrestricted() {
        let detail = "The token does not cover all sessions. The rules of retention concern all of them.".into();
        return Err(forbidden("sessions:*", detail));
    }
    let body = read_object(&app, request, DRY_RUN_BODY_BYTES_MAX).await?;
    if let Some(other) = body.keys().find(|member| !MEMBERS.contains(&member.as_str())) {
        return Err(bad_member("rules", format!("{other} is no member of a dry run. Its members are {}.", MEMBERS.join(", "))));
    }
    let (rules, limit) = (rules_of(&app, &body)?, limit_of(&body)?);
    let _looking = app.retention.looking.lock().await;
    let at = (app.environment.now)();
    let mut due: Vec<_> = rules.0.iter().map(|_| Due::default()).collect();
    let mut findings = DueItems::new(app.clone(), rules.clone());
    while let Some(page) = findings.next().await? {
        for finding in page {
            due[finding.rule].add(finding, limit);
        }
    }
    let rules: Vec<_> = rules.0.iter().zip(due).map(|(rule, due)| rule_json(&app, rule, due)).collect();
    Ok(no_store_json(json!({ "at": format!("{at:.3}"), "rules": rules })))
}

/// The rules of the request, or the server's own.
fn rules_of(app: &App, body: &Map<String, Value>) -> Result<Arc<RetentionRules>, Problem> {
    let Some(rules) = body.get("rules") else { return Ok(app.retention.rules.clone()) };
    let refused = |why: String| bad_member("rules", format!("{why}. The server looked at nothing."));
    let Value::Array(tables) = rules else { return Err(refused("rules is no list of rules".into())) };
    let table = |(index, table): (usize, &Value)| {
        let read =
            serde_json::from_value(table.clone()).map_err(|error| refused(format!("[[retention]] {}: {error}", index + 1)));
        Ok((read?, None))
    };
    let tables = tables.iter().enumerate().map(table).collect::<Result<Vec<_>, Problem>>()?;
    RetentionRules::new(tables, false).map(Arc::new).map_err(|error| refused(error.to_string()))
}

fn limit_of(body: &Map<String, Value>) -> Result<usize, Problem> {
    let limit = match body.get("limit") {
        None => NAMED_DEFAULT,
        Some(limit) => limit.as_u64().filter(|limit| *limit <= DRY_RUN_NAMED_MAX).ok_or_else(|| {
            bad_member("limit", format!("limit is {limit}. It must be a whole number from 0 to {DRY_RUN_NAMED_MAX}."))
                .with("limit", DRY_RUN_NAMED_MAX)
        })?,
    };
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// What one rule is due for.
#[derive(Default)]
struct Due {
    free: Part,
    held: Part,
}

/// The part of it that a hold keeps, or that none does.
#[derive(Default)]
struct Part {
    sessions: u64,
    runs: u64,
    /// The oldest, by their last activity, and in the order in which they were found.
    first: Vec<(i64, u64, DueItem)>,
    found: u64,
    oldest: Option<i64>,
}

impl Due {
    fn add(&mut self, finding: DueItem, limit: usize) {
        match finding.hold {
            None => self.free.add(finding, limit),
            Some(_) => self.held.add(finding, limit),
        }
    }
}

impl Part {
    fn add(&mut self, finding: DueItem, limit: usize) {
        match &finding.found {
            DueTarget::Tree { sessions, runs, .. } => {
                self.sessions += sessions.len() as u64;
                self.runs += *runs as u64;
            }
            DueTarget::Run(_) | DueTarget::EndedRun(_) => self.runs += 1,
        }
        let last = finding.last_activity;
        self.oldest = Some(self.oldest.map_or(last, |oldest| oldest.min(last)));
        self.found += 1;
        let place = self.first.partition_point(|(at, n, _)| (*at, *n) < (last, self.found));
        if place < limit {
            self.first.insert(place, (last, self.found, finding));
            self.first.truncate(limit);
        }
    }

    fn to_json(&self, app: &App) -> Value {
        let first: Vec<_> = self.first.iter().map(|(.., finding)| finding_json(app, finding)).collect();
        let mut part = json!({ "sessions": self.sessions, "runs": self.runs, "first": first });
        if let Some(oldest) = self.oldest.and_then(time_of) {
            part["oldest"] = oldest.into();
        }
        part
    }
}

fn finding_json(app: &App, finding: &DueItem) -> Value {
    let mut shown = match &finding.found {
        DueTarget::Tree { root, sessions, runs } => json!({ "sessionId": root, "sessions": sessions.len(), "runs": runs }),
        DueTarget::Run(run) | DueTarget::EndedRun(run) => json!({ "runId": run }),
    };
    shown["lastActivity"] = json!(time_of(finding.last_activity));
    if let Some((on, hold)) = finding.hold.as_ref().and_then(|on| Some((on, app.holds.get(on)?))) {
        shown["hold"] = hold.to_json(on);
    }
    shown
}

fn rule_json(app: &App, rule: &RetentionRule, due: Due) -> Value {
    let statuses: Vec<_> = rule.status.iter().map(|status| status.as_str()).collect();
    let mut shown = json!({ "name": rule.name, "then": rule.then, "afterSeconds": rule.after.as_secs() });
    if !rule.owner.names_all() {
        shown["owner"] = json!(rule.owner.to_list());
    }
    if !statuses.is_empty() {
        shown["status"] = json!(statuses);
    }
    shown["due"] = due.free.to_json(app);
    shown["held"] = due.held.to_json(app);
    shown
}

fn time_of(milliseconds: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(milliseconds).ok().map(|time| format!("{time:.3}"))
}
