//! Who may do what: authorization, tickets, origins and quotas.

pub mod authorization;
pub mod counted_stream;
pub mod origin;
pub mod quota;
pub mod requested_run;
pub mod sign_in;
pub mod tickets;
