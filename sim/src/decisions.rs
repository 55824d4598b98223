//! The model of decisions: what the server promises of questions, their rules and deadlines, and of the record of a run.
//!
//! * A decision reaches its question once, as it was sent, from the person who sent it, or is refused.
//! * A question that needs two people is handed out once, with the approvals of two.
//! * Each step of a rule is done once, in its order, not before its time, and not after the question's end.
//! * A question whose deadline passes expires then, once.
//! * The record of a run has each decision that its owner took, once.

use crate::model::{Events, Model};
use crate::plan::{BEGIN_MS, DECIDED_AFTER_MS, Plan, QuestionPlan, STEPS, Wait, run_name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The time within which the server does what is due, in milliseconds.
const DUE_WITHIN_MS: i64 = 3000;

/// The questions of a plan, and what became of them.
#[derive(Default)]
pub(crate) struct Decisions {
    questions: Vec<QuestionPlan>,
    has_tokens: bool,
    by_id: BTreeMap<String, Decision>,
}

struct Decision {
    run: String,
    action: String,
    control: String,
    value: Value,
    /// The `sub` of the person's token; `None` for a decision of a rule.
    person: Option<String>,
    is_accepted: bool,
    attempt: u64,
    /// The status that the server answered to its owner.
    settled: Option<String>,
    /// Whether the worker has sent its report of the outcome.
    is_reported: bool,
}

impl Decisions {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { questions: plan.questions.clone(), has_tokens: plan.has_tokens, by_id: BTreeMap::new() }
    }

    /// Adds a decision that a rule made: one for each question, as the rule says.
    fn add_of_rule(&mut self, control: &Value) -> Option<()> {
        let question = self.questions.iter().find(|question| control["actionId"] == question.action.as_str())?;
        let verdict = match question.wait {
            Wait::Rule { approves: true } => "approve",
            Wait::Rule { approves: false } | Wait::Deadline { rejects: true, .. } => "reject",
            _ => return None,
        };
        let is_first = !self.by_id.values().any(|decision| decision.action == question.action && decision.person.is_none());
        if !is_first || control["control"] != verdict {
            return None;
        }
        let decision = Decision {
            run: run_name(question.run),
            action: question.action.clone(),
            control: verdict.to_owned(),
            value: Value::Null,
            person: None,
            is_accepted: true,
            attempt: 0,
            settled: None,
            is_reported: false,
        };
        self.by_id.insert(text(control, "controlId").to_owned(), decision);
        Some(())
    }

    fn needs_two(&self, action: &str) -> bool {
        self.questions.iter().any(|question| question.action == action && question.wait == Wait::People)
    }

    /// Whether two people have approved a question, as a claim says.
    fn are_two(&self, action: &str, approvals: &Value) -> bool {
        let people: BTreeSet<_> = approvals.as_array().into_iter().flatten().filter_map(|by| by["sub"].as_str()).collect();
        let has_approved = |sub: &&str| {
            let is_of = |one: &Decision| one.action == action && one.control == "approve" && one.person.as_deref() == Some(sub);
            self.by_id.values().any(is_of)
        };
        people.len() == 2 && people.iter().all(has_approved)
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// A time, in milliseconds since 1970.
fn time(text: &Value) -> i64 {
    text.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).map_or(0, jiff::Timestamp::as_millisecond)
}

impl Model {
    /// Records that a person sends a decision.
    pub fn decides(&mut self, id: &str, question: &QuestionPlan, person: &str, control: &str, value: &Value) {
        self.decisions.by_id.entry(id.to_owned()).or_insert_with(|| Decision {
            run: run_name(question.run),
            action: question.action.clone(),
            control: control.to_owned(),
            value: value.clone(),
            person: Some(person.to_owned()),
            is_accepted: false,
            attempt: 0,
            settled: None,
            is_reported: false,
        });
    }

    /// Records that the server has taken a decision.
    pub fn decision_accepted(&mut self, id: &str) {
        if let Some(decision) = self.decisions.by_id.get_mut(id) {
            decision.is_accepted = true;
        }
    }

    /// Whether the server has taken an approval of a question that needs two people.
    #[must_use]
    pub fn has_approval(&self, question: &QuestionPlan) -> bool {
        let mut decisions = self.decisions.by_id.values();
        question.wait == Wait::People && decisions.any(|decision| decision.action == question.action && decision.is_accepted)
    }

    /// Checks a control that a worker has claimed.
    pub fn claimed(&mut self, control: &Value) {
        let (id, by) = (text(control, "controlId"), &control["decidedBy"]);
        let is_of_rule = by["via"] == "rule";
        if is_of_rule && !self.decisions.by_id.contains_key(id) && self.decisions.add_of_rule(control).is_none() {
            return self.violation(format!("a worker got a decision of a rule that none makes: {control}"));
        }
        let is_handed_out = self.decisions.by_id.get(id).is_none_or(|decision| {
            let needs_two = decision.control == "approve" && self.decisions.needs_two(&decision.action);
            !needs_two || self.decisions.are_two(&decision.action, &control["approvals"])
        });
        let has_tokens = self.decisions.has_tokens;
        let Some(decision) = self.decisions.by_id.get_mut(id) else {
            return self.violation(format!("a worker got a control that no person sent: {control}"));
        };
        let (sent, got) = (
            (decision.run.as_str(), decision.action.as_str(), decision.control.as_str(), &decision.value),
            (control["runId"].as_str(), control["actionId"].as_str(), control["control"].as_str(), &control["value"]),
        );
        let attempt = control["attempt"].as_u64().unwrap_or(0);
        let what = if (Some(sent.0), Some(sent.1), Some(sent.2), sent.3) != got {
            "as another one than was sent"
        } else if decision.settled.is_some() {
            "after its answer was acknowledged"
        } else if attempt < decision.attempt {
            "under the number of an earlier claim"
        } else if !is_of_rule && has_tokens && by["sub"].as_str() != decision.person.as_deref() {
            "as that of another person"
        } else if !is_handed_out {
            "without two people"
        } else {
            decision.attempt = attempt;
            return;
        };
        self.violation(format!("the decision {id} reached its owner {what}: {control}"));
    }

    /// Records that the worker sends its report of a decision.
    pub fn decision_reported(&mut self, id: &str) {
        if let Some(decision) = self.decisions.by_id.get_mut(id) {
            decision.is_reported = true;
        }
    }

    /// Records the server's answer to the owner of a control.
    pub fn decision_answered(&mut self, id: &str, status: &str) {
        if let Some(decision) = self.decisions.by_id.get_mut(id).filter(|_| status != "queued") {
            decision.settled = Some(status.to_owned());
        }
    }

    /// Checks the controls of a run, and its record of decisions, as the server lists them at the end.
    pub fn check_controls(&mut self, run: &str, listed: &[Value], record: &[Value]) {
        let mut wrong = Vec::new();
        for control in listed {
            let is_known = self.decisions.by_id.contains_key(text(control, "controlId"));
            if !is_known && (control["decidedBy"]["via"] != "rule" || self.decisions.add_of_rule(control).is_none()) {
                wrong.push(format!("{run} has a control that no person sent, and no rule: {control}"));
            }
        }
        let (mut taken, decisions) = (BTreeMap::<&str, Vec<&str>>::new(), &self.decisions);
        for (id, decision) in decisions.by_id.iter().filter(|(_, decision)| decision.run == run) {
            let of_this: Vec<_> = listed.iter().filter(|control| control["controlId"] == id.as_str()).collect();
            let status = match of_this[..] {
                [] if decision.is_accepted => {
                    wrong.push(format!("the accepted decision {id} is lost"));
                    continue;
                }
                [] => continue,
                [one] => text(one, "status"),
                _ => {
                    wrong.push(format!("the decision {id} is there {} times", of_this.len()));
                    continue;
                }
            };
            if decision.settled.as_deref().is_some_and(|settled| settled != status) {
                wrong.push(format!("the decision {id} is {status}, and its owner got the answer {:?}", decision.settled));
            }
            let (needs_two, mut questions) = (decisions.needs_two(&decision.action), decisions.questions.iter());
            let has_deadline = questions.any(|of| of.action == decision.action && matches!(of.wait, Wait::Deadline { .. }));
            let may_expire = decision.is_reported || has_deadline || needs_two && decision.attempt == 0;
            if !(matches!(status, "acked" | "nacked") || status == "expired" && may_expire) {
                wrong.push(format!("the decision {id} never reached its question: it is {status}"));
            }
            // The others of a question that needs two people end with the one that was handed out.
            if decision.is_reported || status == "acked" && (decision.attempt > 0 || !needs_two) {
                taken.entry(&decision.action).or_default().push(id);
            }
            let is_recorded = |entry: &&Value| entry["controlId"] == id.as_str();
            if status == "acked" && decision.attempt > 0 && record.iter().filter(is_recorded).count() != 1 {
                wrong.push(format!("the record of {run} lacks the decision {id}: {}", Value::from(record)));
            }
        }
        wrong.extend(taken.iter().filter(|(_, ids)| ids.len() > 1).map(|(action, ids)| format!("{action} got {ids:?}")));
        for entry in record {
            let decision = entry["controlId"].as_str().map(|id| decisions.by_id.get(id));
            let is_right = decision.is_none_or(|decision| {
                let sub = entry["decidedBy"]["sub"].as_str();
                decision.is_some_and(|one| {
                    entry["control"] == one.control.as_str() && (!decisions.has_tokens || sub == one.person.as_deref())
                })
            });
            if !is_right || record.iter().filter(|other| other["actionId"] == entry["actionId"]).count() != 1 {
                wrong.push(format!("the record of {run} has what was not decided: {entry}"));
            }
        }
        self.violations.extend(wrong);
    }

    /// Checks what the server did about the questions of a run, by all its envelopes.
    pub fn check_waits(&mut self, run: &str, events: &Events) {
        let mut wrong = Vec::new();
        for question in self.decisions.questions.iter().filter(|question| run_name(question.run) == run) {
            if let Err(what) = follow(question, events) {
                wrong.push(format!("{run}: {question:?}: {what}"));
            }
        }
        self.violations.extend(wrong);
    }
}

/// Follows a question through the envelopes of its run.
fn follow(question: &QuestionPlan, events: &Events) -> Result<(), String> {
    let mut steps: Vec<_> = STEPS.iter().map(|(then, ms)| (*then, *ms)).collect();
    if let Wait::Rule { .. } = question.wait {
        steps.push(("decide", DECIDED_AFTER_MS));
    }
    let mut deadline = match question.wait {
        Wait::Deadline { ms, .. } => BEGIN_MS + ms,
        _ => i64::MAX,
    };
    let (mut since, mut done, mut has_ended) = (None, 0, false);
    for event in events.values() {
        let (kind, payload, at) = (text(event, "type"), &event["payload"], time(&event["receivedAt"]));
        let is_of_this = event["actionId"] == question.action.as_str();
        let step = match kind {
            "action.required" if is_of_this => {
                since = Some(at);
                continue;
            }
            "run.finished" => {
                let mut due =
                    steps.iter().skip(done).map(|(_, ms)| since.unwrap_or(i64::MAX).saturating_add(*ms)).chain([deadline]);
                let is_late = due.any(|due| due.saturating_add(DUE_WITHIN_MS) < at);
                return match since.is_some() && !has_ended && is_late {
                    true => Err(format!("what was due was not done before the end: {done} of {steps:?}")),
                    false => Ok(()),
                };
            }
            "action.resolved" if is_of_this => {
                let is_expired = payload["outcome"] == "expired";
                if is_expired && (has_ended || at < deadline) {
                    return Err(format!("it expires too early, or again: {event}"));
                }
                has_ended = true;
                continue;
            }
            "action.reminded" if is_of_this => "remind",
            "action.escalated" if is_of_this => "escalate",
            "control.changed" if is_of_this && payload["status"] == "submitted" && payload["decidedBy"]["via"] == "rule" => {
                "decide"
            }
            _ => continue,
        };
        // The wall clock may be set back between the look at what is due and the commit.
        let looked = [&payload["at"], &payload["decidedBy"]["at"]].into_iter().find(|looked| looked.is_string()).map_or(at, time);
        let is_due = |(then, ms): &(&str, i64)| *then == step && since.is_some_and(|since| looked >= since + ms);
        match steps.get(done) {
            _ if has_ended => return Err(format!("a step after its end: {event}")),
            Some(next) if is_due(next) => done += 1,
            // Where the owner refuses it, the question stays open as long as a decision may wait.
            _ if step == "decide" && at >= deadline => deadline = i64::MAX,
            _ => return Err(format!("a step that is not due, after {done} of {steps:?}: {event}")),
        }
    }
    Ok(())
}
