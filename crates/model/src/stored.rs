//! The stored form of state: a version, then the fields in their order (postcard).
//!
//! A field has no name in this form, so a node of another version could not read a type with further fields. While a
//! cluster is upgraded, nodes of both versions lead in turn. So fields that a type gets later are its last ones, and
//! [`save_extended`] leaves them out while they have their defaults; with other values the state is JSON, whose unknown
//! members every version ignores. Releases up to 0.2.0 stored JSON. `tests/it/upgrade.rs` reads what releases wrote.
//!
//! State that contains arbitrary JSON, such as the value of a control, cannot have this form.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of a stored state.
const VERSION: u8 = 2;
/// The byte of a field with its default: an empty list, no value, false or 0.
const DEFAULT_FIELD: u8 = 0;
/// The size of most states, in bytes.
const SAVED_BYTES: usize = 256;

/// Why a stored state is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// Another version of the server wrote this form.
    #[error("the state has version {0}; this server reads version {VERSION} and the JSON of releases before it")]
    Version(u8),
    /// There is no byte.
    #[error("the state is empty")]
    Empty,
    /// The fields cannot be read.
    #[error("the state does not have the fields of version {VERSION}: {0}")]
    Fields(#[from] postcard::Error),
    /// This many bytes follow the last field.
    #[error("{0} bytes follow the state")]
    Longer(usize),
    /// The JSON cannot be read.
    #[error("the state is not the JSON of an earlier release: {0}")]
    Json(#[from] serde_json::Error),
}

/// Encodes a state. Equal states have equal bytes.
///
/// # Panics
/// When the type skips a field or has a list of unknown length. Only a bug can cause that.
#[must_use]
pub fn save<S: Serialize>(state: &S) -> Vec<u8> {
    save_extended(state, 0, false)
}

/// Encodes a state whose last fields, so many, the form of [`VERSION`] does not have.
///
/// `has_added` tells whether they have other values than their defaults: an empty list, no value, false or 0.
///
/// # Panics
/// As [`save`].
#[must_use]
pub fn save_extended<S: Serialize>(state: &S, added: usize, has_added: bool) -> Vec<u8> {
    if has_added {
        return serde_json::to_vec(state).expect("a state is plain data with text as keys");
    }
    let mut saved = Vec::with_capacity(SAVED_BYTES);
    saved.push(VERSION);
    let mut saved = postcard::serialize_with_flavor(state, Saved(saved)).expect("a state is plain data of known length");
    saved.truncate(saved.len() - added);
    saved
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
    restore_extended(saved, 0)
}

/// Decodes a state that [`save_extended`] encoded, with so many added fields.
///
/// # Errors
/// As [`restore`].
pub fn restore_extended<S: DeserializeOwned>(saved: &[u8], added: usize) -> Result<S, StoredError> {
    match saved {
        [] => Err(StoredError::Empty),
        [VERSION, fields @ ..] if added == 0 => whole(fields),
        [VERSION, fields @ ..] => whole(&[fields, &vec![DEFAULT_FIELD; added]].concat()),
        [b'{', ..] => Ok(serde_json::from_slice(saved)?),
        [version, ..] => Err(StoredError::Version(*version)),
    }
}

fn whole<S: DeserializeOwned>(fields: &[u8]) -> Result<S, StoredError> {
    match postcard::take_from_bytes(fields)? {
        (state, []) => Ok(state),
        (_, rest) => Err(StoredError::Longer(rest.len())),
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

    #[derive(Debug, Default, PartialEq, Serialize, serde::Deserialize)]
    #[serde(default)]
    struct Before {
        count: u64,
    }

    #[derive(Debug, Default, PartialEq, Serialize, serde::Deserialize)]
    #[serde(default)]
    struct Now {
        count: u64,
        names: Vec<String>,
        last: Option<u64>,
    }

    #[test]
    fn both_versions_read_a_state_with_added_fields() {
        let save = |state: &Now| save_extended(state, 2, *state != Now { count: state.count, ..Now::default() });
        for (now, is_short) in
            [(Now { count: 7, ..Now::default() }, true), (Now { count: 7, names: vec![], last: Some(0) }, false)]
        {
            let saved = save(&now);
            assert_eq!(saved[0] == VERSION, is_short);
            assert_eq!(restore_extended::<Now>(&saved, 2).unwrap(), now);
            assert_eq!(restore::<Before>(&saved).unwrap(), Before { count: 7 });
            assert!(restore_extended::<Now>(&saved[..saved.len() - 1], 2).is_err());
        }
    }
}
