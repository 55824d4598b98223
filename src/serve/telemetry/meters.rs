//! `GET /metrics` in the Prometheus text format 0.0.4.
//!
//! One table, [`METRICS`], lists every metric. Each module keeps its own counters; other values are read at the scrape.
//! Counting costs one atomic addition per delivery and a few per body or commit. Names follow Prometheus: a unit at the
//! end, `_total` on counters.

use crate::cluster::Membership;
use crate::log::commit;
use crate::log::run_outcomes::{AgentOutcomes, RUN_BOUNDS_SECS};
use crate::log::sessions::{OwnerUse, Sessions};
use crate::meter::{BUCKET_BOUNDS_MICROS, Counter, Gauge, Histogram, LabelCounter};
use crate::model::Audience;
use crate::serve::App;
use crate::serve::maintenance::retain::{Retention, RuleCounts};
use crate::source::ledger::Status;
use crate::{feed, ingest};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

/// The transport of a reader's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Sse,
    WebSocket,
}

const TRANSPORTS: [(Transport, &str); 2] = [(Transport::Sse, "sse"), (Transport::WebSocket, "ws")];

/// The counters of the HTTP server.
#[derive(Debug, Default)]
pub struct Meters {
    /// Indexed by [`Audience::index`] and transport.
    readers: [[Gauge; TRANSPORTS.len()]; 3],
    /// Chunks of streams written to sockets, by transport.
    pub deliveries: [Counter; TRANSPORTS.len()],
    /// Translations of frames for existing clients.
    pub translations: Counter,
    /// Requests that received at least a response head; for a WebSocket its handshake.
    pub requests: Counter,
    /// The time until the head of the answer.
    pub request_times: Histogram,
    /// Connections accepted within the limits.
    pub connections: Counter,
    /// Problems sent over any transport, by code.
    pub problems: LabelCounter,
    /// Publishes refused in whole or from a line on, by code.
    pub refused: LabelCounter,
    /// Ended runs that the compaction has considered, the rows that it removed, and the runs that wait for it.
    pub compactions: Counter,
    pub compacted_rows: Counter,
    pub compactions_waiting: Gauge,
    /// Runs that were archived, and the bytes of their objects.
    pub archived_runs: Counter,
    pub archived_bytes: Counter,
}

impl Meters {
    /// Counts a reader until the value is dropped.
    #[must_use]
    pub fn reader(self: &Arc<Self>, audience: Audience, transport: Transport) -> Counted {
        self.readers[audience.index()][transport as usize].inc();
        Counted { meters: self.clone(), audience, transport }
    }

    /// The number of readers of this audience on this transport.
    #[must_use]
    pub fn reader_count(&self, audience: Audience, transport: Transport) -> u64 {
        self.readers[audience.index()][transport as usize].get()
    }
}

/// A counted reader.
#[derive(Debug)]
pub struct Counted {
    meters: Arc<Meters>,
    audience: Audience,
    transport: Transport,
}

impl Counted {
    /// Counts a chunk written to the reader.
    pub fn delivered(&self) {
        self.meters.deliveries[self.transport as usize].add(1);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.meters.readers[self.audience.index()][self.transport as usize].dec();
    }
}

/// One metric.
pub struct Metric {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    read: fn(&Scrape<'_>, &mut Samples<'_>),
}

/// The state that one scrape reads.
struct Scrape<'a> {
    app: &'a App,
    store_bytes: u64,
}

impl Scrape<'_> {
    fn ingest(&self) -> &ingest::IngestCounters {
        self.app.ingest.counts()
    }

    fn log(&self) -> &commit::CommitCounters {
        self.app.logs.counts()
    }

    fn cluster(&self, read: impl FnOnce(&Membership)) {
        if let Some(cluster) = &self.app.cluster {
            read(&cluster.membership);
        }
    }

    /// How runs ended, by agent. Followers count the same runs, and do not show them.
    fn outcomes(&self) -> Vec<(Box<str>, AgentOutcomes)> {
        if self.app.logs.leadership().leads() { self.app.logs.run_outcomes().all() } else { Vec::new() }
    }

    fn feed(&self) -> &feed::ReaderCounts {
        self.app.feed.counts()
    }
}

/// The output of one metric's samples.
struct Samples<'o> {
    name: &'static str,
    out: &'o mut String,
}

