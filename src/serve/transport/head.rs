//! Heads of HTTP/1 requests (RFC 9112), checked before anything acts on them.
//!
//! Two parsers read a connection, this one and hyper's, and a proxy may read it before them. If two parsers disagree
//! about the end of a request, an attacker can hide a second request in the first (request smuggling). So the server
//! only accepts heads with exactly one reading: lines end with CRLF, and a body has one plain `Content-Length` or the
//! single coding `chunked`. hyper reads a connection through [`CheckedStream`], which follows each body to its end and
//! checks the next head before it passes on a byte of it.

use crate::serve::http::problem::Problem;
use bytes::BytesMut;
use http::StatusCode;
use memchr::{memchr_iter, memmem};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Maximum number of headers of a request.
pub const HEADERS_MAX: usize = 100;
/// The method of the request that hyper gets in place of a refused one.
pub const REFUSED: &str = "REFUSED";
/// Bytes and time that a refused client's input is discarded, so that the client can read the answer.
const DISCARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

/// A valid, unambiguous head.
pub struct RequestHead<'h, 'b> {
    pub request: httparse::Request<'h, 'b>,
    /// Its length, in bytes.
    pub end: usize,
    pub body: BodyFraming,
}

/// The framing of the body after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// This many bytes.
    Length(u64),
    Chunked(ChunkState),
    /// WebSocket data, if the server accepts the upgrade; else ignored.
    Socket,
    /// Malformed data, after which nothing may be parsed.
    Broken,
}

/// The state of a chunked body's parser (RFC 9112, section 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// In a chunk's size; the value of its digits so far.
    Size(Option<u64>),
    Extension(u64),
    SizeEnd(u64),
    Data(u64),
    DataEnd(&'static [u8]),
    /// At the start of a trailer line, in it, and before its end.
    Line,
    Trailer,
    TrailerEnd,
    LastEnd,
    Over,
}

/// Checks the head at the start of these bytes. `None`: it is incomplete.
///
/// # Errors
/// 431 for a head longer than `bytes_max`, 501 for a transfer coding, 400 for a malformed or ambiguous head.
pub fn check<'h, 'b>(
    bytes: &'b [u8],
    bytes_max: usize,
    headers: &'h mut [httparse::Header<'b>; HEADERS_MAX],
) -> Result<Option<RequestHead<'h, 'b>>, Problem> {
    let mut request = httparse::Request::new(headers);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) if end <= bytes_max => end,
        Ok(httparse::Status::Partial) if bytes.len() < bytes_max => return Ok(None),
        Ok(_) => {
            let detail =
                format!("The request's head is larger than {bytes_max} bytes, the limit. Send fewer or shorter headers.");
            return Err(too_large(detail).with("limit", bytes_max));
        }
        Err(httparse::Error::TooManyHeaders) => {
            let detail = format!("The request has more than {HEADERS_MAX} headers, the limit. Send fewer headers.");
            return Err(too_large(detail).with("limit", HEADERS_MAX));
        }
        Err(error) => return Err(bad(&format!("it is not HTTP/1.1: {error}"))),
    };
    if memchr_iter(b'\n', &bytes[..end]).any(|at| at == 0 || bytes[at - 1] != b'\r') {
        return Err(bad("a line ends with a bare LF; end each line with CRLF"));
    }
    let (mut length, mut is_chunked, mut is_socket) = (None, false, false);
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let number = std::str::from_utf8(header.value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let Some(number) = number.and_then(|text| text.parse().ok()) else {
                return Err(bad("Content-Length is not a whole number; send digits only"));
            };
            if length.replace(number).is_some() {
                return Err(bad("it has Content-Length twice; send it once"));
            }
        } else if is("transfer-encoding") {
            if is_chunked || !header.value.eq_ignore_ascii_case(b"chunked") {
                let detail = "The body has a transfer coding other than chunked. Send it as it is, or chunked.";
                return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "unsupported_transfer_coding", detail));
            }
            is_chunked = true;
        } else if is("upgrade") {
            is_socket |= header.value.eq_ignore_ascii_case(b"websocket");
        }
    }
    let body = match (is_chunked, length) {
        (true, Some(_)) => return Err(bad("it has Content-Length and Transfer-Encoding; send one of them")),
        (true, None) if request.version != Some(1) => {
            return Err(bad("it is HTTP/1.0 and has Transfer-Encoding; send Content-Length, or HTTP/1.1"));
        }
        (true, None) => BodyFraming::Chunked(ChunkState::Size(None)),
        (false, None | Some(0)) if is_socket => BodyFraming::Socket,
        (false, length) => BodyFraming::Length(length.unwrap_or(0)),
    };
    Ok(Some(RequestHead { request, end, body }))
}

