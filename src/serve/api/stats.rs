//! Statistics of runs: counts, cost, tokens, durations and waits, in total and by time, agent or status.
//!
//! A run counts at the time when it started, with all that it cost and all its waits. They come from the
//! [index of runs](crate::log::run_index) alone, after the token, the audience and the filter.

use super::hydrate::usage_json;
use super::run_filter::{RunFilter, agent_name, of_member, since_of};
use super::run_list::StatusCounts;
use crate::log::figures::Usage;
use crate::log::run_index::IndexedRun;
use crate::model::Audience;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, quoted};
use crate::serve::http::response::{echo, no_store_json};
use axum::extract::State;
use axum::response::Response;
use http::Uri;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Buckets of one answer.
pub const STATS_BUCKETS_MAX: usize = 10_000;
/// From when runs count, unless the request says so.
const SINCE_DEFAULT: &str = "24h";
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What a bucket is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct BucketKey {
    /// The start of its hour or day, in milliseconds since 1970.
    at: Option<i64>,
    agent: Option<Box<str>>,
    status: Option<&'static str>,
}

/// How runs are divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Division {
    /// The length of a period, in milliseconds. `None`: all time is one.
    period: Option<i64>,
    by_agent: bool,
    by_status: bool,
}

impl Division {
    fn from_query(query: &Query) -> Result<Self, Problem> {
        let mut division = Self::default();
        for name in query.list("by")? {
            match &*name {
                "hour" if division.period.is_none() => division.period = Some(HOUR_MS),
                "day" if division.period.is_none() => division.period = Some(DAY_MS),
                "agent" if !division.by_status => division.by_agent = true,
                "status" if !division.by_agent => division.by_status = true,
                _ => {
                    let detail = format!("by has {}. It must be hour or day, agent or status, or one of each.", quoted(&name));
                    return Err(Problem::bad_request("bad_query", detail).with("member", "by"));
                }
            }
        }
        Ok(division)
    }

    fn key(self, run: &IndexedRun<'_>, started: i64, audience: Audience) -> BucketKey {
        BucketKey {
            at: self.period.map(|period| started.div_euclid(period) * period),
            agent: self.by_agent.then(|| agent_name(run).into()),
            status: self.by_status.then(|| run.status(audience).as_str()),
        }
    }

    const fn is_whole(self) -> bool {
        self.period.is_none() && !self.by_agent && !self.by_status
    }
}

/// The sums and values of the runs of a bucket.
#[derive(Debug, Default)]
struct Bucket {
    runs: usize,
    status: StatusCounts,
    usage: Usage,
    durations: Vec<u64>,
    waits: Vec<u64>,
}

impl Bucket {
    fn add(&mut self, run: &IndexedRun<'_>, audience: Audience) {
        self.runs += 1;
        self.status.count(run.status(audience));
        if let Some(usage) = run.usage(audience) {
            self.usage.add(&usage);
        }
        self.durations.extend(run.duration());
        self.waits.extend(run.waits(audience));
    }

    fn into_json(mut self) -> Map<String, Value> {
        let status = self.status.to_json().into();
        let mut members = Map::from_iter([("runs".to_owned(), self.runs.into()), ("status".to_owned(), status)]);
        if self.usage != Usage::default() {
            members.insert("usage".into(), usage_json(self.usage));
        }
        for (member, values) in [("durationMs", &mut self.durations), ("waitedMs", &mut self.waits)] {
            if let (Some(p50), Some(p95)) = (percentile(values, 50), percentile(values, 95)) {
                members.insert(member.into(), json!({ "count": values.len(), "p50": p50, "p95": p95 }));
            }
        }
        members
    }
}

/// The smallest value that so many percent of all are at or below. `None` without values.
fn percentile(values: &mut [u64], percent: usize) -> Option<u64> {
    let at = (values.len() * percent).div_ceil(100).checked_sub(1)?;
    Some(*values.select_nth_unstable(at).1)
}