impl Samples<'_> {
    fn one(&mut self, value: impl Display) {
        self.labelled("", value);
    }

    /// `labels`: the text between the braces.
    fn labelled(&mut self, labels: &str, value: impl Display) {
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.out, "{}{braced} {value}", self.name).expect("writing to a String succeeds");
    }

    fn named(&mut self, label: &str, counts: &LabelCounter) {
        for (name, count) in counts.all() {
            self.labelled(&format!("{label}=\"{name}\""), count);
        }
    }

    /// One sample for each rule of retention.
    fn of_rules(&mut self, retention: &Retention, read: impl Fn(&RuleCounts) -> f64) {
        for (rule, counts) in retention.rules.0.iter().zip(&retention.counts) {
            self.labelled(&format!("rule=\"{}\"", escaped(&rule.name)), read(counts));
        }
    }

    /// One sample for each owner, up to [`OWNERS_MAX`].
    fn of_owners(&mut self, sessions: &Sessions, read: impl Fn(OwnerUse) -> u64) {
        for (owner, of) in sessions.uses(OWNERS_MAX) {
            self.labelled(&format!("owner=\"{}\"", escaped(owner.as_str())), read(of));
        }
    }

    fn histogram(&mut self, of: &Histogram) {
        let bounds = BUCKET_BOUNDS_MICROS.map(|bound| seconds(Duration::from_micros(bound)));
        self.labelled_histogram("", &bounds, &of.buckets(), of.sum());
    }

    /// One histogram of those of a metric. `buckets`: one count for each bound, in seconds, and one for larger values.
    fn labelled_histogram(&mut self, labels: &str, bounds: &[f64], buckets: &[u64], sum: Duration) {
        let (mut total, name) = (0, self.name);
        let (braced, before_le) = match labels {
            "" => (String::new(), String::new()),
            labels => (format!("{{{labels}}}"), format!("{labels},")),
        };
        let mut line =
            |part: &str, value: &dyn Display| writeln!(self.out, "{name}_{part} {value}").expect("writing to a String succeeds");
        let bounds = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(buckets) {
            total += count;
            line(&format!("bucket{{{before_le}le=\"{bound}\"}}"), &total);
        }
        line(&format!("sum{braced}"), &seconds(sum));
        line(&format!("count{braced}"), &total);
    }
}

