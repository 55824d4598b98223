//! The parts of a user's message: texts, and files, which each protocol carries in its own form.
//!
//! A message has its files as AG-UI has them: a `binary` part, or one of a kind (`image`, `document` …) with a `source`.
//! An attachment is named by its address on this server, and its bytes get in when the agent is called.

use super::call::UserMessage;
use super::error::UpstreamError;
use crate::encode::files::{FileContent, FilePart};
use crate::ingest::BlobMeta;
use crate::model::{BlobId, SessionId};
use crate::projection::envelope_view::BLOB_PATH;
use crate::serve::App;
use data_encoding::BASE64;
use serde_json::Value;

/// The most bytes of attachments in one call: the request is built in memory.
pub(super) const CALL_ATTACHMENTS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The code of a file that an agent cannot get.
pub(super) const FILE_REFUSED: &str = "file_refused";

/// The longest type of a part that an error names, in characters.
const KIND_CHARS_MAX: usize = 64;

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part<'m> {
    Text(&'m str),
    File(FilePart<'m>),
}

/// The text of an inline file that is one.
pub(super) fn text_of(file: &FilePart<'_>) -> Option<String> {
    let is_text = file.is("text") || ["application/json", "application/xml"].contains(&file.media_type);
    match file.content {
        FileContent::Inline(data) if is_text => String::from_utf8(BASE64.decode(data.as_bytes()).ok()?).ok(),
        _ => None,
    }
}

/// The failure of a call whose agent cannot get a file.
pub(super) fn refused(file: &FilePart<'_>, why: &str) -> UpstreamError {
    let (name, media_type) = (file.shown_name(), file.media_type);
    let detail = format!("The agent cannot get the file {name} ({media_type}): {why} Send the message without it.");
    UpstreamError::new(FILE_REFUSED, detail)
}

/// The parts of a message's content.
pub(super) fn parts(content: &Value) -> Vec<Part<'_>> {
    match content {
        Value::String(text) => vec![Part::Text(text)],
        Value::Array(parts) => parts.iter().filter_map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(part: &Value) -> Option<Part<'_>> {
    match part.get("text").and_then(Value::as_str) {
        Some(text) => Some(Part::Text(text)),
        None => FilePart::of(part).map(Part::File),
    }
}

/// Checks that an agent gets every part of these messages: texts, and files with bytes or an address.
///
/// # Errors
/// The first part that is neither, such as a `binary` with an `id` alone, which names a file of another store.
pub(super) fn check_known(messages: &[UserMessage]) -> Result<(), UpstreamError> {
    let mut all = messages.iter().filter_map(|message| message.content.as_array()).flatten();
    let Some(unknown) = all.find(|content| part(content).is_none()) else { return Ok(()) };
    let kind: String = unknown["type"].as_str().unwrap_or("unknown").chars().take(KIND_CHARS_MAX).collect();
    let detail = format!(
        "The agent cannot get a part of the message (type {kind}): it is no text, and has neither bytes nor an address. Send \
         the message without it, or attach the file."
    );
    Err(UpstreamError::new(FILE_REFUSED, detail))
}

/// Whether a message is text alone.
pub(super) fn is_text_alone(content: &Value) -> bool {
    content.as_array().is_none_or(|all| all.iter().all(|one| matches!(part(one), Some(Part::Text(_)))))
}

/// The id of the attachment that a part names.
fn attachment_of(part: &Value) -> Option<(BlobId, &'static str)> {
    let url = |pointer: &'static str| {
        let id = part.pointer(pointer)?.as_str()?.strip_prefix(BLOB_PATH)?;
        Some((BlobId::new(id).ok()?, pointer))
    };
    url("/url").or_else(|| url("/source/value")).or_else(|| url("/source/url"))
}

/// The messages with the bytes of the attachments that they name.
///
/// # Errors
/// An attachment that the session does not have, too many bytes, or the store's failure.
pub(super) async fn with_attachments(
    app: &App,
    session: &SessionId,
    mut messages: Vec<UserMessage>,
) -> Result<Vec<UserMessage>, UpstreamError> {
    let mut room = CALL_ATTACHMENTS_BYTES_MAX;
    for message in &mut messages {
        for part in message.content.as_array_mut().into_iter().flatten() {
            let Some((id, pointer)) = attachment_of(part) else { continue };
            let refused = |why: String| UpstreamError::new(FILE_REFUSED, why);
            let found = app.attachments.read(session, &id).await.map_err(|error| {
                tracing::warn!(%id, %error, "an attachment cannot be read");
                refused(format!("The attachment {BLOB_PATH}{id} cannot be read. Send the message again."))
            })?;
            let Some((meta, body)) = found else {
                let why = "the session does not have it. An attachment that no message names is removed after a day. Attach the file again.";
                return Err(refused(format!("The agent cannot get the attachment {BLOB_PATH}{id}: {why}")));
            };
            room = room.checked_sub(body.len()).ok_or_else(|| {
                let limit = CALL_ATTACHMENTS_BYTES_MAX;
                refused(format!(
                    "The attachments of the message have more than {limit} bytes, the limit. Send them in several messages."
                ))
            })?;
            put_bytes(part, pointer, &meta, &body);
        }
    }
    Ok(messages)
}

