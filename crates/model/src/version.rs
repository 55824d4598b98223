//! Ids of questions that name a version, for protocols without a place for one.
//!
//! A client that answers an id answers the version that it was shown.

use std::borrow::Cow;

/// The payload member of the envelope that made a question another version; only the server writes it.
pub const QUESTION_VERSION: &str = "questionVersion";

/// The id under which a version of a question is handed out: from the second version on, `<actionId>~<version>`.
#[must_use]
pub fn versioned_id(action: &str, version: u64) -> Cow<'_, str> {
    // An id that looks like one of another version always names its version.
    match version > 1 || split(action).is_some() {
        true => Cow::Owned(format!("{action}~{}", version.max(1))),
        false => Cow::Borrowed(action),
    }
}

/// The action and the version that an id names.
#[must_use]
pub fn split_version(id: &str) -> (&str, u32) {
    split(id).unwrap_or((id, 1))
}

fn split(id: &str) -> Option<(&str, u32)> {
    let (action, version) = id.rsplit_once('~')?;
    let is_number = version.bytes().all(|byte| byte.is_ascii_digit());
    Some((action, version.parse().ok().filter(|_| is_number && !action.is_empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_one_action_and_one_version() {
        for (action, version, id) in
            [("a", 1, "a"), ("a", 2, "a~2"), ("a~2", 1, "a~2~1"), ("a~2", 3, "a~2~3"), ("a~b", 1, "a~b"), ("~2", 1, "~2")]
        {
            assert_eq!(versioned_id(action, version), id);
            assert_eq!(split_version(id), (action, u32::try_from(version).unwrap()));
        }
    }
}