/// Returns whether the head may be complete, given that the first `seen` bytes were not.
///
/// A head that arrives byte by byte is therefore not parsed at every byte.
#[must_use]
pub fn may_be_whole(bytes: &[u8], examined: usize, bytes_max: usize) -> bool {
    let new = &bytes[examined.saturating_sub(3)..];
    examined == 0 || bytes.len() >= bytes_max || memmem::find(new, b"\n\r\n").or_else(|| memmem::find(new, b"\n\n")).is_some()
}

fn bad(why: &str) -> Problem {
    Problem::bad_request("bad_head", format!("The request's head cannot be read: {why}."))
}

fn too_large(detail: String) -> Problem {
    Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", detail)
}

impl BodyFraming {
    const fn is_over(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(ChunkState::Over))
    }

    /// Advances over the body's part of these bytes, and returns its length.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            let left = (bytes.len() - at) as u64;
            at += match self {
                Self::Socket => bytes.len() - at,
                Self::Broken => return at,
                Self::Length(rest) | Self::Chunked(ChunkState::Data(rest)) if *rest > 0 => {
                    let taken = left.min(*rest);
                    *rest -= taken;
                    taken as usize
                }
                Self::Length(_) => 0,
                Self::Chunked(chunk) => match chunk.after(bytes[at]) {
                    Some(next) => {
                        *chunk = next;
                        1
                    }
                    None => {
                        *self = Self::Broken;
                        1
                    }
                },
            };
            if matches!(self, Self::Chunked(ChunkState::Data(0))) {
                *self = Self::Chunked(ChunkState::DataEnd(b"\r\n"));
            }
        }
        at
    }
}

impl ChunkState {
    /// The state after this byte, outside a chunk's data. `None`: the byte is invalid here.
    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Size(size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from(char::from(byte).to_digit(16)?);
                Self::Size(Some(size.unwrap_or(0).checked_mul(16)?.checked_add(digit)?))
            }
            (Self::Size(Some(size)), b';' | b' ' | b'\t') => Self::Extension(size),
            (Self::Size(Some(size)) | Self::Extension(size), b'\r') => Self::SizeEnd(size),
            (Self::Extension(size), byte) if byte != b'\n' => Self::Extension(size),
            (Self::SizeEnd(0) | Self::TrailerEnd, b'\n') => Self::Line,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataEnd([b'\r', rest @ ..]), b'\r') => Self::DataEnd(rest),
            (Self::DataEnd(b"\n"), b'\n') => Self::Size(None),
            (Self::Line, b'\r') => Self::LastEnd,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            (Self::Line | Self::Trailer, byte) if byte != b'\n' => Self::Trailer,
            (Self::LastEnd, b'\n') => Self::Over,
            _ => return None,
        })
    }
}

/// A connection that only passes checked heads and their bodies to hyper.
pub struct CheckedStream<S> {
    socket: S,
    /// Bytes read and not passed on.
    buffered: BytesMut,
    /// How many of them may be passed on.
    passable: usize,
    /// How much of an incomplete head was examined.
    examined: usize,
    state: ReadState,
    head_bytes_max: usize,
    refusal: RefusedHead,
    shutdown_discard: Option<(Pin<Box<Sleep>>, usize)>,
}

/// The problem of a connection's refused head, for the service that answers it.
pub type RefusedHead = Arc<OnceLock<Problem>>;

#[derive(Clone, Copy)]
enum ReadState {
    Head,
    Body(BodyFraming),
    /// All further input is ignored.
    Refused,
    /// The client has closed its side.
    End,
}

impl<S> CheckedStream<S> {
    /// Wraps an HTTP/1 connection. `read`: the bytes already read.
    pub fn new(socket: S, read: BytesMut, head_bytes_max: usize) -> Self {
        let refusal = RefusedHead::default();
        Self {
            socket,
            buffered: read,
            passable: 0,
            examined: 0,
            state: ReadState::Head,
            head_bytes_max,
            refusal,
            shutdown_discard: None,
        }
    }

    /// Wraps a connection that another parser checks. `read`: the bytes already read.
    pub fn unchecked(socket: S, read: BytesMut) -> Self {
        Self { state: ReadState::Body(BodyFraming::Socket), passable: read.len(), ..Self::new(socket, read, 0) }
    }

    /// The shared slot that receives the problem of a refused head.
    pub fn refusal(&self) -> RefusedHead {
        self.refusal.clone()
    }

