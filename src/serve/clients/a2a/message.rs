//! A message of a client, read leniently: its texts, its data, and its files.
//!
//! A file comes as bytes or as an address, in the form of either version. Bytes become an attachment of the session, with
//! the limits of attachments. The server opens no address: the agent gets it, as from every other client.

use super::{CONTENT_NOT_SUPPORTED, Refusal, wrong};
use crate::attachments::{ATTACHMENT_BYTES_MAX, ATTACHMENT_NAME_CHARS_MAX, Upload, is_attachment_name, media_type_of};
use crate::control::Requester;
use crate::model::SessionId;
use crate::model::id::IdError;
use crate::projection::envelope_view::BLOB_PATH;
use crate::serve::App;
use crate::serve::acp::rpc::RpcError;
use crate::serve::api::attachments;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::quoted;
use crate::source::kind_of;
use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};
use serde_json::{Map, Value, json};

/// The longest id of a message, in bytes.
const MESSAGE_ID_BYTES_MAX: usize = 256;
/// The most files of one message.
const MESSAGE_FILES_MAX: usize = 32;
/// The schemes of addresses that an agent may open.
const SCHEMES: [&str; 2] = ["https", "http"];

/// A message of a client.
pub(super) struct Said {
    pub id: String,
    pub text: String,
    /// The data parts.
    pub data: Vec<Value>,
    pub files: Vec<SaidFile>,
    pub task: Option<String>,
    pub context: Option<SessionId>,
}

/// A file of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SaidFile {
    media_type: Box<str>,
    name: Option<Box<str>>,
    content: SaidContent,
}

#[derive(Debug, PartialEq, Eq)]
enum SaidContent {
    Bytes(Bytes),
    Url(String),
}

impl Said {
    pub fn read(params: &mut Map<String, Value>) -> Result<Self, Refusal> {
        let mut message = match params.shift_remove("message") {
            Some(Value::Object(message)) => message,
            other => return Err(wrong("message", other.as_ref().map_or("missing", kind_of), "an object")),
        };
        let text = |member: &str| match message.get(member) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(other) => Err(wrong(&format!("message.{member}"), kind_of(other), "text")),
        };
        let id = text("messageId")?.ok_or_else(|| wrong("message.messageId", "missing", "an id of the client's choice"))?;
        if id.len() > MESSAGE_ID_BYTES_MAX {
            return Err(wrong("message.messageId", "too long", &format!("at most {MESSAGE_ID_BYTES_MAX} bytes")));
        }
        let (task, context) = (text("taskId")?, text("contextId")?);
        let context = context.map(|context| context.parse()).transpose();
        let context =
            context.map_err(|error: IdError| wrong("message.contextId", &format!("not a valid id ({error})"), "an id"))?;
        let Some(Value::Array(parts)) = message.shift_remove("parts") else {
            return Err(wrong("message.parts", "missing or no list", "a list of parts"));
        };
        let (mut texts, mut data, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for (n, mut part) in parts.into_iter().enumerate() {
            match (part["text"].take(), part["data"].take()) {
                (Value::String(text), _) => texts.push(text),
                (_, Value::Null) => files.push(SaidFile::read(&format!("message.parts[{n}]"), part)?),
                (_, value) => data.push(value),
            }
        }
        if texts.is_empty() && data.is_empty() && files.is_empty() {
            return Err(wrong("message.parts", "empty", "a list of at least one part"));
        }
        if files.len() > MESSAGE_FILES_MAX {
            let detail =
                format!("message.parts has {} files. The limit is {MESSAGE_FILES_MAX}. Send several messages.", files.len());
            return Err(limited("message.parts", detail, MESSAGE_FILES_MAX));
        }
        Ok(Self { id, text: texts.join("\n"), data, files, task, context })
    }

    /// The message as agents of the server know messages. Its files become attachments of the session.
    ///
    /// # Errors
    /// Why a file is not taken.
    pub async fn into_message(self, app: &App, session: &SessionId, by: &Requester) -> Result<Value, Problem> {
        let data = self.data.iter().map(Value::to_string);
        let texts: Vec<String> = Some(self.text).filter(|text| !text.is_empty()).into_iter().chain(data).collect();
        let text = texts.join("\n");
        if self.files.is_empty() {
            return Ok(json!({ "id": self.id, "role": "user", "content": text }));
        }
        let mut content: Vec<Value> =
            Some(text).filter(|text| !text.is_empty()).map(|text| json!({ "type": "text", "text": text })).into_iter().collect();
        for file in self.files {
            content.push(file.into_part(app, session, by).await?);
        }
        Ok(json!({ "id": self.id, "role": "user", "content": content }))
    }
}

