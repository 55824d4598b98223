//! Spans: what a collector gets of a run, without the form in which it gets it.

use proscenium_model::{Epoch, ReceivedAt, RunId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The spans of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The id of the trace: the runtime's own, if a fact names it.
    pub id: [u8; 16],
    /// The spans, the root first, then in the order in which they began.
    pub spans: Vec<Span>,
}

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Unique within all runs; the same whenever the run is read.
    pub id: [u8; 8],
    /// The span above; for a root, the runtime's own span.
    pub parent: Option<[u8; 8]>,
    /// A name of few different values, such as `execute_tool search`.
    pub name: String,
    /// When it began.
    pub start: ReceivedAt,
    /// When it ended. `None`: it goes on.
    pub end: Option<ReceivedAt>,
    /// Its members, by the names of the conventions.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// What happened within it.
    pub events: Vec<SpanEvent>,
    /// Its failure.
    pub failure: Option<SpanFailure>,
}

impl Span {
    /// Adds an attribute, if it has a value.
    pub fn set(&mut self, name: &'static str, value: Option<impl Into<Attribute>>) {
        self.attributes.extend(value.map(|value| (name, value.into())));
    }
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A text of at most [`ATTRIBUTE_BYTES_MAX`] bytes, or a content.
    Text(String),
    /// A count.
    Count(u64),
    /// A sum of money.
    Amount(f64),
    /// A mark.
    Flag(bool),
}

/// The longest text of an attribute that is no content, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize = 256;

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(clipped(text, ATTRIBUTE_BYTES_MAX).to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Attribute {
    fn from(amount: f64) -> Self {
        Self::Amount(amount)
    }
}

impl From<bool> for Attribute {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// The beginning of a text, of at most so many bytes.
pub(super) fn clipped(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Something that happened within a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// Its name.
    pub name: &'static str,
    /// When it happened.
    pub at: ReceivedAt,
    /// Its members.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// How a span failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanFailure {
    /// The words of the error, if the audience of the content sees them.
    pub message: Option<String>,
}

/// The ids of the spans of one run.
pub(super) struct SpanIds {
    /// What makes the run unique.
    prefix: String,
}

impl SpanIds {
    pub(super) fn new(run: &RunId, epoch: Epoch) -> Self {
        Self { prefix: format!("{epoch}\n{run}") }
    }

    /// The id of the trace. An id of zeros is no id.
    pub(super) fn trace(&self) -> [u8; 16] {
        xxh3_128(self.prefix.as_bytes()).max(1).to_be_bytes()
    }

    /// The id of the span of an activity, or of an attempt.
    pub(super) fn span(&self, kind: &str, id: &str) -> [u8; 8] {
        xxh3_64(format!("{}\n{kind}\n{id}", self.prefix).as_bytes()).max(1).to_be_bytes()
    }
}

/// The place of a span in a trace of the runtime's own, by W3C Trace Context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The runtime's trace.
    pub trace: [u8; 16],
    /// The runtime's span.
    pub span: [u8; 8],
}

impl TraceParent {
    /// Parses a `traceparent`. `None` for any other text, and for ids of zeros.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // A later version may have further parts; version 255 is none.
        let is_known = version.len() == 2 && version != "ff" && hex::<1>(version).is_some() && hex::<1>(flags).is_some();
        if !is_known || version == "00" && parts.next().is_some() {
            return None;
        }
        let (trace, span) = (hex::<16>(trace)?, hex::<8>(span)?);
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span })
    }
}

/// Bytes in lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_by_the_specification() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parsed = TraceParent::parse(good).unwrap();
        assert_eq!((parsed.trace[0], parsed.trace[15], parsed.span[0]), (0x0a, 0x9c, 0xb7));
        assert_eq!(TraceParent::parse("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-later"), Some(parsed));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_ids_of_a_run_depend_on_its_epoch_and_on_nothing_else() {
        let run = RunId::new("r").unwrap();
        let ids = |bits| SpanIds::new(&run, Epoch::from_random(bits));
        assert_eq!((ids(1).trace(), ids(1).span("run", "1")), (ids(1).trace(), ids(1).span("run", "1")));
        assert_ne!(ids(1).trace(), ids(2).trace());
        assert_ne!(ids(1).span("run", "1"), ids(1).span("run", "2"));
    }
}
