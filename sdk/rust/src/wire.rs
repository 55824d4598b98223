//! Delivery to a server: sends a numbered body and classifies the response.
//!
//! Over HTTP this is `POST /v1/runs/{run}/facts` with the producer's headers; tests use memory or a script. A sink
//! neither retries nor waits: the worker decides both.

#[cfg(test)]
pub(crate) mod script;

use crate::error::ReportError;
use crate::recording::Recording;
use bytes::{BufMut, Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// The most bytes of a response that the reporter reads.
/// Another server's response could be endless.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// The length of the excerpt of another server's response, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// The outcome of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// All facts are durable; `duplicates` of them were durable before.
    Accepted { duplicates: u64 },
    /// The server expects a lower number: it has lost facts, by an erasure or with its memory.
    Gap { expected: u64 },
    /// The server permanently rejects this fact of the body, and accepted no other fact of it.
    Fact { index: usize, why: String },
    /// The server rejects the body without naming a fact.
    Body { why: String },
    /// The server permanently rejects this reporter.
    Rejected(ReportError),
    /// The outcome is unknown or temporary: send the body again, at the earliest after this time.
    Retry { why: String, after: Option<Duration> },
}

/// The destination of reports.
pub(crate) enum Sink {
    Http(Box<Http>),
    Memory(Recording),
    #[cfg(test)]
    Script(script::Sender),
}

impl Sink {
    /// Sends the facts.
    /// `seq` is the number of the first one.
    pub async fn deliver(&self, seq: u64, facts: Vec<Bytes>) -> DeliveryOutcome {
        match self {
            Self::Http(http) => http.deliver(seq, &facts).await,
            Self::Memory(recorded) => {
                recorded.extend(&facts);
                DeliveryOutcome::Accepted { duplicates: 0 }
            }
            #[cfg(test)]
            Self::Script(script) => script::deliver(script, seq, &facts).await,
        }
    }
}

/// An HTTP destination: the client, the run's URL and the producer's headers.
pub(crate) struct Http {
    pub client: reqwest::Client,
    pub url: reqwest::Url,
    /// The producer's id and epoch, and the token.
    pub headers: HeaderMap,
}

impl Http {
    async fn deliver(&self, seq: u64, facts: &[Bytes]) -> DeliveryOutcome {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("producer-seq", seq)
            .body(array(facts));
        match read(request).await {
            Ok((status, retry_after, body)) => classify(status, retry_after, &body, facts.len() as u64),
            Err(error) => DeliveryOutcome::Retry { why: innermost(&error.without_url()), after: None },
        }
    }
}

/// Joins the facts into one JSON array.
fn array(facts: &[Bytes]) -> Bytes {
    let mut body = BytesMut::with_capacity(facts.iter().map(|fact| fact.len() + 1).sum::<usize>() + 1);
    for (at, fact) in facts.iter().enumerate() {
        body.put_u8(if at == 0 { b'[' } else { b',' });
        body.put_slice(fact);
    }
    body.put_u8(b']');
    body.freeze()
}

async fn read(request: reqwest::RequestBuilder) -> Result<(u16, Option<Duration>, Vec<u8>), reqwest::Error> {
    let mut answer = request.send().await?;
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| parse_retry_after(value, SystemTime::now()));
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        body.extend_from_slice(&part);
        if body.len() > RESPONSE_BYTES_MAX {
            break;
        }
    }
    Ok((status, retry_after, body))
}

/// Parses `Retry-After`: seconds or a date.
fn parse_retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()),
    }
}

/// Returns the innermost cause of an error: "Connection refused" instead of "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Problem codes that concern the address, the numbering or the right to send, and so every fact.
const REPORTER_WIDE_CODES: [&str; 5] = ["bad_id", "bad_query", "bad_producer", "unknown_source", "too_many_producers"];

