//! `GET /metrics`: what there is to count, by name, as Prometheus reads it (text format 0.0.4).
//!
//! One table, [`METRICS`], says what is shown; the stages keep their own counts, and what has none is asked for at the scrape.
//! Counting costs an atomic addition a delivery and a few a body or commit. Names follow Prometheus: a unit at the end,
//! `_total` on what only grows.

use super::App;
use super::access::Right;
use crate::auth::rights::Verb;
use crate::log::{Store, run};
use crate::meter::{BOUNDS_MICROS, ByName, Counter, Gauge, Histogram};
use crate::model::Audience;
use crate::{feed, ingest};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

/// What it takes to look.
pub const RIGHT: Right = Right::To(Verb::Admin);

/// Who carries a reader's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Sse,
    WebSocket,
}

const TRANSPORTS: [(Transport, &str); 2] = [(Transport::Sse, "sse"), (Transport::WebSocket, "ws")];

/// What the edge counts itself.
#[derive(Debug, Default)]
pub struct Meters {
    /// By [`Audience::index`] and transport.
    readers: [[Gauge; TRANSPORTS.len()]; 3],
    /// Pieces of streams that were handed to sockets, by transport.
    pub deliveries: [Counter; TRANSPORTS.len()],
    /// Requests that were answered, or at least their heads; of a WebSocket the handshake.
    pub requests: Counter,
    /// Connections that were accepted and had a place.
    pub connections: Counter,
    /// Problems that were told, on any transport, by code.
    pub problems: ByName,
    /// Bodies and messages of facts that were refused, in whole or from a line on, by code.
    pub refused: ByName,
}

impl Meters {
    /// A reader, for as long as the value is held.
    #[must_use]
    pub fn reader(self: &Arc<Self>, audience: Audience, transport: Transport) -> Counted {
        self.readers[audience.index()][transport as usize].rise();
        Counted { meters: self.clone(), audience, transport }
    }

    /// How many readers of this audience there are on this transport.
    #[must_use]
    pub fn reader_count(&self, audience: Audience, transport: Transport) -> u64 {
        self.readers[audience.index()][transport as usize].get()
    }
}

/// A reader that is counted.
#[derive(Debug)]
pub struct Counted {
    meters: Arc<Meters>,
    audience: Audience,
    transport: Transport,
}

impl Counted {
    /// It was handed a piece.
    pub fn delivered(&self) {
        self.meters.deliveries[self.transport as usize].add(1);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.meters.readers[self.audience.index()][self.transport as usize].fall();
    }
}

/// One metric.
pub struct Metric {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    read: fn(&Scrape<'_>, &mut Samples<'_>),
}

/// What a scrape looks at.
struct Scrape<'a> {
    app: &'a App,
    store_bytes: u64,
}

impl Scrape<'_> {
    fn ingest(&self) -> &ingest::Counts {
        self.app.ingest.counts()
    }

    fn log(&self) -> &run::Counts {
        self.app.logs.counts()
    }

    fn feed(&self) -> &feed::Counts {
        self.app.feed.counts()
    }
}

/// Where one metric's samples go.
struct Samples<'o> {
    name: &'static str,
    out: &'o mut String,
}