/// What a client asks for.
struct Wanted {
    audience: Audience,
    /// The earliest start, in milliseconds since 1970.
    since: i64,
    division: Division,
    filter: RunFilter,
    authorization: Authorization,
}

/// `GET /v1/stats`: figures of the runs that started since a time.
pub async fn stats(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let query = Query::from_uri(&uri);
    let now = (app.environment.now)();
    let since = query.get("since").filter(|since| !since.is_empty()).unwrap_or(SINCE_DEFAULT);
    let wanted = Wanted {
        audience: query.audience()?,
        since: since_of(since, now).ok_or_else(|| {
            let detail = format!("since is {}. It must be a time such as 90s, 15m, 24h or 7d, or a date.", quoted(since));
            Problem::bad_request("bad_query", detail).with("member", "since")
        })?,
        division: Division::from_query(&query)?,
        filter: RunFilter::parse(query.get("filter").unwrap_or_default(), now).map_err(|bad| of_member(bad, "filter"))?,
        authorization,
    };
    if wanted.filter.words.is_some() {
        let detail = "The filter has words. Statistics do not search in texts. Use terms with names.";
        return Err(Problem::bad_request("bad_query", detail).with("member", "filter"));
    }
    let since = time_text(wanted.since);
    let of = app.clone();
    let counted = app.logs.work(move |_| wanted.count(&of)).await;
    let (total, buckets) = counted.ok_or_else(|| {
        let detail = format!("The answer has more than {STATS_BUCKETS_MAX} buckets, the limit. Ask for days, or a later since.");
        Problem::bad_request("bad_query", detail).with("member", "by").with("limit", STATS_BUCKETS_MAX)
    })?;
    let buckets: Vec<Value> = buckets.into_iter().map(|(key, bucket)| bucket_json(key, bucket)).collect();
    Ok(no_store_json(echo(&query, json!({ "since": since, "total": total.into_json(), "buckets": buckets }))))
}

fn time_text(at: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(at).ok().map(|at| format!("{at:.3}"))
}

fn bucket_json(key: BucketKey, bucket: Bucket) -> Value {
    let (at, agent) = (key.at.and_then(time_text).map(Value::from), key.agent.map(|agent| Value::from(&*agent)));
    let parts = [("at", at), ("agent", agent), ("status", key.status.map(Value::from))];
    let key: Map<_, _> = parts.into_iter().filter_map(|(part, value)| Some((part.to_owned(), value?))).collect();
    let mut members = bucket.into_json();
    members.insert("key".into(), key.into());
    members.into()
}

impl Wanted {
    /// Counts the runs. `None`: they are in more buckets than one answer has.
    fn count(&self, app: &App) -> Option<(Bucket, BTreeMap<BucketKey, Bucket>)> {
        let (mut total, mut buckets) = (Bucket::default(), BTreeMap::<BucketKey, Bucket>::new());
        app.logs.runs().visit(|run| {
            let Some(started) = run.started().filter(|started| *started >= self.since) else { return ControlFlow::Continue(()) };
            let is_covered = self.authorization.covers_run(run.run(), run.session(), run.owner());
            if is_covered && self.filter.judge(&run, self.audience).is_met() {
                total.add(&run, self.audience);
                if !self.division.is_whole() {
                    buckets.entry(self.division.key(&run, started, self.audience)).or_default().add(&run, self.audience);
                }
            }
            if buckets.len() > STATS_BUCKETS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        (buckets.len() <= STATS_BUCKETS_MAX).then_some((total, buckets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        assert_eq!(percentile(&mut [], 50), None);
        assert_eq!((percentile(&mut [7], 50), percentile(&mut [7], 95)), (Some(7), Some(7)));
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!((percentile(&mut values, 50), percentile(&mut values, 95)), (Some(50), Some(95)));
        assert_eq!(percentile(&mut [30, 10, 20], 50), Some(20));
    }
}
