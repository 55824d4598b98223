//! Heads of HTTP/1 requests (RFC 9112), checked before anything acts on them.
//!
//! Two parsers read a connection, ours and hyper's, and a proxy may read it before them. Where they could disagree about the end
//! of a request, an attacker hides a second request in the first (request smuggling). So only heads that have one reading are
//! accepted: lines end with CRLF, a body has one plain `Content-Length` or the one coding `chunked`. hyper reads a connection
//! through [`Checked`], which follows each body to its end and checks the next head before hyper gets a byte of it.

use super::problem::Problem;
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

/// Headers of one request.
pub const HEADERS_MAX: usize = 100;
/// The method of the request that hyper gets in the place of one that is refused.
pub const REFUSED: &str = "REFUSED";
/// What is read and thrown away of a client that was refused, so that it gets to read why, and for how long.
const DISCARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

/// A head that has one reading.
pub struct Head<'h, 'b> {
    pub request: httparse::Request<'h, 'b>,
    /// Its length, in bytes.
    pub end: usize,
    pub body: Body,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes.
    Length(u64),
    Chunked(Chunk),
    /// What a WebSocket carries, if the server takes it for one; else nothing that is read.
    Socket,
    /// What no parser should read on from.
    Broken,
}

/// Where in a chunked body (RFC 9112, section 7.1) its reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// In a chunk's size, as far as it has digits.
    Size(Option<u64>),
    Extension(u64),
    SizeEnd(u64),
    Data(u64),
    DataEnd(&'static [u8]),
    /// At the beginning of a trailer's line, in it, and before its end.
    Line,
    Trailer,
    TrailerEnd,
    LastEnd,
    Over,
}

/// Checks the head that these bytes begin with; `None` while it is not whole.
///
/// # Errors
/// 431 for one that is longer than `bytes_max`, 501 for a transfer coding, 400 for what can be read in more than one way.
pub fn check<'h, 'b>(
    bytes: &'b [u8],
    bytes_max: usize,
    headers: &'h mut [httparse::Header<'b>; HEADERS_MAX],
) -> Result<Option<Head<'h, 'b>>, Problem> {
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
        return Err(bad("a line ends with LF alone; end each line with CRLF"));
    }
    let (mut length, mut is_chunked, mut is_socket) = (None, false, false);
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let number = std::str::from_utf8(header.value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let Some(number) = number.and_then(|text| text.parse().ok()) else {
                return Err(bad("Content-Length is no whole number of bytes; send digits only"));
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
        (true, None) => Body::Chunked(Chunk::Size(None)),
        (false, None | Some(0)) if is_socket => Body::Socket,
        (false, length) => Body::Length(length.unwrap_or(0)),
    };
    Ok(Some(Head { request, end, body }))
}

/// Whether more of a head may be whole now, of which so much was not: a head that comes byte by byte is not parsed each time.
#[must_use]
pub fn may_be_whole(bytes: &[u8], seen: usize, bytes_max: usize) -> bool {
    let new = &bytes[seen.saturating_sub(3)..];
    seen == 0 || bytes.len() >= bytes_max || memmem::find(new, b"\n\r\n").or_else(|| memmem::find(new, b"\n\n")).is_some()
}

fn bad(why: &str) -> Problem {
    Problem::bad_request("bad_head", format!("The request's head cannot be read: {why}."))
}

fn too_large(detail: String) -> Problem {
    Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", detail)
}

impl Body {
    const fn is_over(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Over))
    }

    /// How many of these bytes belong to the body.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            let left = (bytes.len() - at) as u64;
            at += match self {
                Self::Socket => bytes.len() - at,
                Self::Broken => return at,
                Self::Length(rest) | Self::Chunked(Chunk::Data(rest)) if *rest > 0 => {
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
            if matches!(self, Self::Chunked(Chunk::Data(0))) {
                *self = Self::Chunked(Chunk::DataEnd(b"\r\n"));
            }
        }
        at
    }
}