/// A text in the quotes of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The resident memory of the process, as Linux reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Owners whose use the metrics show: the first ones by name. Each label is a series of its own for who stores them.
const OWNERS_MAX: usize = 200;

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// Every metric, in output order.
pub static METRICS: &[Metric] = &[
    Metric {
        name: "proscenium_facts_accepted_total",
        kind: COUNTER,
        help: "Facts accepted into a log.",
        read: |of, to| to.one(of.ingest().accepted.get()),
    },
    Metric {
        name: "proscenium_facts_duplicate_total",
        kind: COUNTER,
        help: "Facts that a producer sent again, recognised as duplicates.",
        read: |of, to| to.one(of.ingest().duplicates.get()),
    },
    Metric {
        name: "proscenium_facts_shed_total",
        kind: COUNTER,
        help: "Diagnostics and metrics dropped because too much data was in flight to the store.",
        read: |of, to| to.one(of.ingest().shed.get()),
    },
    Metric {
        name: "proscenium_publishes_refused_total",
        kind: COUNTER,
        help: "Publishes refused in whole or from a line on, by problem code.",
        read: |of, to| to.named("code", &of.app.meters.refused),
    },
    Metric {
        name: "proscenium_envelopes_total",
        kind: COUNTER,
        help: "Envelopes of runs and sessions written, including those that the server adds.",
        read: |of, to| to.one(of.ingest().envelopes.get()),
    },
    Metric {
        name: "proscenium_feedback_total",
        kind: COUNTER,
        help: "Feedback about runs and messages, by thumb: up, down, none (words alone) and withdrawn.",
        read: |of, to| to.named("thumb", &of.app.feedback.given),
    },
    Metric {
        name: "proscenium_blobs_total",
        kind: COUNTER,
        help: "Bodies moved out of their envelopes.",
        read: |of, to| to.one(of.ingest().blobs.get()),
    },
    Metric {
        name: "proscenium_blob_bytes_total",
        kind: COUNTER,
        help: "Bytes of the bodies moved out of their envelopes.",
        read: |of, to| to.one(of.ingest().blob_bytes.get()),
    },
    Metric {
        name: "proscenium_runs_stale_total",
        kind: COUNTER,
        help: "Times that the server declared a run stale.",
        read: |of, to| to.one(of.ingest().stale.get()),
    },
    Metric {
        name: "proscenium_runs_settled_total",
        kind: COUNTER,
        help: "Runs that the server settled, by itself or on request.",
        read: |of, to| to.one(of.ingest().settled.get()),
    },
    Metric {
        name: "proscenium_runs",
        kind: GAUGE,
        help: "Runs in the store, by status.",
        read: |of, to| {
            for status in Status::ALL {
                to.labelled(&format!("status=\"{}\"", status.as_str()), of.app.logs.runs().count_of(status));
            }
        },
    },
    Metric {
        name: "proscenium_runs_ended_total",
        kind: COUNTER,
        help: "Runs whose end this node committed since its start, by agent and by status; only on a node that leads. Agents after the first 100 have an empty name.",
        read: |of, to| {
            for (agent, outcomes) in of.outcomes() {
                for (status, count) in outcomes.ended {
                    to.labelled(&format!("agent=\"{}\",status=\"{status}\"", escaped(&agent)), count);
                }
            }
        },
    },
    Metric {
        name: "proscenium_run_seconds",
        kind: HISTOGRAM,
        help: "Time from the start of these runs to their end, by agent.",
        read: |of, to| {
            for (agent, outcomes) in of.outcomes() {
                let (labels, took) = (format!("agent=\"{}\"", escaped(&agent)), Duration::from_millis(outcomes.took_ms));
                to.labelled_histogram(&labels, &RUN_BOUNDS_SECS.map(f64::from), &outcomes.durations, took);
            }
        },
    },
    Metric {
        name: "proscenium_in_flight_bytes",
        kind: GAUGE,
        help: "Bytes of facts in flight to the store.",
        read: |of, to| to.one(of.app.ingest.in_flight_bytes()),
    },
    Metric {
        name: "proscenium_owner_sessions",
        kind: GAUGE,
        help: "Sessions by owner, of the first 200 owners by name.",
        read: |of, to| to.of_owners(of.app.logs.sessions(), |used| used.sessions),
    },
    Metric {
        name: "proscenium_owner_bytes",
        kind: GAUGE,
        help: "Bytes of envelopes and bodies by owner, as they were written, of the first 200 owners by name.",
        read: |of, to| to.of_owners(of.app.logs.sessions(), |used| used.bytes),
    },
    Metric {
        name: "proscenium_owner_turns",
        kind: GAUGE,
        help: "Runs at work, and messages that wait for an agent, by owner, of the first 200 owners by name.",
        read: |of, to| to.of_owners(of.app.logs.sessions(), |used| used.turns),
    },
    Metric {
        name: "proscenium_notifications_waiting",
        kind: GAUGE,
        help: "Messages to webhooks and devices that wait for their receiver; 0 on a node that does not lead.",
        read: |of, to| to.one(of.app.notifier.waiting.get()),
    },
    Metric {
        name: "proscenium_notification_attempts_total",
        kind: COUNTER,
        help: "Attempts to send such a message, by result: delivered, retried, failed (the last of ten) and dropped (erased).",
        read: |of, to| to.named("result", &of.app.notifier.attempts),
    },
    Metric {
        name: "proscenium_notifications_refused_total",
        kind: COUNTER,
        help: "Messages that no destination gets, because 10000 others wait for it.",
        read: |of, to| to.one(of.app.notifier.dropped.get()),
    },
    Metric {
        name: "proscenium_actions_waiting",
        kind: GAUGE,
        help: "Actions that wait for a decision, without those whose decision is under way.",
        read: |of, to| to.one(of.app.logs.pending_actions().unanswered(Audience::Internal)),
    },
    Metric {
        name: "proscenium_action_oldest_seconds",
        kind: GAUGE,
        help: "How long the oldest action has waited for its decision; 0 if none waits.",
        read: |of, to| {
            let (oldest, now) = (of.app.logs.pending_actions().list(None, 1), (of.app.environment.now)().as_millisecond());
            let waited = oldest.first().map_or(0, |asked| (now - asked.asked_at).max(0));
            to.one(waited as f64 / 1000.0);
        },
    },
    Metric {
        name: "proscenium_controls_waiting",
        kind: GAUGE,
        help: "Controls that no runtime has claimed.",
        read: |of, to| to.one(of.app.logs.queues().unclaimed()),
    },
    Metric {
        name: "proscenium_traces_total",
        kind: COUNTER,
        help: "Runs sent to the collector of --genai-endpoint, by result: exported, partial (the run goes on), refused (by the collector) and skipped (erased).",
        read: |of, to| to.named("result", &of.app.trace_meters.traces),
    },
    Metric {
        name: "proscenium_trace_failures_total",
        kind: COUNTER,
        help: "Attempts to send a trace that failed and are repeated.",
        read: |of, to| to.one(of.app.trace_meters.failures.get()),
    },
    Metric {
        name: "proscenium_trace_lag_seconds",
        kind: GAUGE,
        help: "Time since the oldest run ended that waits for its export; 0 if none waits, and on a node that does not lead.",
        read: |of, to| {
            let now = (of.app.environment.now)().as_millisecond();
            to.one(of.app.trace_meters.lag_ms(now) as f64 / 1000.0);
        },
    },
    Metric {
        name: "proscenium_appends_waiting",
        kind: GAUGE,
        help: "Appends waiting for the committer.",
        read: |of, to| to.one(of.app.logs.waiting()),
    },
    Metric {
        name: "proscenium_appends_total",
        kind: COUNTER,
        help: "Appends that the committer passed to the store, including empty ones.",
        read: |of, to| to.one(of.log().appends.get()),
    },
    Metric {
        name: "proscenium_commit_seconds",
        kind: HISTOGRAM,
        help: "Time to commit a group of appends.",
        read: |of, to| to.histogram(&of.log().commits),
    },
    Metric {
        name: "proscenium_deliver_seconds",
        kind: HISTOGRAM,
        help: "Time from the commit of a flush's first envelope until all readers of the log were notified.",
        read: |of, to| to.histogram(&of.feed().flushes),
    },
    Metric {
        name: "proscenium_lag_seconds",
        kind: GAUGE,
        help: "Age of the oldest committed envelope that a waiting reader has not been notified of.",
        read: |of, to| to.one(seconds(of.app.feed.lag())),
    },
    Metric {
        name: "proscenium_frames_total",
        kind: COUNTER,
        help: "Live frames encoded, once for all readers of a log, audience and kind.",
        read: |of, to| to.one(of.feed().frames.get()),
    },
    Metric {
        name: "proscenium_translations_total",
        kind: COUNTER,
        help: "Chunks of frames translated into the formats of existing clients. Readers with equal options share them.",
        read: |of, to| to.one(of.app.meters.translations.get()),
    },
    Metric {
        name: "proscenium_deliveries_total",
        kind: COUNTER,
        help: "Chunks of streams written to readers: several frames on sse, one message on ws.",
        read: |of, to| {
            for (transport, name) in TRANSPORTS {
                to.labelled(&format!("transport=\"{name}\""), of.app.meters.deliveries[transport as usize].get());
            }
        },
    },
    Metric {
        name: "proscenium_readers",
        kind: GAUGE,
        help: "Readers, by audience and transport. A reader of several runs counts once.",
        read: |of, to| {
            for audience in Audience::ALL {
                for (transport, name) in TRANSPORTS {
                    let labels = format!("audience=\"{audience}\",transport=\"{name}\"");
                    to.labelled(&labels, of.app.meters.reader_count(audience, transport));
                }
            }
        },
    },
    Metric {
        name: "proscenium_ring_misses_total",
        kind: COUNTER,
        help: "Times that a reader fell behind its ring and continued from the log or from snapshots.",
        read: |of, to| to.one(of.feed().ring_misses.get()),
    },
    Metric {
        name: "proscenium_page_cache_bytes",
        kind: GAUGE,
        help: "Bytes in the cache of older frames.",
        read: |of, to| to.one(of.app.feed.page_bytes()),
    },
    Metric {
        name: "proscenium_checkpoints_total",
        kind: COUNTER,
        help: "Checkpoints saved, one per audience.",
        read: |of, to| to.one(of.log().checkpoints.get()),
    },
    Metric {
        name: "proscenium_logs",
        kind: GAUGE,
        help: "Logs in the store, of runs and of sessions.",
        read: |of, to| to.one(of.app.logs.log_count()),
    },
    Metric {
        name: "proscenium_logs_open",
        kind: GAUGE,
        help: "Logs in memory because they are being written or read.",
        read: |of, to| to.one(of.app.logs.open_count()),
    },
    Metric {
        name: "proscenium_store_bytes",
        kind: GAUGE,
        help: "Bytes of the store on disk; 0 for the memory store.",
        read: |of, to| to.one(of.store_bytes),
    },
    Metric {
        name: "proscenium_erased_bytes",
        kind: GAUGE,
        help: "Bytes, before compression, of what was erased and has not left the files of the store yet: --erase-within.",
        read: |of, to| to.one(of.app.logs.remains().bytes),
    },
    Metric {
        name: "proscenium_compactions_total",
        kind: COUNTER,
        help: "Ended runs that the compaction has considered: --compact-after.",
        read: |of, to| to.one(of.app.meters.compactions.get()),
    },
    Metric {
        name: "proscenium_compacted_rows_total",
        kind: COUNTER,
        help: "Envelopes that the compaction has removed from ended runs.",
        read: |of, to| to.one(of.app.meters.compacted_rows.get()),
    },
    Metric {
        name: "proscenium_compaction_runs_waiting",
        kind: GAUGE,
        help: "Ended runs that are due for compaction, as of its last look.",
        read: |of, to| to.one(of.app.meters.compactions_waiting.get()),
    },
    Metric {
        name: "proscenium_archived_runs_total",
        kind: COUNTER,
        help: "Ended runs whose envelopes were moved to object storage: --archive-after.",
        read: |of, to| to.one(of.app.meters.archived_runs.get()),
    },
    Metric {
        name: "proscenium_archived_bytes_total",
        kind: COUNTER,
        help: "Bytes of the objects that were stored for them.",
        read: |of, to| to.one(of.app.meters.archived_bytes.get()),
    },
    Metric {
        name: "proscenium_archive_fetches_total",
        kind: COUNTER,
        help: "Archived runs that were fetched from object storage for a reader.",
        read: |of, to| to.one(of.app.logs.archive().fetched.get()),
    },
    Metric {
        name: "proscenium_archive_fetched_bytes_total",
        kind: COUNTER,
        help: "Bytes that were fetched from object storage.",
        read: |of, to| to.one(of.app.logs.archive().fetched_bytes.get()),
    },
    Metric {
        name: "proscenium_archive_failures_total",
        kind: COUNTER,
        help: "Fetches from object storage that failed.",
        read: |of, to| to.one(of.app.logs.archive().failed_fetches.get()),
    },
    Metric {
        name: "proscenium_archive_cache_bytes",
        kind: GAUGE,
        help: "Bytes of archived runs on this machine: --archive-cache-bytes.",
        read: |of, to| to.one(of.app.logs.archive().cache_bytes()),
    },
    Metric {
        name: "proscenium_retention_erased_sessions_total",
        kind: COUNTER,
        help: "Sessions whose erasure a rule of retention began on this node, by rule, with those below them.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.erased_sessions.get() as f64),
    },
    Metric {
        name: "proscenium_retention_erased_runs_total",
        kind: COUNTER,
        help: "Runs that a rule of retention erased on this node, by rule: those of its sessions, and those without a session.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.erased_runs.get() as f64),
    },
    Metric {
        name: "proscenium_retention_compacted_runs_total",
        kind: COUNTER,
        help: "Runs that a rule of retention compacted on this node, by rule.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.compacted_runs.get() as f64),
    },
    Metric {
        name: "proscenium_retention_due_waiting",
        kind: GAUGE,
        help: "Sessions (each with those below it) and runs that a rule of retention is due for and has not erased or compacted yet, by rule, by the last look; 0 on a node that does not lead.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.due.get() as f64),
    },
    Metric {
        name: "proscenium_retention_overdue_seconds",
        kind: GAUGE,
        help: "For how long the first of them has been due, by rule; 0 if none waits.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.overdue_ms.get() as f64 / 1000.0),
    },
    Metric {
        name: "proscenium_retention_held_waiting",
        kind: GAUGE,
        help: "Sessions (each with those below it) and runs that a rule of retention is due for and a legal hold keeps, by rule, by the last look; 0 on a node that does not lead.",
        read: |of, to| to.of_rules(&of.app.retention, |rule| rule.held.get() as f64),
    },
    Metric {
        name: "proscenium_search_commits_waiting",
        kind: GAUGE,
        help: "Commits whose texts a search does not find yet.",
        read: |of, to| to.one(of.app.logs.position().saturating_sub(of.app.search.position())),
    },
    Metric {
        name: "proscenium_search_bytes",
        kind: GAUGE,
        help: "Bytes on disk of the index of texts; 0 for the memory store.",
        read: |of, to| to.one(of.app.search.bytes()),
    },
    Metric {
        name: "proscenium_search_unsaved_bytes",
        kind: GAUGE,
        help: "Bytes in memory of the index of texts, which a save writes to disk or the next start makes again.",
        read: |of, to| to.one(of.app.search.unsaved_bytes()),
    },
    Metric {
        name: "proscenium_disk_free_bytes",
        kind: GAUGE,
        help: "Free bytes on the store's disk at the last check; absent if unchecked.",
        read: |of, to| {
            if let Some(free) = of.app.disk.free() {
                to.one(free);
            }
        },
    },
    Metric {
        name: "proscenium_connections",
        kind: GAUGE,
        help: "Open connections.",
        read: |of, to| to.one(of.app.client_connections.total()),
    },
    Metric {
        name: "proscenium_connections_total",
        kind: COUNTER,
        help: "Connections accepted within the limits.",
        read: |of, to| to.one(of.app.meters.connections.get()),
    },
    Metric {
        name: "proscenium_requests_total",
        kind: COUNTER,
        help: "Requests answered; for a WebSocket its handshake.",
        read: |of, to| to.one(of.app.meters.requests.get()),
    },
    Metric {
        name: "proscenium_request_seconds",
        kind: HISTOGRAM,
        help: "Time from a request until the head of its answer.",
        read: |of, to| to.histogram(&of.app.meters.request_times),
    },
    Metric {
        name: "proscenium_problems_total",
        kind: COUNTER,
        help: "Problems sent over any transport, by code.",
        read: |of, to| to.named("code", &of.app.meters.problems),
    },
    Metric {
        name: "proscenium_log_lines_lost_total",
        kind: COUNTER,
        help: "Log lines that could not be written, because the disk was full or the pipe closed.",
        read: |of, to| to.one(of.app.lost_log_lines.get()),
    },
    Metric {
        name: "proscenium_cluster_leader_info",
        kind: GAUGE,
        help: "In a cluster: 1 if this node leads, otherwise 0.",
        read: |of, to| of.cluster(|_| to.one(u8::from(of.app.logs.leadership().leads()))),
    },
    Metric {
        name: "proscenium_cluster_takeovers_total",
        kind: COUNTER,
        help: "In a cluster: how often this node has become the leader.",
        read: |of, to| of.cluster(|cluster| to.one(cluster.takeovers())),
    },
    Metric {
        name: "proscenium_cluster_lag_commits_waiting",
        kind: GAUGE,
        help: "In a cluster: commits that this node knows of and has not applied.",
        read: |of, to| of.cluster(|cluster| to.one(cluster.lag(of.app.logs.mark().applied).0)),
    },
    Metric {
        name: "proscenium_cluster_lag_seconds",
        kind: GAUGE,
        help: "In a cluster: for how long this node has been behind.",
        read: |of, to| of.cluster(|cluster| to.one(seconds(cluster.lag(of.app.logs.mark().applied).1))),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: GAUGE,
        help: "Resident memory of the process; absent where the system does not report it.",
        read: |_, to| {
            if let Some(bytes) = resident_bytes() {
                to.one(bytes);
            }
        },
    },
    Metric {
        name: "process_start_time_seconds",
        kind: GAUGE,
        help: "Start time of the server, in seconds since 1970.",
        read: |of, to| to.one(of.app.started.as_millisecond() as f64 / 1000.0),
    },
    Metric {
        name: "proscenium_build_info",
        kind: GAUGE,
        help: "Always 1. The labels name the running build.",
        read: |_, to| to.labelled(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1),
    },
];

/// All metrics as text.
pub async fn text(app: &App) -> String {
    let store_bytes = app.logs.bytes().await;
    let scrape = Scrape { app, store_bytes };
    let mut out = String::with_capacity(16 * 1024);
    for Metric { name, kind, help, read } in METRICS {
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a String succeeds");
        read(&scrape, &mut Samples { name, out: &mut out });
    }
    out
}

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`
pub async fn get(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")], text(&app).await).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_unique_name_with_a_unit_and_is_documented() {
        let page = include_str!("../../../docs/src/reference/metrics.md");
        let units = [
            "_total",
            "_seconds",
            "_bytes",
            "_info",
            "_readers",
            "_waiting",
            "_connections",
            "_logs",
            "_logs_open",
            "_sessions",
            "_turns",
            "_runs",
        ];
        for (n, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..n].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert!(units.iter().any(|unit| metric.name.ends_with(unit)), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == COUNTER, "{}", metric.name);
            assert!(page.contains(&format!("`{}`", metric.name)), "{} is not in docs/src/reference/metrics.md", metric.name);
        }
    }
}
