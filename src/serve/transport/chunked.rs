//! Streams in a client's format, in chunks (RFC 9112, section 7.1): a stream that is cut must not look complete.

use super::surplus_input::SurplusInput;
use crate::serve::access::quota::ConnectionPermit;
use crate::serve::clients::DialectStream;
use bytes::Bytes;
use std::io;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Writes a stream until it ends or its client disconnects, after the answer's head.
pub fn write_chunked(socket: TcpStream, stream: Box<DialectStream>, head: Bytes, permit: ConnectionPermit) {
    tokio::spawn(async move {
        if let Err(error) = write(socket, stream, head).await {
            tracing::debug!(%error, "a connection failed");
        }
        drop(permit);
    });
}

async fn write(mut socket: TcpStream, mut stream: Box<DialectStream>, head: Bytes) -> io::Result<()> {
    socket.write_all(&head).await?;
    drop(head);
    let mut input = SurplusInput::default();
    loop {
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            ended = input.ended(&socket) => return ended,
        };
        match next {
            Some(bytes) => {
                let bytes = bytes?;
                let size = format!("{:x}\r\n", bytes.len());
                socket.write_all(&[size.as_bytes(), &bytes, b"\r\n"].concat()).await?;
            }
            None => {
                socket.write_all(b"0\r\n\r\n").await?;
                return socket.shutdown().await;
            }
        }
    }
}