impl Chunk {
    /// Where this byte leads, outside of a chunk's data; `None` where it cannot stand.
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

/// A connection as hyper may read it.
pub struct Checked<S> {
    socket: S,
    /// What was read, and not handed on.
    held: BytesMut,
    /// How much of it may be handed on.
    passed: usize,
    /// Of a head that is not whole: how much was looked at.
    seen: usize,
    at: At,
    head_bytes_max: usize,
    refusal: Refusal,
    parting: Option<(Pin<Box<Sleep>>, usize)>,
}

/// Why a connection's last head was refused, for the service that answers it.
pub type Refusal = Arc<OnceLock<Problem>>;

#[derive(Clone, Copy)]
enum At {
    Head,
    Body(Body),
    /// Nothing that comes is looked at.
    Refused,
    /// The other side has closed.
    End,
}

impl<S> Checked<S> {
    /// A connection of HTTP/1, of which `read` was read already.
    pub fn new(socket: S, read: BytesMut, head_bytes_max: usize) -> Self {
        let refusal = Refusal::default();
        Self { socket, held: read, passed: 0, seen: 0, at: At::Head, head_bytes_max, refusal, parting: None }
    }

    /// A connection of which `read` was read already, and that another parser checks.
    pub fn unchecked(socket: S, read: BytesMut) -> Self {
        Self { at: At::Body(Body::Socket), passed: read.len(), ..Self::new(socket, read, 0) }
    }

    /// Where the reason stands once a head was refused.
    pub fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }

