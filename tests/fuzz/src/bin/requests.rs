//! Requests: bytes on a connection to the server's own socket, which reads heads before anybody is chosen to answer.
//!
//! ```text
//! input := where bytes
//! where := after how many bytes there is a pause, modulo their length
//! ```
//! Nothing panics, no answer is a mistake of the server, and no connection waits for ever: when nothing more comes, it ends, unless
//! it is a stream that goes on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use proscenium::serve::Limits;
use proscenium_fuzz::{Served, wait};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

fuzz_target!(|input: &[u8]| {
    let Some((place, text)) = input.split_first() else { return };
    let (first, rest) = text.split_at(usize::from(*place) % (text.len() + 1));
    let brief = Duration::from_millis(20);
    let (head_time_max, body_time_max, line_time_max) = (brief, brief, brief);
    let limits =
        Limits { head_time_max, body_time_max, line_time_max, head_bytes_max: 2048, body_bytes_max: 4096, ..Limits::default() };
    wait(async {
        // Rust's own `main` would see to it that whoever writes to a connection that has ended is told, and not ended, too.
        let _ = signal(SignalKind::pipe()).expect("a signal that can be heard");
        let served = Served::start(limits, None).await;
        let mut socket = TcpStream::connect(served.at).await.expect("it listens");
        // Who is refused may be cut off while it still speaks.
        let _ = socket.write_all(first).await;
        tokio::task::yield_now().await;
        let _ = socket.write_all(rest).await;
        let _ = socket.shutdown().await;
        let mut said = Vec::new();
        while !goes_on(&said) && socket.read_buf(&mut said).await.is_ok_and(|read| read > 0) {}
        is_no_mistake(&said);
        drop(socket);
        served.stop().await;
    });
});

/// Whether there begins what may go on for ever.
fn goes_on(said: &[u8]) -> bool {
    let contains = |what: &[u8]| said.windows(what.len()).any(|window| window == what);
    contains(b"text/event-stream") || contains(b"HTTP/1.1 101")
}

fn is_no_mistake(said: &[u8]) {
    for answer in said.windows(12).filter(|window| window.starts_with(b"HTTP/1.") && &window[8..10] == b" 5") {
        assert!(answer.ends_with(b"501") || answer.ends_with(b"503"), "{}", String::from_utf8_lossy(said));
    }
}
