//! Traces: each run leaves as a trace when it ends, to a collector of OTLP (`--genai-endpoint`).
//!
//! ```text
//!   log ─▶ follower ─▶ runs that ended ─▶ spans (encode::gen_ai) ─▶ collector
//!                │                                                     │
//!                └──────── position in the server's own log ◀──────────┘ once they are there
//! ```
//!
//! The leader exports. It moves the saved position only when the collector has the traces before it, so a restart or
//! another leader goes on there. A trace may then be sent twice, with the same ids. While the collector is away, the
//! exporter waits: it holds the runs of one step, and the log has the rest.
//!
//! A run that goes on for an hour leaves in part: the spans that have ended. What is sent at its end completes them.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod reading;

#[cfg(feature = "otlp")]
pub use collector::Collector;
#[cfg(feature = "otlp")]
pub use exporter::{Exporter, ExporterParts};

use crate::meter::{Counter, Gauge, LabelCounter};

/// What the exporter counts.
#[derive(Debug, Default)]
pub struct TraceMeters {
    /// Traces by what became of them.
    pub traces: LabelCounter,
    /// Attempts that failed and are repeated.
    pub failures: Counter,
    /// The end of the oldest run that waits, in milliseconds since 1970; 0 if none does.
    oldest: Gauge,
}

impl TraceMeters {
    /// How long the oldest run that has ended waits for its export, in milliseconds.
    #[must_use]
    pub fn lag_ms(&self, now: i64) -> u64 {
        match i64::try_from(self.oldest.get()) {
            Ok(oldest @ 1..) => u64::try_from(now - oldest).unwrap_or(0),
            _ => 0,
        }
    }
}

/// Checks the headers of `--genai-headers`: `name=value` pairs with commas between, values percent-encoded, as in
/// `OTEL_EXPORTER_OTLP_HEADERS`.
///
/// # Errors
/// The number of the pair and what is wrong with it, without its value.
pub fn parse_headers(text: &str) -> Result<http::HeaderMap, String> {
    let mut headers = http::HeaderMap::new();
    for (n, pair) in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).enumerate() {
        let n = n + 1;
        let form = "give name=value pairs with commas between, and other commas as %2C";
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("header {n} has no `=`; {form}"))?;
        let named = name.trim().parse::<http::HeaderName>();
        let name = named.map_err(|_| format!("header {n} has a name that HTTP does not allow; {form}"))?;
        let value = percent_encoding::percent_decode_str(value.trim()).collect::<Vec<u8>>();
        let mut value = http::HeaderValue::from_bytes(&value)
            .map_err(|_| format!("header {n} ({name}) has a value that HTTP does not allow; {form}"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_by_the_convention_and_a_bad_one_is_named_without_its_value() {
        let read = parse_headers("Authorization=Basic%20c2VjcmV0, x-scope = a%2Cb ,").unwrap();
        assert_eq!((&read["authorization"], &read["x-scope"]), (&"Basic c2VjcmV0".parse().unwrap(), &"a,b".parse().unwrap()));
        for (bad, expected) in
            [("a=1,secret", "header 2 has no `=`"), ("b c=secret", "header 1 has a name"), ("x=secret%0a", "(x)")]
        {
            let error = parse_headers(bad).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_run_that_waits() {
        let meters = TraceMeters::default();
        assert_eq!(meters.lag_ms(5000), 0);
        meters.oldest.set(4000);
        assert_eq!((meters.lag_ms(5000), meters.lag_ms(3000)), (1000, 0));
    }
}