    /// Examines the buffered bytes. Returns `false` if it needs more.
    fn check_held(&mut self) -> bool {
        match &mut self.state {
            ReadState::Head => {
                if self.buffered.is_empty() || !may_be_whole(&self.buffered, self.examined, self.head_bytes_max) {
                    return false;
                }
                let checked = check(&self.buffered, self.head_bytes_max, &mut [httparse::EMPTY_HEADER; HEADERS_MAX])
                    .map(|head| head.map(|head| (head.end, head.body)));
                match checked {
                    Ok(Some((end, body))) => {
                        self.state = if body.is_over() { ReadState::Head } else { ReadState::Body(body) };
                        (self.passable, self.examined) = (end, 0);
                    }
                    Ok(None) => {
                        self.examined = self.buffered.len();
                        return false;
                    }
                    Err(problem) => {
                        // At most one head of a connection is refused.
                        let _ = self.refusal.set(problem);
                        self.buffered = BytesMut::from(format!("{REFUSED} / HTTP/1.1\r\n\r\n").as_bytes());
                        (self.state, self.passable) = (ReadState::Refused, self.buffered.len());
                    }
                }
            }
            ReadState::Body(body) => {
                self.passable = body.take(&self.buffered);
                if body.is_over() {
                    self.state = ReadState::Head;
                }
                return self.passable > 0;
            }
            ReadState::Refused | ReadState::End => return false,
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CheckedStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.passable > 0 {
                let count = this.passable.min(into.remaining());
                into.put_slice(&this.buffered.split_to(count));
                this.passable -= count;
                if this.buffered.is_empty() {
                    // An idle connection keeps no buffer.
                    this.buffered = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if this.check_held() {
                continue;
            }
            match this.state {
                // The connection stays open so that the client can read the answer.
                ReadState::Refused => return Poll::Pending,
                ReadState::End | ReadState::Body(BodyFraming::Broken) => return Poll::Ready(Ok(())),
                ReadState::Head | ReadState::Body(_) => {}
            }
            let before = into.filled().len();
            ready!(Pin::new(&mut this.socket).poll_read(context, into))?;
            let came = &into.filled()[before..];
            if came.is_empty() {
                // hyper handles an incomplete request as on any broken connection.
                (this.state, this.passable) = (ReadState::End, this.buffered.len());
                if this.passable == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let taken = match &mut this.state {
                ReadState::Body(body) => body.take(came),
                ReadState::Head | ReadState::Refused | ReadState::End => 0,
            };
            this.buffered.extend_from_slice(&came[taken..]);
            into.set_filled(before + taken);
            if matches!(this.state, ReadState::Body(body) if body.is_over()) {
                this.state = ReadState::Head;
            }
            if taken > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CheckedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    /// Shuts down.
    ///
    /// After a refusal it discards further input for a while: closing a socket with unread input resets it, and the
    /// client would lose the answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
        if !matches!(this.state, ReadState::Refused) {
            return Poll::Ready(Ok(()));
        }
        let (until, discarded) = this.shutdown_discard.get_or_insert_with(|| (Box::pin(tokio::time::sleep(DISCARD_TIME_MAX)), 0));
        let mut void = [0; 4096];
        while *discarded < DISCARD_BYTES_MAX {
            let mut void = ReadBuf::new(&mut void);
            if until.as_mut().poll(context).is_ready() {
                break;
            }
            match ready!(Pin::new(&mut this.socket).poll_read(context, &mut void)) {
                Ok(()) if !void.filled().is_empty() => *discarded += void.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const MAX: usize = 1000;

    fn checked(head: &str) -> Result<Option<(usize, BodyFraming)>, (u16, &'static str)> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let head = check(head.as_bytes(), MAX, &mut headers);
        head.map(|head| head.map(|head| (head.end, head.body))).map_err(|problem| (problem.status.as_u16(), problem.code))
    }

    #[test]
    fn an_unambiguous_head_determines_its_body() {
        for (headers, body) in [
            ("", BodyFraming::Length(0)),
            ("Content-Length: 7\r\n", BodyFraming::Length(7)),
            ("content-length:  007 \r\n", BodyFraming::Length(7)),
            ("Transfer-Encoding: Chunked\r\n", BodyFraming::Chunked(ChunkState::Size(None))),
            ("Upgrade: websocket\r\n", BodyFraming::Socket),
            ("Upgrade: h2c\r\n", BodyFraming::Length(0)),
            ("Upgrade: websocket\r\nContent-Length: 3\r\n", BodyFraming::Length(3)),
        ] {
            let head = format!("\r\nPOST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            assert_eq!(checked(&format!("{head}rest")), Ok(Some((head.len(), body))), "{head}");
            assert_eq!(checked(&head[..head.len() - 1]), Ok(None), "{head}");
        }
    }

    #[test]
    fn a_malformed_or_ambiguous_head_is_refused() {
        let bad = Err((400, "bad_head"));
        for headers in [
            "Content-Length: +2\r\n",
            "Content-Length: -2\r\n",
            "Content-Length: 0x2\r\n",
            "Content-Length: 2, 2\r\n",
            "Content-Length: 2;\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
            "Content-Length : 2\r\n",
            "Transfer-Encoding : chunked\r\n",
            "X: a\r\n b\r\n",
            "X: a\r\n\tTransfer-Encoding: chunked\r\n",
            "X: a\nContent-Length: 2\r\n",
            "X: a\rContent-Length: 2\r\n",
            "X: a\0b\r\n",
        ] {
            assert_eq!(checked(&format!("POST / HTTP/1.1\r\n{headers}\r\n")), bad, "{headers:?}");
        }
        for head in [
            "POST / HTTP/1.1\nHost: h\n\n",
            "POST / HTTP/1.1\r\nHost: h\r\n\n",
            "\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\0\0",
        ] {
            assert_eq!(checked(head), bad, "{head:?}");
        }
        for coding in ["gzip, chunked", "chunked, gzip", "gzip", "identity", "chunked, chunked", "xchunked", ""] {
            let head = format!("POST / HTTP/1.1\r\nTransfer-Encoding: {coding}\r\n\r\n");
            assert_eq!(checked(&head), Err((501, "unsupported_transfer_coding")), "{coding:?}");
        }
    }

    #[test]
    fn a_head_of_exactly_the_limit_is_accepted_and_a_longer_one_is_not() {
        let head = |length: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(length - 23));
        assert_eq!(checked(&head(MAX)), Ok(Some((MAX, BodyFraming::Length(0)))));
        assert_eq!(checked(&head(MAX + 1)), Err((431, "head_too_large")));
        assert_eq!(checked(&head(MAX + 1)[..MAX - 1]), Ok(None));
        assert_eq!(checked(&head(MAX + 1)[..MAX]), Err((431, "head_too_large")));
        let many = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "X:\r\n".repeat(count));
        assert_eq!(checked(&many(HEADERS_MAX)), Ok(Some((many(HEADERS_MAX).len(), BodyFraming::Length(0)))));
        assert_eq!(checked(&many(HEADERS_MAX + 1)), Err((431, "head_too_large")));
    }

    #[test]
    fn a_body_ends_at_the_same_byte_however_the_input_is_split() {
        let chunked = BodyFraming::Chunked(ChunkState::Size(None));
        for (body, text, rest) in [
            (BodyFraming::Length(3), "abc", "GET"),
            (chunked, "0\r\n\r\n", "GET"),
            (chunked, "3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n000\r\n\r\n", "0\r\n\r\n"),
            (chunked, "1 \t\r\n\n\r\n0\r\nx: y\r\nz: \r\n\r\n", "\r\n"),
        ] {
            let all = [text, rest].concat();
            for cut in 0..=all.len() {
                let mut at = body;
                let first = at.take(&all.as_bytes()[..cut]);
                assert_eq!(first, cut.min(text.len()), "{all:?} {cut}");
                assert_eq!(first + at.take(&all.as_bytes()[first..]), text.len(), "{all:?} {cut}");
                assert!(at.is_over());
            }
        }
        for text in ["\r", "g", "-", "1\n", "1\r\naa", "1\r\na\n", "1;x\n", "0\r\n\n", "0\r\nx\n", "10000000000000000"] {
            let mut at = chunked;
            let taken = at.take(text.as_bytes());
            assert_eq!((at, taken), (BodyFraming::Broken, text.len()), "{text:?}");
            assert_eq!(at.take(b"GET / HTTP/1.1\r\n\r\n"), 0, "nothing after it is passed on");
        }
    }

    #[tokio::test]
    async fn bytes_passed_on_end_before_a_refused_head() {
        let first = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let second = "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nok";
        let bad = "POST / HTTP/1.1\r\nContent-Length: +2\r\n\r\nok";
        let all = [first, second, bad].concat();
        for cut in 0..=all.len() {
            let mut socket = CheckedStream::new(&all.as_bytes()[cut..], BytesMut::from(&all.as_bytes()[..cut]), MAX);
            let mut read = vec![0; first.len() + second.len() + "REFUSED / HTTP/1.1\r\n\r\n".len()];
            socket.read_exact(&mut read).await.unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), format!("{first}{second}REFUSED / HTTP/1.1\r\n\r\n"), "{cut}");
            assert_eq!(socket.refusal().get().map(|problem| problem.code), Some("bad_head"));
        }
    }
}