    /// Looks at what is held; false where more has to be read first.
    fn look(&mut self) -> bool {
        match &mut self.at {
            At::Head => {
                if self.held.is_empty() || !may_be_whole(&self.held, self.seen, self.head_bytes_max) {
                    return false;
                }
                let checked = check(&self.held, self.head_bytes_max, &mut [httparse::EMPTY_HEADER; HEADERS_MAX])
                    .map(|head| head.map(|head| (head.end, head.body)));
                match checked {
                    Ok(Some((end, body))) => {
                        self.at = if body.is_over() { At::Head } else { At::Body(body) };
                        (self.passed, self.seen) = (end, 0);
                    }
                    Ok(None) => {
                        self.seen = self.held.len();
                        return false;
                    }
                    Err(problem) => {
                        // One head is refused at most.
                        let _ = self.refusal.set(problem);
                        self.held = BytesMut::from(format!("{REFUSED} / HTTP/1.1\r\n\r\n").as_bytes());
                        (self.at, self.passed) = (At::Refused, self.held.len());
                    }
                }
            }
            At::Body(body) => {
                self.passed = body.take(&self.held);
                if body.is_over() {
                    self.at = At::Head;
                }
                return self.passed > 0;
            }
            At::Refused | At::End => return false,
        }
        true
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.passed > 0 {
                let count = this.passed.min(into.remaining());
                into.put_slice(&this.held.split_to(count));
                this.passed -= count;
                if this.held.is_empty() {
                    // A connection that is idle keeps no room.
                    this.held = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if this.look() {
                continue;
            }
            match this.at {
                // It stays open, so that its answer can be read.
                At::Refused => return Poll::Pending,
                At::End | At::Body(Body::Broken) => return Poll::Ready(Ok(())),
                At::Head | At::Body(_) => {}
            }
            let before = into.filled().len();
            ready!(Pin::new(&mut this.socket).poll_read(context, into))?;
            let came = &into.filled()[before..];
            if came.is_empty() {
                // Of what is not whole hyper makes what it makes of every connection that breaks off.
                (this.at, this.passed) = (At::End, this.held.len());
                if this.passed == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let taken = match &mut this.at {
                At::Body(body) => body.take(came),
                At::Head | At::Refused | At::End => 0,
            };
            this.held.extend_from_slice(&came[taken..]);
            into.set_filled(before + taken);
            if matches!(this.at, At::Body(body) if body.is_over()) {
                this.at = At::Head;
            }
            if taken > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Checked<S> {
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

    /// After a refusal what still comes is read and thrown away for a while: a socket that is dropped with something unread takes
    /// back what it has sent.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(Pin::new(&mut this.socket).poll_shutdown(context))?;
        if !matches!(this.at, At::Refused) {
            return Poll::Ready(Ok(()));
        }
        let (until, discarded) = this.parting.get_or_insert_with(|| (Box::pin(tokio::time::sleep(DISCARD_TIME_MAX)), 0));
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

    fn checked(head: &str) -> Result<Option<(usize, Body)>, (u16, &'static str)> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let head = check(head.as_bytes(), MAX, &mut headers);
        head.map(|head| head.map(|head| (head.end, head.body))).map_err(|problem| (problem.status.as_u16(), problem.code))
    }

    #[test]
    fn a_head_with_one_reading_says_what_follows_it() {
        for (headers, body) in [
            ("", Body::Length(0)),
            ("Content-Length: 7\r\n", Body::Length(7)),
            ("content-length:  007 \r\n", Body::Length(7)),
            ("Transfer-Encoding: Chunked\r\n", Body::Chunked(Chunk::Size(None))),
            ("Upgrade: websocket\r\n", Body::Socket),
            ("Upgrade: h2c\r\n", Body::Length(0)),
            ("Upgrade: websocket\r\nContent-Length: 3\r\n", Body::Length(3)),
        ] {
            let head = format!("\r\nPOST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            assert_eq!(checked(&format!("{head}rest")), Ok(Some((head.len(), body))), "{head}");
            assert_eq!(checked(&head[..head.len() - 1]), Ok(None), "{head}");
        }
    }

    #[test]
    fn a_head_that_two_parsers_could_read_in_two_ways_is_refused() {
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
    fn a_head_of_exactly_the_limit_is_taken_and_a_longer_one_is_not() {
        let head = |length: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(length - 23));
        assert_eq!(checked(&head(MAX)), Ok(Some((MAX, Body::Length(0)))));
        assert_eq!(checked(&head(MAX + 1)), Err((431, "head_too_large")));
        assert_eq!(checked(&head(MAX + 1)[..MAX - 1]), Ok(None));
        assert_eq!(checked(&head(MAX + 1)[..MAX]), Err((431, "head_too_large")));
        let many = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "X:\r\n".repeat(count));
        assert_eq!(checked(&many(HEADERS_MAX)), Ok(Some((many(HEADERS_MAX).len(), Body::Length(0)))));
        assert_eq!(checked(&many(HEADERS_MAX + 1)), Err((431, "head_too_large")));
    }

    #[test]
    fn a_body_is_followed_to_its_end_however_it_is_cut() {
        let chunked = Body::Chunked(Chunk::Size(None));
        for (body, text, rest) in [
            (Body::Length(3), "abc", "GET"),
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
            assert_eq!((at, taken), (Body::Broken, text.len()), "{text:?}");
            assert_eq!(at.take(b"GET / HTTP/1.1\r\n\r\n"), 0, "nothing after it is handed on");
        }
    }

    #[tokio::test]
    async fn what_is_handed_on_ends_before_a_head_that_is_refused() {
        let first = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let second = "PUT / HTTP/1.1\r\nContent-Length: 2\r\n\r\nok";
        let bad = "POST / HTTP/1.1\r\nContent-Length: +2\r\n\r\nok";
        let all = [first, second, bad].concat();
        for cut in 0..=all.len() {
            let mut socket = Checked::new(&all.as_bytes()[cut..], BytesMut::from(&all.as_bytes()[..cut]), MAX);
            let mut read = vec![0; first.len() + second.len() + "REFUSED / HTTP/1.1\r\n\r\n".len()];
            socket.read_exact(&mut read).await.unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), format!("{first}{second}REFUSED / HTTP/1.1\r\n\r\n"), "{cut}");
            assert_eq!(socket.refusal().get().map(|problem| problem.code), Some("bad_head"));
        }
    }
}
