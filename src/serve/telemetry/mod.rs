//! What the server reports about itself: metrics, the access log and trace spans.

pub mod meters;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod trace;
