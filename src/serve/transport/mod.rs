//! Connections: sockets, request heads and TLS.

pub mod connection;
pub mod descriptors;
pub mod head;
pub mod http1_answer;
pub mod on_hyper;
pub mod peer;
pub mod refusal;
pub mod surplus_input;
pub mod tls;
pub mod writers;
