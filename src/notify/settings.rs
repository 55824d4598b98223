//! Why what a person or the configuration asks of messages is refused.

/// The member that cannot be used, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {what}")]
pub struct SettingsError {
    pub member: &'static str,
    pub what: String,
}
