//! The documentation of this version: its pages at `/docs/`, as Markdown too, and `/llms.txt`.
//!
//! The binary contains the Markdown and its pictures. A page becomes HTML when it is asked for.

use super::workbench::{DOCUMENT_HEADERS, is_known};
use crate::serve::App;
use crate::serve::http::problem::Problem;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// The files of the documentation, by their paths in `docs/src`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Documentation {
    texts: &'static [(&'static str, &'static str)],
    pictures: &'static [(&'static str, &'static [u8])],
}

/// The formats of pictures, by the ends of their names.
const FORMATS: [(&str, &str); 2] = [(".png", "image/png"), (".svg", "image/svg+xml")];
/// The end of the name of a picture for dark pages, beside that of the same name without it.
const DARK: &str = "-dark";

/// The page that lists all pages.
const SUMMARY: &str = "SUMMARY.md";
/// The first page of a build without documentation.
const ABSENT: &str = "# Proscenium\n\nThis build contains no documentation.\n";

impl Documentation {
    /// The pages with their texts, and the pictures with their bytes.
    #[must_use]
    pub const fn new(texts: &'static [(&'static str, &'static str)], pictures: &'static [(&'static str, &'static [u8])]) -> Self {
        Self { texts, pictures }
    }

    fn text(self, file: &str) -> Option<&'static str> {
        self.texts.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
    }

    fn picture(self, file: &str) -> Option<&'static [u8]> {
        self.pictures.iter().find(|(name, _)| *name == file).map(|(_, bytes)| *bytes)
    }

    /// The address of the page that a link in `from` leads to. `None`: the binary does not contain it.
    fn resolve(self, from: &str, link: &str) -> Option<String> {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let file = file_of(from, path)?;
        self.text(&file)?;
        let name = file.strip_suffix(".md")?;
        let hash = if anchor.is_empty() { "" } else { "#" };
        Some(if name == "index" { format!("/docs/{hash}{anchor}") } else { format!("/docs/{name}{hash}{anchor}") })
    }

    /// A page as HTML.
    fn page(self, file: &str, text: &str) -> String {
        let (body, title) = self.body(file, text);
        let (nav, _) = self.body(SUMMARY, self.text(SUMMARY).unwrap_or_default());
        let address = self.resolve(file, "").unwrap_or_default();
        let nav = nav.replace(&format!("<a href=\"{address}\""), &format!("<a aria-current=\"page\" href=\"{address}\""));
        let markdown = format!("/docs/{file}");
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
             initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>{title} · Proscenium</title><link \
             rel=\"stylesheet\" href=\"/assets/tokens.css\"><link rel=\"stylesheet\" href=\"/assets/docs.css\"><link rel=\"alternate\" \
             type=\"text/markdown\" href=\"{markdown}\"></head>\n<body><a class=\"skip\" href=\"#text\">Skip to the text</a>\n<header><a \
             href=\"/\">Proscenium</a> <span>{version}</span> <a href=\"{markdown}\">Markdown</a></header>\n<nav \
             aria-label=\"Documentation\">{nav}</nav>\n<main id=\"text\" tabindex=\"-1\">{body}</main></body></html>\n",
            version = env!("CARGO_PKG_VERSION"),
        )
    }

    /// The text of a page as HTML, and its title.
    fn body(self, file: &str, text: &str) -> (String, String) {
        let mut events: Vec<Event> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
        let (mut ids, mut title) = (HashMap::new(), None);
        for at in 0..events.len() {
            match events[at].clone() {
                Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
                    let words = text_of(&events[at + 1..], TagEnd::Heading(level));
                    let id = Some(unique(&mut ids, slug(&words)).into());
                    title.get_or_insert(words);
                    events[at] = Event::Start(Tag::Heading { level, id, classes, attrs });
                }
                Event::Start(Tag::Link { dest_url, .. }) if !dest_url.contains("://") => {
                    let end = at + events[at..].iter().position(|event| *event == Event::End(TagEnd::Link)).unwrap_or(0);
                    let (open, close) = match self.resolve(file, &dest_url) {
                        Some(address) => (format!("<a href=\"{}\">", escaped(&address)), "</a>"),
                        None => (String::new(), ""),
                    };
                    events[at] = Event::InlineHtml(open.into());
                    events[end] = Event::InlineHtml(close.into());
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    let end = at + events[at..].iter().position(|event| *event == Event::End(TagEnd::Image)).unwrap_or(0);
                    let html = self.picture_html(file, &dest_url, &text_of(&events[at + 1..], TagEnd::Image));
                    events[at..=end].fill(Event::InlineHtml("".into()));
                    events[at] = Event::InlineHtml(html.into());
                }
                Event::Start(Tag::TableRow) => {
                    // A row about a name in code has it as its anchor, such as the code of a problem.
                    if let Some(Event::Code(name)) = events.get(at + 2)
                        && events.get(at + 3) == Some(&Event::End(TagEnd::TableCell))
                    {
                        events[at + 2] = named(&mut ids, name);
                    }
                }
                _ => {}
            }
        }
        let mut body = String::with_capacity(text.len() * 3 / 2);
        html::push_html(&mut body, events.into_iter());
        // What scrolls sideways can be reached by keys.
        let body = body.replace("<pre>", "<pre tabindex=\"0\">").replace("<table>", "<table tabindex=\"0\">");
        (body, escaped(&title.unwrap_or_default()))
    }

    /// A picture that a page shows, with its size, so that nothing moves when it comes; or what it shows in words.
    fn picture_html(self, from: &str, link: &str, words: &str) -> String {
        let words = escaped(words);
        let Some((file, bytes)) = file_of(from, link).and_then(|file| Some((file.clone(), self.picture(&file)?))) else {
            return format!("<em class=\"picture\">Picture: {words}</em>");
        };
        let size =
            size_of_png(bytes).map_or_else(String::new, |[width, height]| format!(" width=\"{width}\" height=\"{height}\""));
        let dark =
            file.rsplit_once('.').map(|(name, end)| format!("{name}{DARK}.{end}")).filter(|file| self.picture(file).is_some());
        let source = dark.map_or_else(String::new, |file| {
            format!("<source srcset=\"/docs/{}\" media=\"(prefers-color-scheme: dark)\">", escaped(&file))
        });
        format!("<picture>{source}<img src=\"/docs/{}\" alt=\"{words}\"{size} loading=\"lazy\"></picture>", escaped(&file))
    }

    /// `/llms.txt`: its links lead to the Markdown.
    fn llms(self) -> String {
        let mut text = String::new();
        for line in self.text("llms.txt").unwrap_or(ABSENT).lines() {
            let linked = line.split_once("](").filter(|(_, link)| !link.contains("://"));
            let written = match linked {
                Some((before, link)) => writeln!(text, "{before}](/docs/{link}"),
                None => writeln!(text, "{line}"),
            };
            written.expect("a text takes what is written");
        }
        text
    }
}