impl SaidFile {
    /// Reads a part that is neither text nor data. `at` names it in errors.
    fn read(at: &str, mut part: Value) -> Result<Self, Refusal> {
        // 0.3 has a file as an object of its own, 1.0 as members of the part.
        let mut file = match part["file"].take() {
            Value::Null => part,
            file => file,
        };
        let mut text = |members: [&str; 2]| {
            members.into_iter().find_map(|member| match file.get_mut(member)?.take() {
                Value::String(text) => Some(text),
                _ => None,
            })
        };
        let (bytes, url) = (text(["bytes", "raw"]), text(["uri", "url"]));
        let (stated, name) = (text(["mimeType", "mediaType"]), text(["name", "filename"]).filter(|name| !name.is_empty()));
        let stated = stated.unwrap_or_default();
        let media_type = media_type_of(&stated).ok_or_else(|| {
            let expected = "Send the file's media type, such as image/png.";
            unsupported(at, &format!("has the media type {}. {expected}", quoted(&stated)))
        })?;
        if name.as_ref().is_some_and(|name| !is_attachment_name(name)) {
            let limit = ATTACHMENT_NAME_CHARS_MAX;
            let detail = format!("The file's name in {at} must have at most {limit} characters, and no control characters.");
            return Err(limited(at, detail, limit));
        }
        let name = name.map(Into::into);
        match (bytes, url) {
            (Some(text), _) => Ok(Self { media_type, name, content: content_of(at, &text)? }),
            (None, Some(url)) => match url.strip_prefix("data:").map(|url| url.split_once(";base64,")) {
                Some(Some((of_url, text))) => {
                    let of_url = media_type_of(of_url).filter(|_| stated.is_empty());
                    Ok(Self { media_type: of_url.unwrap_or(media_type), name, content: content_of(at, text)? })
                }
                _ if is_address(&url) => Ok(Self { media_type, name, content: SaidContent::Url(url) }),
                _ => Err(unsupported(
                    at,
                    &format!("has the address {}, which no agent can open. Send the bytes, or an https address.", quoted(&url)),
                )),
            },
            (None, None) => Err(unsupported(at, "is neither text, data nor a file with bytes or an address.")),
        }
    }

    /// The file as a content part of AG-UI, the form in which agents of the server know files.
    async fn into_part(self, app: &App, session: &SessionId, by: &Requester) -> Result<Value, Problem> {
        let Self { media_type, name, content } = self;
        let mut part = json!({ "type": "binary", "mimeType": media_type });
        if let Some(name) = &name {
            part["filename"] = (**name).into();
        }
        part["url"] = match content {
            SaidContent::Url(url) => url.into(),
            SaidContent::Bytes(body) => attachments::add(app, session, Upload { media_type, name, body }, by).await?.into(),
        };
        Ok(part)
    }
}

/// Whether an agent may open this address: one of the web, or of an attachment of this server.
fn is_address(url: &str) -> bool {
    url.starts_with(BLOB_PATH)
        || url
            .split_once("://")
            .is_some_and(|(scheme, rest)| SCHEMES.contains(&&*scheme.to_ascii_lowercase()) && !rest.is_empty())
}

/// The bytes of a file, of which no part may be missing. JSON of protocol buffers has base64 in several alphabets.
fn content_of(at: &str, text: &str) -> Result<SaidContent, Refusal> {
    let alphabets = [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD];
    let Some(bytes) = alphabets.iter().find_map(|alphabet| alphabet.decode(text.as_bytes()).ok()) else {
        return Err(RpcError::params(at, format!("The bytes of the file in {at} are not base64.")).into());
    };
    match bytes.len() {
        0 => Err(RpcError::params(at, format!("The file in {at} has no bytes. Send the message without it.")).into()),
        1..=ATTACHMENT_BYTES_MAX => Ok(SaidContent::Bytes(bytes.into())),
        bytes => {
            let detail = format!("The file in {at} has {bytes} bytes. The limit is {ATTACHMENT_BYTES_MAX}. Send its address.");
            Err(limited(at, detail, ATTACHMENT_BYTES_MAX))
        }
    }
}

