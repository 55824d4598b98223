//! The files of a user's message, for clients that show them in it and agents that get them.

use proscenium_projection::bodies::{BODIES, is_within};
use proscenium_projection::members::TypedContent;
use proscenium_projection::message::{ATTACHMENTS, ROLE};
use serde_json::{Map, Value, json};

/// The types of AG-UI's content parts that are files.
const FILE_TYPES: &[&str] = &["binary", "image", "audio", "video", "document"];

/// The files of a message, as content parts of AG-UI.
///
/// Those in other forms are left out, and those whose bytes moved out of the envelope.
pub(crate) fn files(content: &Map<String, Value>) -> Vec<Value> {
    if content.read(ROLE) != Some("user") {
        return Vec::new();
    }
    let Some(Value::Array(attachments)) = content.get(ATTACHMENTS.name()) else { return Vec::new() };
    let moved = content.read(BODIES);
    let is_whole = |n: usize| {
        let at = format!("/{}/{n}", ATTACHMENTS.name());
        moved.is_none_or(|bodies| bodies.keys().all(|pointer| !is_within(pointer, &at)))
    };
    let is_file = |part: &Value| part["type"].as_str().is_some_and(|of| FILE_TYPES.contains(&of));
    attachments.iter().enumerate().filter(|(n, part)| is_file(part) && is_whole(*n)).map(|(_, part)| part.clone()).collect()
}

/// A file in a message, in any of AG-UI's forms: `binary`, or a kind (`image`, `document` …) with a `source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart<'m> {
    /// Its media type; `application/octet-stream` if the part says none.
    pub media_type: &'m str,
    /// Its name, if the part says one.
    pub name: Option<&'m str>,
    /// Its bytes, or where they are.
    pub content: FileContent<'m>,
}

/// Where the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileContent<'m> {
    /// In base64.
    Inline(&'m str),
    /// At an address.
    Url(&'m str),
}

impl<'m> FilePart<'m> {
    /// Reads a content part of AG-UI. `None`: it says nothing of bytes or an address.
    #[must_use]
    pub fn of(part: &'m Value) -> Option<Self> {
        let text = |of: &'m Value, member: &str| of.get(member).and_then(Value::as_str);
        let source = part.get("source").unwrap_or(part);
        let (declared, name) = (text(source, "mimeType"), text(part, "filename"));
        let inline = text(source, "data").or_else(|| text(source, "value").filter(|_| source["type"] == "data"));
        let url = text(source, "url").or_else(|| text(source, "value"));
        let (media_type, content) = match (inline, url) {
            (Some(data), _) => (declared, FileContent::Inline(data)),
            (None, Some(url)) => match url.strip_prefix("data:").and_then(|url| url.split_once(";base64,")) {
                Some((media_type, data)) => (declared.or(Some(media_type)), FileContent::Inline(data)),
                None => (declared, FileContent::Url(url)),
            },
            (None, None) => return None,
        };
        Some(Self { media_type: media_type.filter(|it| !it.is_empty()).unwrap_or("application/octet-stream"), name, content })
    }

    /// Whether it is of this kind, such as `image`.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        self.media_type.split_once('/').is_some_and(|(of, _)| of == kind)
    }

    /// The name of the file, or else its media type.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.name.unwrap_or(self.media_type)
    }

    /// Its address; one with the bytes in it if they are inline.
    #[must_use]
    pub fn url(&self) -> String {
        match self.content {
            FileContent::Inline(data) => format!("data:{};base64,{data}", self.media_type),
            FileContent::Url(url) => url.to_owned(),
        }
    }

    /// The file as a part of a message of the AI SDK.
    #[must_use]
    pub fn to_ai_sdk(&self) -> Value {
        let mut part = json!({ "type": "file", "mediaType": self.media_type, "url": self.url() });
        if let Some(name) = self.name {
            part["filename"] = name.into();
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_s_files_are_those_with_whole_bytes_or_an_address() {
        let binary = json!({ "type": "binary", "mimeType": "image/png", "url": "/v1/blobs/a", "filename": "a.png" });
        let source = json!({ "type": "data", "value": "QUI=", "mimeType": "image/png" });
        let image = json!({ "type": "image", "source": source });
        let moved = json!({ "type": "binary", "mimeType": "image/png", "url": "data:image/png;base64,AA…" });
        let own = json!({ "name": "of a runtime" });
        let bodies = json!({ "/attachments/2/url": { "href": "/v1/blobs/b" } });
        let content = json!({ "role": "user", "attachments": [binary, image, moved, own], "bodies": bodies });
        let found = files(content.as_object().unwrap());
        assert_eq!(found, [binary, image]);
        let parts: Vec<_> = found.iter().filter_map(FilePart::of).map(|file| file.to_ai_sdk()).collect();
        assert_eq!(
            json!(parts),
            json!([
                { "type": "file", "mediaType": "image/png", "url": "/v1/blobs/a", "filename": "a.png" },
                { "type": "file", "mediaType": "image/png", "url": "data:image/png;base64,QUI=" },
            ])
        );
        let of_agent = json!({ "role": "assistant", "attachments": content["attachments"] });
        assert_eq!(files(of_agent.as_object().unwrap()), Vec::<Value>::new());
    }
}
