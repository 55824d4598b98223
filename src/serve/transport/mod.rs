//! Connections: sockets, request heads and TLS.

pub mod connection;
pub mod head;
pub mod tls;
pub mod writers;