/// The path of the file that a link in `from` names. `None`: it is outside of the documentation.
fn file_of(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    if !path.is_empty() {
        parts.pop();
        for part in path.split('/') {
            match part {
                ".." => _ = parts.pop()?,
                "." => {}
                part => parts.push(part),
            }
        }
    }
    Some(parts.join("/"))
}

/// The width and the height of a PNG, which its first chunk has.
fn size_of_png(bytes: &[u8]) -> Option<[u32; 2]> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.starts_with(b"\x89PNG") { Some([number(16)?, number(20)?]) } else { None }
}

/// The words of an element.
fn text_of(events: &[Event], end: TagEnd) -> String {
    let within = events.iter().take_while(|event| **event != Event::End(end));
    within.fold(String::new(), |words, event| match event {
        Event::Text(text) | Event::Code(text) => words + text,
        _ => words,
    })
}

/// The anchor of a heading, as mdBook makes it.
fn slug(words: &str) -> String {
    let kept = words.trim().chars().filter_map(|c| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    });
    kept.collect()
}

fn unique(ids: &mut HashMap<String, usize>, id: String) -> String {
    let count = ids.entry(id.clone()).or_default();
    *count += 1;
    if *count == 1 { id } else { format!("{id}-{}", *count - 1) }
}

/// A name in code, with itself as its anchor.
fn named<'e>(ids: &mut HashMap<String, usize>, name: &str) -> Event<'e> {
    let id = unique(ids, name.to_owned());
    Event::InlineHtml(CowStr::from(format!("<code id=\"{}\">{}</code>", escaped(&id), escaped(name))))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `GET /docs`, `GET /docs/`, `GET /docs/{*page}`: a page, with `.md` its Markdown, or a picture.
pub async fn page(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let docs = app.documentation;
    let name = match uri.path().trim_start_matches("/docs").trim_matches('/') {
        "" => "index",
        name => name,
    };
    if let Some(text) = docs.text(name) {
        return Ok(answer("text/markdown; charset=utf-8", Bytes::from_static(text.as_bytes()), &headers));
    }
    let format = FORMATS.into_iter().find(|(end, _)| name.ends_with(end));
    if let (Some(bytes), Some((_, format))) = (docs.picture(name), format) {
        return Ok(answer(format, Bytes::from_static(bytes), &headers));
    }
    let file = format!("{name}.md");
    let text = docs.text(&file).filter(|_| file != SUMMARY).or_else(|| (name == "index").then_some(ABSENT));
    let Some(text) = text else {
        let detail = format!("The documentation has no page {name:?}. /docs/ lists its pages, and /llms.txt their Markdown.");
        return Err(Problem::not_found("no_such_page", detail));
    };
    Ok(answer("text/html; charset=utf-8", docs.page(&file, text).into(), &headers))
}

/// `GET /llms.txt`
pub async fn llms(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    answer("text/plain; charset=utf-8", app.documentation.llms().into(), &headers)
}

fn answer(kind: &'static str, body: Bytes, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:016x}\"", xxhash_rust::xxh3::xxh3_64(&body));
    let fields = [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-cache"), (header::ETAG, &tag)];
    let mut response = match is_known(headers, &tag) {
        true => (StatusCode::NOT_MODIFIED, fields).into_response(),
        false => ([(header::CONTENT_TYPE, kind)], fields, body).into_response(),
    };
    let document = DOCUMENT_HEADERS.map(|(name, value)| (name, http::HeaderValue::from_static(value)));
    response.headers_mut().extend(document);
    response
}
