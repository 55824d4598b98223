//! The server's rule for identifiers, which the reporter checks before it sends anything.
//!
//! An id is opaque text chosen by a runtime: 1–256 bytes without control characters.

/// The longest id, in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 256;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("an id is empty; it must be 1 to {ID_BYTES_MAX} bytes long")]
    Empty,
    #[error("an id is {0} bytes long, the limit is {ID_BYTES_MAX}; shorten it")]
    TooLong(usize),
    #[error("an id has a control character at byte {0}; ids are printable text")]
    Control(usize),
}

/// Checks that the text can be an id.
pub(crate) fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::TooLong(text.len()));
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(IdError::Control(at)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_1_to_256_bytes_without_control_characters() {
        assert_eq!(check(""), Err(IdError::Empty));
        assert_eq!(check(&"x".repeat(257)), Err(IdError::TooLong(257)));
        assert_eq!(check("a\nb"), Err(IdError::Control(1)));
        assert_eq!(check(&"x".repeat(256)), Ok(()));
        assert_eq!(check("Grüße / 走 #1"), Ok(()));
    }
}
