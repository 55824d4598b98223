//! The stored form of state: a version, then the fields in their order (postcard).
//!
//! A field has no name in this form. So a change of the fields of a type needs a new version, and a reader of the version
//! before it. Releases up to 0.2.0 stored JSON; that stays readable. `tests/it/upgrade.rs` reads what releases wrote.
//!
//! State that contains arbitrary JSON, such as the value of a control, cannot have this form.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of a stored state.
const VERSION: u8 = 2;

/// Why a stored state is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("the state has version {0}; this server reads version {VERSION} and the JSON of releases before it")]
    Version(u8),
    #[error("the state is empty")]
    Empty,
    #[error("the state does not have the fields of version {VERSION}: {0}")]
    Fields(#[from] postcard::Error),
    #[error("{0} bytes follow the state")]
    Longer(usize),
    #[error("the state is not the JSON of an earlier release: {0}")]
    Json(#[from] serde_json::Error),
}

/// Encodes a state. Equal states have equal bytes.
///
/// # Panics
/// When the type skips a field or has a list of unknown length. Only a bug can cause that.
#[must_use]
pub fn save<S: Serialize>(state: &S) -> Vec<u8> {
    postcard::to_extend(state, vec![VERSION]).expect("a state is plain data of known length")
}

/// Decodes a state.
///
/// # Errors
/// [`StoredError`] for any other bytes than [`save`] returned, but for the JSON of earlier releases.
pub fn restore<S: DeserializeOwned>(saved: &[u8]) -> Result<S, StoredError> {
    match saved {
        [] => Err(StoredError::Empty),
        [VERSION, fields @ ..] => match postcard::take_from_bytes(fields)? {
            (state, []) => Ok(state),
            (_, rest) => Err(StoredError::Longer(rest.len())),
        },
        [b'{', ..] => Ok(serde_json::from_slice(saved)?),
        [version, ..] => Err(StoredError::Version(*version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_a_whole_state_is_an_error() {
        let saved = save(&(7_u64, "text"));
        assert!(restore::<(u64, String)>(&saved).is_ok());
        for end in 0..saved.len() {
            assert!(restore::<(u64, String)>(&saved[..end]).is_err(), "{end}");
        }
        assert!(matches!(restore::<(u64, String)>(&[&saved[..], b"x"].concat()), Err(StoredError::Longer(1))));
        assert!(matches!(restore::<(u64, String)>(b"\x01"), Err(StoredError::Version(1))));
        assert!(matches!(restore::<(u64, String)>(b"{\"streams"), Err(StoredError::Json(_))));
    }
}