/// Classifies the response to a body of `facts` facts.
///
/// The reporter accepts a success or a permanent rejection only in the form that our server sends. Any other response
/// comes from an intermediary, and the reporter retries.
pub(crate) fn classify(status: u16, retry_after: Option<Duration>, body: &[u8], facts: u64) -> DeliveryOutcome {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let number = |member: &str| said.get(member).and_then(Value::as_u64);
    let text = |member: &str| said.get(member).and_then(Value::as_str);
    let code = text("code");
    let why = || match (code, text("detail")) {
        (Some(code), Some(detail)) => format!("{detail} ({code})"),
        _ => {
            let excerpt: String = String::from_utf8_lossy(body).chars().take(EXCERPT_CHARS_MAX).collect();
            format!("the response {status} is not a proscenium server's: {excerpt:?}")
        }
    };
    let later = || DeliveryOutcome::Retry { why: why(), after: retry_after };
    let never = || {
        let (code, detail) = (code.unwrap_or_default().to_owned(), text("detail").unwrap_or_default().to_owned());
        DeliveryOutcome::Rejected(ReportError::Refused { status, code, detail })
    };
    match (status, code) {
        (200, _) => match (number("accepted"), number("duplicates")) {
            (Some(accepted), Some(duplicates)) if accepted + duplicates + number("shed").unwrap_or(0) == facts => {
                DeliveryOutcome::Accepted { duplicates }
            }
            _ => later(),
        },
        (409, Some("producer_gap")) => number("expected").map_or_else(later, |expected| DeliveryOutcome::Gap { expected }),
        (403, Some("producer_fenced")) => {
            DeliveryOutcome::Rejected(ReportError::Fenced { current: number("expected").unwrap_or_default() })
        }
        (408 | 425 | 429, _) | (409, Some("run_erased")) => later(),
        (400..=499, Some(code)) if REPORTER_WIDE_CODES.contains(&code) => never(),
        (400 | 422, Some(_)) | (413, _) => match number("index").filter(|index| *index < facts) {
            Some(index) => DeliveryOutcome::Fact { index: index as usize, why: why() },
            None => DeliveryOutcome::Body { why: why() },
        },
        (400..=499, Some(_)) => never(),
        _ => later(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: &Value) -> DeliveryOutcome {
        classify(status, Some(Duration::from_secs(2)), body.to_string().as_bytes(), 3)
    }

    fn problem(status: u16, code: &str, members: Value) -> DeliveryOutcome {
        let mut body = json!({"code": code, "detail": "Why."});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        answer(status, &body)
    }

    #[test]
    fn a_success_is_accepted_only_if_it_counts_every_fact() {
        assert_eq!(answer(200, &json!({"accepted": 1, "duplicates": 2})), DeliveryOutcome::Accepted { duplicates: 2 });
        assert_eq!(answer(200, &json!({"accepted": 1, "duplicates": 0, "shed": 2})), DeliveryOutcome::Accepted { duplicates: 0 });
        for no_receipt in [json!({"accepted": 2, "duplicates": 0}), json!({}), json!("<html>"), json!([3])] {
            assert!(matches!(answer(200, &no_receipt), DeliveryOutcome::Retry { .. }), "{no_receipt}");
        }
    }

    #[test]
    fn a_rejection_concerns_one_fact_the_body_the_reporter_or_is_temporary() {
        let why = || "Why. (c)".to_owned();
        assert_eq!(problem(422, "c", json!({"index": 1})), DeliveryOutcome::Fact { index: 1, why: why() });
        assert_eq!(problem(413, "c", json!({"index": 2})), DeliveryOutcome::Fact { index: 2, why: why() });
        assert_eq!(problem(422, "c", json!({"index": 3})), DeliveryOutcome::Body { why: why() }, "the body has no such fact");
        assert_eq!(problem(413, "c", json!({})), DeliveryOutcome::Body { why: why() });
        assert!(matches!(answer(413, &Value::Null), DeliveryOutcome::Body { .. }), "a proxy has its own limit");
        assert_eq!(problem(409, "producer_gap", json!({"expected": 7})), DeliveryOutcome::Gap { expected: 7 });
        assert_eq!(
            problem(403, "producer_fenced", json!({"expected": 9})),
            DeliveryOutcome::Rejected(ReportError::Fenced { current: 9 })
        );
        for code in REPORTER_WIDE_CODES {
            assert!(
                matches!(problem(422, code, json!({"index": 0})), DeliveryOutcome::Rejected(ReportError::Refused { .. })),
                "{code}"
            );
        }
        for status in [401, 403, 404, 405, 409, 415] {
            assert!(
                matches!(problem(status, "c", json!({})), DeliveryOutcome::Rejected(ReportError::Refused { .. })),
                "{status}"
            );
            assert!(matches!(answer(status, &Value::Null), DeliveryOutcome::Retry { .. }), "{status} of another server");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            let later = DeliveryOutcome::Retry { why: why(), after: Some(Duration::from_secs(2)) };
            assert_eq!(problem(status, "c", json!({})), later, "{status}");
        }
        assert!(matches!(problem(409, "run_erased", json!({})), DeliveryOutcome::Retry { .. }));
        assert!(matches!(answer(302, &Value::Null), DeliveryOutcome::Retry { .. }));
        assert!(matches!(answer(400, &Value::Null), DeliveryOutcome::Retry { .. }), "a proxy's own rejection");
    }

    #[test]
    fn retry_after_is_in_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let wait = |text: &str| parse_retry_after(&HeaderValue::from_str(text).unwrap(), now);
        assert_eq!(wait("2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn a_body_is_an_array_of_the_unchanged_facts() {
        assert_eq!(array(&[Bytes::from_static(b"{}")]), "[{}]");
        assert_eq!(array(&[Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"{}")]), "[{\"a\":1},{}]");
    }
}
