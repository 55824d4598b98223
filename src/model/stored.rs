//! The stored form of state: a version, then the fields in their order (postcard).
//!
//! A field has no name in this form. So a change of the fields of a type needs a new version, and a reader of the version
//! before it. Versions 3 and 4 added fields at the end of states; a state of a version before has their defaults there.
//! Releases up to 0.2.0 stored JSON; that stays readable. `tests/it/upgrade.rs` reads what releases wrote.
//!
//! State that contains arbitrary JSON, such as the value of a control, cannot have this form.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of a stored state.
const VERSION: u8 = 4;
/// The first of the versions whose states end before the fields that later ones added.
const SHORTEST_VERSION: u8 = 2;
/// The defaults of the added fields: an empty list, no value, false and 0 are one zero byte each.
const ADDED_DEFAULTS: [u8; 16] = [0; 16];
/// The size of most states, in bytes.
const SAVED_BYTES: usize = 256;

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
    let mut saved = Vec::with_capacity(SAVED_BYTES);
    saved.push(VERSION);
    postcard::serialize_with_flavor(state, Saved(saved)).expect("a state is plain data of known length")
}

/// The bytes of a state that is being saved. postcard's own form copies each field byte by byte.
struct Saved(Vec<u8>);

impl Flavor for Saved {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
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
        [SHORTEST_VERSION..VERSION, fields @ ..] => {
            let padded = [fields, &ADDED_DEFAULTS].concat();
            match postcard::take_from_bytes(&padded)? {
                (state, rest) if rest.len() <= ADDED_DEFAULTS.len() => Ok(state),
                (_, rest) => Err(StoredError::Longer(rest.len() - ADDED_DEFAULTS.len())),
            }
        }
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
        assert!(matches!(restore::<(u64, String)>(&[b"\x02", &saved[1..], b"x"].concat()), Err(StoredError::Longer(1))));
        assert!(matches!(restore::<(u64, String)>(b"{\"streams"), Err(StoredError::Json(_))));
    }

    #[test]
    fn a_state_of_the_version_before_has_the_defaults_of_added_fields() {
        let mut saved = save(&(7_u64, "text"));
        for version in SHORTEST_VERSION..VERSION {
            saved[0] = version;
            let restored = restore::<(u64, String, Vec<u64>, Option<u64>)>(&saved).unwrap();
            assert_eq!(restored, (7, "text".to_owned(), Vec::new(), None));
        }
    }
}
