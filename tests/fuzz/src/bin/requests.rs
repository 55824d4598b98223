//! Fuzzes the bytes of a connection to the server's own socket.
//!
//! The server parses request heads there before routing.
//!
//! ```text
//! input := where bytes
//! where := the number of bytes before a pause, modulo their length
//! ```
//! Properties: nothing panics, no response is an internal error, and every connection ends when the client sends no
//! more bytes, except for a stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium_fuzz::{TestServer, block_on};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

fuzz_target!(|input: &[u8]| {
    let Some((position, text)) = input.split_first() else { return };
    let (first, rest) = text.split_at(usize::from(*position) % (text.len() + 1));
    let brief = Duration::from_millis(20);
    let (head_time_max, body_time_max, line_time_max) = (brief, brief, brief);
    let limits =
        Limits { head_time_max, body_time_max, line_time_max, head_bytes_max: 2048, body_bytes_max: 4096, ..Limits::default() };
    block_on(async {
        // libFuzzer's `main` does not ignore SIGPIPE as Rust's does, and a write to a closed connection would end the
        // process.
        let _ = signal(SignalKind::pipe()).expect("a handler for SIGPIPE");
        let server = TestServer::start(limits, None).await;
        let mut socket = TcpStream::connect(server.at).await.expect("it listens");
        // The server may close a rejected connection during the write.
        let _ = socket.write_all(first).await;
        tokio::task::yield_now().await;
        let _ = socket.write_all(rest).await;
        let _ = socket.shutdown().await;
        let mut received = Vec::new();
        while !is_stream(&received) && socket.read_buf(&mut received).await.is_ok_and(|read| read > 0) {}
        assert_no_internal_error(&received);
        drop(socket);
        server.stop().await;
    });
});

/// Returns whether the response is a stream without an end.
fn is_stream(received: &[u8]) -> bool {
    let contains = |part: &[u8]| received.windows(part.len()).any(|window| window == part);
    contains(b"text/event-stream") || contains(b"HTTP/1.1 101")
}

fn assert_no_internal_error(received: &[u8]) {
    for answer in received.windows(12).filter(|window| window.starts_with(b"HTTP/1.") && &window[8..10] == b" 5") {
        assert!(answer.ends_with(b"501") || answer.ends_with(b"503"), "{}", String::from_utf8_lossy(received));
    }
}