/// Puts the bytes of attachments into messages of the log, the newest as far as they fit. The others are left out.
pub(super) async fn fill_history(app: &App, session: &SessionId, history: &mut [Value]) {
    let mut room = CALL_ATTACHMENTS_BYTES_MAX;
    for message in history.iter_mut().rev() {
        let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) else { continue };
        let mut kept = Vec::with_capacity(parts.len());
        for mut part in std::mem::take(parts) {
            if let Some((id, pointer)) = attachment_of(&part) {
                let found = app.attachments.read(session, &id).await.ok().flatten();
                let Some((meta, body)) = found.filter(|(_, body)| body.len() <= room) else { continue };
                room -= body.len();
                put_bytes(&mut part, pointer, &meta, &body);
            }
            kept.push(part);
        }
        *parts = kept;
    }
}

/// Replaces the address of an attachment by its bytes.
fn put_bytes(part: &mut Value, pointer: &str, meta: &BlobMeta, body: &[u8]) {
    let url = format!("data:{};base64,{}", meta.media_type, BASE64.encode(body));
    part.pointer_mut(pointer).into_iter().for_each(|at| *at = url.as_str().into());
    if let Some(source) = part.get_mut("source") {
        source["type"] = "url".into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_that_is_neither_text_nor_a_file_is_refused() {
        let message = |part: Value| UserMessage {
            id: "u".into(),
            text: "See".into(),
            content: json!([{ "type": "text", "text": "See" }, part]),
        };
        let file = json!({ "type": "binary", "mimeType": "image/png", "url": "/v1/blobs/a" });
        assert!(check_known(&[message(file.clone())]).is_ok());
        for part in [json!({ "type": "binary", "id": "7", "mimeType": "image/png" }), json!({ "type": "hologram" }), json!(7)] {
            assert!(!is_text_alone(&message(part.clone()).content));
            assert!(check_known(&[message(part.clone())]).is_err(), "{part}");
        }
        let text = UserMessage { id: "u".into(), text: "See".into(), content: json!("See") };
        assert!(is_text_alone(&text.content) && !is_text_alone(&message(file).content) && check_known(&[text]).is_ok());
    }

    #[test]
    fn a_file_is_read_in_every_form_of_ag_ui() {
        let inline = |media_type, name| Part::File(FilePart { media_type, name, content: FileContent::Inline("QUI=") });
        let forms = json!([
            { "type": "text", "text": "See" },
            { "type": "binary", "mimeType": "image/png", "filename": "a.png", "data": "QUI=" },
            { "type": "binary", "mimeType": "image/png", "filename": "a.png", "url": "data:image/png;base64,QUI=" },
            { "type": "binary", "url": "data:image/png;base64,QUI=" },
            { "type": "image", "source": { "type": "data", "value": "QUI=", "mimeType": "image/png" } },
            { "type": "document", "source": { "type": "url", "value": "https://a.example/b.pdf", "mimeType": "application/pdf" } },
            { "type": "binary", "id": "of a store that is not ours", "mimeType": "image/png" },
        ]);
        let url = FileContent::Url("https://a.example/b.pdf");
        let expected = [
            Part::Text("See"),
            inline("image/png", Some("a.png")),
            inline("image/png", Some("a.png")),
            inline("image/png", None),
            inline("image/png", None),
            Part::File(FilePart { media_type: "application/pdf", name: None, content: url }),
        ];
        assert_eq!(parts(&forms), expected);
        assert_eq!(parts(&json!("Hello")), [Part::Text("Hello")]);
        let Part::File(file) = &parts(&forms)[1] else { unreachable!() };
        assert_eq!((file.url().as_str(), file.is("image"), text_of(file)), ("data:image/png;base64,QUI=", true, None));
        let text = json!([{ "type": "binary", "mimeType": "text/csv", "data": "QUI=" }]);
        let [Part::File(file)] = &parts(&text)[..] else { unreachable!() };
        assert_eq!(text_of(file).as_deref(), Some("AB"));
    }
}
