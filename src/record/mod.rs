//! The record of a log for third parties: signed heads, exports with proofs, and their verification.
//!
//! The hash chain of a log ([`crate::log::hash_chain`]) shows that its rows are those that were written. This module
//! takes it out of the server: [`signing`] has the server's key and the head that it signs, [`proof`] the lines that an
//! export has beside its envelopes, and [`verify`] checks such an export without a server.

pub mod proof;
pub mod signing;
pub mod verify;