/// A part of a kind that no agent gets.
fn unsupported(at: &str, why: &str) -> Refusal {
    RpcError::new(CONTENT_NOT_SUPPORTED, format!("{at} {why}")).with(json!({ "member": at })).into()
}

/// A member that is beyond a limit.
fn limited(member: &str, detail: String, limit: usize) -> Refusal {
    RpcError::params(member, detail).with(json!({ "member": member, "limit": limit })).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(part: Value) -> Result<SaidFile, (i64, String)> {
        SaidFile::read("message.parts[0]", part).map_err(|refusal| match refusal {
            Refusal::Rpc(error) => (error.code, error.message),
            Refusal::Problem(problem) => panic!("{problem:?}"),
        })
    }

    fn file(media_type: &str, name: Option<&str>, content: SaidContent) -> SaidFile {
        SaidFile { media_type: media_type.into(), name: name.map(Into::into), content }
    }

    #[test]
    fn a_file_is_read_in_the_forms_of_both_versions() {
        let bytes = || SaidContent::Bytes(Bytes::from_static(b"\xfb\xff"));
        let url = |url: &str| SaidContent::Url(url.into());
        for (part, expected) in [
            (
                json!({ "kind": "file", "file": { "bytes": "+/8=", "mimeType": "image/png", "name": "a.png" } }),
                file("image/png", Some("a.png"), bytes()),
            ),
            (
                json!({ "raw": "-_8", "mediaType": "Image/PNG; x=1", "filename": "a.png" }),
                file("image/png", Some("a.png"), bytes()),
            ),
            (json!({ "raw": "+/8" }), file("application/octet-stream", None, bytes())),
            (json!({ "url": "data:image/png;base64,+/8=" }), file("image/png", None, bytes())),
            (
                json!({ "kind": "file", "file": { "uri": "https://a.example/b.pdf", "mimeType": "application/pdf" } }),
                file("application/pdf", None, url("https://a.example/b.pdf")),
            ),
            (
                json!({ "url": "HTTP://a.example/b", "filename": "b" }),
                file("application/octet-stream", Some("b"), url("HTTP://a.example/b")),
            ),
            (json!({ "url": "/v1/blobs/a" }), file("application/octet-stream", None, url("/v1/blobs/a"))),
        ] {
            assert_eq!(read(part.clone()), Ok(expected), "{part}");
        }
    }

    #[test]
    fn a_file_that_is_not_taken_is_named_with_the_reason() {
        for (part, code, names) in [
            (json!({ "kind": "hologram" }), -32005, "neither text, data nor a file"),
            (json!({ "kind": "file", "file": {} }), -32005, "neither text"),
            (json!({ "raw": "QUI=", "mediaType": "png" }), -32005, "media type \"png\""),
            (json!({ "url": "file:///etc/passwd" }), -32005, "no agent can open"),
            (json!({ "url": "a.png" }), -32005, "no agent can open"),
            (json!({ "url": "https://" }), -32005, "no agent can open"),
            (json!({ "url": "data:text/plain,Hi" }), -32005, "no agent can open"),
            (json!({ "raw": "*" }), -32602, "not base64"),
            (json!({ "raw": "" }), -32602, "no bytes"),
            (json!({ "raw": "QUI=", "filename": "a\nb" }), -32602, "control characters"),
        ] {
            let (refused, why) = read(part.clone()).unwrap_err();
            assert!(refused == code && why.contains(names) && why.contains("message.parts[0]"), "{part}: {refused} {why}");
        }
    }

    #[test]
    fn a_file_has_at_most_the_bytes_of_an_attachment() {
        let of = |bytes: usize| read(json!({ "raw": BASE64.encode(&vec![1; bytes]) }));
        assert!(of(ATTACHMENT_BYTES_MAX).is_ok());
        let (code, why) = of(ATTACHMENT_BYTES_MAX + 1).unwrap_err();
        assert!(code == -32602 && why.contains("10485760"), "{why}");
    }
}