impl Samples<'_> {
    fn one(&mut self, value: impl Display) {
        self.labelled("", value);
    }

    /// `labels` as they stand between the braces.
    fn labelled(&mut self, labels: &str, value: impl Display) {
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        writeln!(self.out, "{}{braced} {value}", self.name).expect("a String takes every byte");
    }

    fn named(&mut self, label: &str, counts: &ByName) {
        for (name, count) in counts.all() {
            self.labelled(&format!("{label}=\"{name}\""), count);
        }
    }

    fn histogram(&mut self, of: &Histogram) {
        let (buckets, sum, name) = (of.buckets(), of.sum(), self.name);
        let mut total = 0;
        let mut line = |part: &str, value: &dyn Display| writeln!(self.out, "{name}_{part} {value}").expect("a String takes it");
        for (bound, count) in BOUNDS_MICROS.iter().zip(buckets) {
            total += count;
            line(&format!("bucket{{le=\"{}\"}}", seconds(Duration::from_micros(*bound))), &total);
        }
        total += buckets[BOUNDS_MICROS.len()];
        line("bucket{le=\"+Inf\"}", &total);
        line("sum", &seconds(sum));
        line("count", &total);
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// Every metric, in the order in which they are shown.
pub static METRICS: &[Metric] = &[
    Metric {
        name: "proscenium_facts_accepted_total",
        kind: COUNTER,
        help: "Facts that were taken into a log.",
        read: |of, to| to.one(of.ingest().accepted.get()),
    },
    Metric {
        name: "proscenium_facts_duplicate_total",
        kind: COUNTER,
        help: "Facts that a producer sent again and that were known already.",
        read: |of, to| to.one(of.ingest().duplicates.get()),
    },
    Metric {
        name: "proscenium_facts_shed_total",
        kind: COUNTER,
        help: "Diagnostics and metrics that were left out because too much was under way to the store.",
        read: |of, to| to.one(of.ingest().shed.get()),
    },
    Metric {
        name: "proscenium_publishes_refused_total",
        kind: COUNTER,
        help: "Bodies and messages of facts that were refused, in whole or from a line on, by the problem's code.",
        read: |of, to| to.named("code", &of.app.meters.refused),
    },
    Metric {
        name: "proscenium_envelopes_total",
        kind: COUNTER,
        help: "Envelopes that were written, the server's own among them.",
        read: |of, to| to.one(of.ingest().envelopes.get()),
    },
    Metric {
        name: "proscenium_blobs_total",
        kind: COUNTER,
        help: "Bodies that were moved out of their envelopes.",
        read: |of, to| to.one(of.ingest().blobs.get()),
    },
    Metric {
        name: "proscenium_blob_bytes_total",
        kind: COUNTER,
        help: "Bytes of the bodies that were moved out of their envelopes.",
        read: |of, to| to.one(of.ingest().blob_bytes.get()),
    },
    Metric {
        name: "proscenium_runs_stale_total",
        kind: COUNTER,
        help: "Times that a run was said to be stale.",
        read: |of, to| to.one(of.ingest().stale.get()),
    },
    Metric {
        name: "proscenium_runs_settled_total",
        kind: COUNTER,
        help: "Runs that the server ended, by itself or because somebody asked.",
        read: |of, to| to.one(of.ingest().settled.get()),
    },
    Metric {
        name: "proscenium_in_flight_bytes",
        kind: GAUGE,
        help: "Bytes of facts under way to the store.",
        read: |of, to| to.one(of.app.ingest.in_flight_bytes()),
    },
    Metric {
        name: "proscenium_appends_waiting",
        kind: GAUGE,
        help: "Appends that wait for the committer.",
        read: |of, to| to.one(of.app.logs.waiting()),
    },
    Metric {
        name: "proscenium_appends_total",
        kind: COUNTER,
        help: "Appends that the committer handed to the store, empty ones too.",
        read: |of, to| to.one(of.log().appends.get()),
    },
    Metric {
        name: "proscenium_commit_seconds",
        kind: HISTOGRAM,
        help: "How long the store took to commit a group of appends.",
        read: |of, to| to.histogram(&of.log().commits),
    },
    Metric {
        name: "proscenium_deliver_seconds",
        kind: HISTOGRAM,
        help: "From the commit of a flush's first envelope until all readers of the log were told of it.",
        read: |of, to| to.histogram(&of.feed().flushes),
    },
    Metric {
        name: "proscenium_lag_seconds",
        kind: GAUGE,
        help: "How long the oldest envelope has been committed that somebody reads and was not told of yet.",
        read: |of, to| to.one(seconds(of.app.feed.lag())),
    },
    Metric {
        name: "proscenium_frames_total",
        kind: COUNTER,
        help: "Frames that were encoded as they came: once for all readers of a log, audience and kind.",
        read: |of, to| to.one(of.feed().frames.get()),
    },
    Metric {
        name: "proscenium_deliveries_total",
        kind: COUNTER,
        help: "Pieces of streams that were handed to readers: on sse some frames each, on ws one message.",
        read: |of, to| {
            for (transport, name) in TRANSPORTS {
                to.labelled(&format!("transport=\"{name}\""), of.app.meters.deliveries[transport as usize].get());
            }
        },
    },
    Metric {
        name: "proscenium_readers",
        kind: GAUGE,
        help: "Readers, by audience and transport; one of several runs counts once.",
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
        help: "Times that a reader wanted frames which its ring did not hold any more, and got them from the log or as snapshots.",
        read: |of, to| to.one(of.feed().ring_misses.get()),
    },
    Metric {
        name: "proscenium_page_cache_bytes",
        kind: GAUGE,
        help: "What the cache of older frames holds.",
        read: |of, to| to.one(of.app.feed.page_bytes()),
    },
    Metric {
        name: "proscenium_checkpoints_total",
        kind: COUNTER,
        help: "Checkpoints that were saved, one for each audience.",
        read: |of, to| to.one(of.log().checkpoints.get()),
    },
    Metric {
        name: "proscenium_logs",
        kind: GAUGE,
        help: "Logs that the store keeps, of runs and of sessions.",
        read: |of, to| to.one(of.app.logs.log_count()),
    },
    Metric {
        name: "proscenium_logs_open",
        kind: GAUGE,
        help: "Logs of which something is in memory because they are written or read.",
        read: |of, to| to.one(of.app.logs.open_count()),
    },
    Metric {
        name: "proscenium_store_bytes",
        kind: GAUGE,
        help: "What the store takes on disk; 0 for the one in memory.",
        read: |of, to| to.one(of.store_bytes),
    },
    Metric {
        name: "proscenium_disk_free_bytes",
        kind: GAUGE,
        help: "What is free on the store's disk, as last looked at; absent where nobody looks.",
        read: |of, to| {
            if let Some(free) = of.app.disk.free() {
                to.one(free);
            }
        },
    },
    Metric {
        name: "proscenium_connections",
        kind: GAUGE,
        help: "Connections that are open.",
        read: |of, to| to.one(of.app.shares.all()),
    },
    Metric {
        name: "proscenium_connections_total",
        kind: COUNTER,
        help: "Connections that were accepted and had a place.",
        read: |of, to| to.one(of.app.meters.connections.get()),
    },
    Metric {
        name: "proscenium_requests_total",
        kind: COUNTER,
        help: "Requests that were answered; of a WebSocket its handshake.",
        read: |of, to| to.one(of.app.meters.requests.get()),
    },
    Metric {
        name: "proscenium_problems_total",
        kind: COUNTER,
        help: "Problems that were told, over any transport, by code.",
        read: |of, to| to.named("code", &of.app.meters.problems),
    },
    Metric {
        name: "process_start_time_seconds",
        kind: GAUGE,
        help: "When the server was started, in seconds since 1970.",
        read: |of, to| to.one(of.app.started.as_millisecond() as f64 / 1000.0),
    },
    Metric {
        name: "proscenium_build_info",
        kind: GAUGE,
        help: "Always 1; its labels say what is running.",
        read: |_, to| to.labelled(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1),
    },
];

/// All of it, as text.
pub async fn text(app: &App) -> String {
    let store_bytes = app.logs.work(|store| pollster::block_on(store.bytes())).await;
    let scrape = Scrape { app, store_bytes };
    let mut out = String::with_capacity(16 * 1024);
    for Metric { name, kind, help, read } in METRICS {
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a String takes every byte");
        read(&scrape, &mut Samples { name, out: &mut out });
    }
    out
}

/// What `text` is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`
pub async fn get(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")], text(&app).await).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_with_a_unit_and_is_documented() {
        let page = include_str!("../../docs/src/reference/metrics.md");
        let units = ["_total", "_seconds", "_bytes", "_info", "_readers", "_waiting", "_connections", "_logs", "_logs_open"];
        for (n, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..n].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert!(units.iter().any(|unit| metric.name.ends_with(unit)), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == COUNTER, "{}", metric.name);
            assert!(page.contains(&format!("`{}`", metric.name)), "{} is not in docs/src/reference/metrics.md", metric.name);
        }
    }
}
