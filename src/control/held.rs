//! What the log does not have of open controls, in memory: values with secrets, and users' headers for agents.
//!
//! Values and headers have a budget each, and each holder has a share of it: no person fills the memory in which the
//! headers of others wait. A caller without a `sub` may take the shares of as many sessions as it likes, so all such callers
//! have one bound together. What does not fit is refused with its control, and not lost behind it.

use crate::log::LogId;
use http::HeaderMap;
use serde_json::Value;
use std::collections::HashMap;

/// Bytes of secret values that are held for claimants, and as many of headers.
pub const HELD_SECRETS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The share of all callers without a `sub` of each, which other callers cannot use up, nor they that of others.
pub const HELD_SECRETS_NAMELESS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The share of one holder of each. A larger value fits while the holder has no other.
pub const HELD_SECRETS_SHARE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Whose share a control's secrets take: a person's, or, without a token, that of the session or run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    Person(Box<str>),
    Scope(LogId),
}

impl Holder {
    const fn has_name(&self) -> bool {
        matches!(self, Self::Person(_))
    }
}

/// What the log does not have of a control.
#[derive(Clone, Default)]
pub(super) struct HeldSecret {
    pub value: Option<Value>,
    pub user_headers: Option<HeaderMap>,
}

impl HeldSecret {
    /// The bytes of the value, and of the headers.
    fn bytes(&self) -> [usize; 2] {
        let headers = self.user_headers.iter().flatten().map(|(name, value)| name.as_str().len() + value.len());
        [self.value.as_ref().map_or(0, |value| value.to_string().len()), headers.sum()]
    }
}

/// Bytes by holder.
#[derive(Default)]
struct Budget {
    bytes: usize,
    /// Of holders without a `sub`.
    nameless_bytes: usize,
    by_holder: HashMap<Holder, usize>,
}

impl Budget {
    fn has_room(&self, holder: &Holder, bytes: usize) -> bool {
        let held = self.by_holder.get(holder).copied().unwrap_or(0);
        let is_within_share = held == 0 || held + bytes <= HELD_SECRETS_SHARE_BYTES_MAX;
        let has_group_room = holder.has_name() || self.nameless_bytes + bytes <= HELD_SECRETS_NAMELESS_BYTES_MAX;
        bytes == 0 || is_within_share && has_group_room && self.bytes + bytes <= HELD_SECRETS_BYTES_MAX
    }

    fn add(&mut self, holder: &Holder, bytes: usize) {
        if bytes > 0 {
            self.bytes += bytes;
            self.nameless_bytes += if holder.has_name() { 0 } else { bytes };
            *self.by_holder.entry(holder.clone()).or_default() += bytes;
        }
    }

    fn remove(&mut self, holder: &Holder, bytes: usize) {
        let Some(held) = self.by_holder.get_mut(holder) else { return };
        self.bytes -= bytes;
        self.nameless_bytes -= if holder.has_name() { 0 } else { bytes };
        *held -= bytes;
        if *held == 0 {
            self.by_holder.remove(holder);
        }
    }
}

struct Entry {
    secret: HeldSecret,
    holder: Holder,
    bytes: [usize; 2],
}

/// Secrets, by the queue positions of their controls.
#[derive(Default)]
pub(super) struct HeldSecrets {
    entries: HashMap<u64, Entry>,
    /// Of values, and of headers.
    budgets: [Budget; 2],
}

impl HeldSecrets {
    /// Holds the secrets of a control. `false`: they do not fit.
    pub fn put(&mut self, queue_position: u64, holder: Holder, secret: HeldSecret) -> bool {
        if secret.value.is_none() && secret.user_headers.is_none() {
            return true;
        }
        let bytes = secret.bytes();
        if !self.budgets.iter().zip(bytes).all(|(budget, bytes)| budget.has_room(&holder, bytes)) {
            return false;
        }
        for (budget, bytes) in self.budgets.iter_mut().zip(bytes) {
            budget.add(&holder, bytes);
        }
        self.entries.insert(queue_position, Entry { secret, holder, bytes });
        true
    }

    pub fn get(&self, queue_position: u64) -> Option<&HeldSecret> {
        self.entries.get(&queue_position).map(|entry| &entry.secret)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn retain(&mut self, is_open: impl Fn(u64) -> bool) {
        let Self { entries, budgets } = self;
        entries.retain(|queue_position, entry| {
            let is_kept = is_open(*queue_position);
            if !is_kept {
                for (budget, bytes) in budgets.iter_mut().zip(entry.bytes) {
                    budget.remove(&entry.holder, bytes);
                }
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    fn value(bytes: usize) -> HeldSecret {
        HeldSecret { value: Some("x".repeat(bytes).into()), user_headers: None }
    }

    fn headers() -> HeldSecret {
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer of-ada".parse().unwrap())]);
        HeldSecret { value: None, user_headers: Some(headers) }
    }

    #[test]
    fn a_holder_has_a_share_and_the_headers_of_others_always_have_room_beside_values() {
        const LARGE: usize = 255 * 1024;
        let person = |name: &str| Holder::Person(name.into());
        let mut held = HeldSecrets::default();
        let fitting = (0..66).filter(|n| held.put(*n, person("greedy"), value(LARGE))).count();
        assert_eq!(fitting, HELD_SECRETS_SHARE_BYTES_MAX / LARGE);
        assert!(held.put(100, person("ada"), value(LARGE)) && held.put(101, person("ada"), headers()));
        // Many holders fill the budget of values, and none that of headers.
        for n in 200..300 {
            held.put(n, person(&n.to_string()), value(LARGE));
        }
        assert!(!held.put(300, person("bo"), value(LARGE)));
        assert!(held.put(301, person("bo"), headers()) && held.get(301).is_some());
        held.retain(|queue_position| queue_position == 301);
        assert!(held.put(302, person("bo"), value(4 * 1024 * 1024)), "a large value fits alone");
        assert!(!held.put(303, person("bo"), value(1)));
        held.retain(|_| false);
        assert!(held.is_empty() && held.budgets.iter().all(|budget| budget.bytes == 0 && budget.by_holder.is_empty()));
    }

    #[test]
    fn a_caller_without_a_sub_and_with_many_sessions_leaves_room_for_those_with_one() {
        let session = |n: u64| Holder::Scope(LogId::Session(SessionId::new(&format!("s{n}")).unwrap()));
        let mut held = HeldSecrets::default();
        let fitting = (0..100).filter(|n| held.put(*n, session(*n), value(HELD_SECRETS_SHARE_BYTES_MAX / 2))).count();
        assert_eq!(fitting, 7, "the quotes of a value count");
        assert!(held.put(100, Holder::Person("ada".into()), value(HELD_SECRETS_SHARE_BYTES_MAX / 2)));
        assert!(held.put(101, session(101), headers()), "headers have a budget of their own");
        held.retain(|_| false);
        assert!(held.budgets.iter().all(|budget| budget.nameless_bytes == 0));
        assert!(held.put(102, session(102), value(HELD_SECRETS_SHARE_BYTES_MAX / 2)));
    }
}
