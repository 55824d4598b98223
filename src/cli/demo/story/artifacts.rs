//! The artifacts of the story with their bodies: the page in three versions, and a file of each other type.

use super::PRODUCT;
use super::facts::merge;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The id of the page's artifact.
pub(super) const PAGE: &str = "release-notes";

/// The versions of the page. The first line of the last two is the viewer's headline.
const PAGE_BODIES: [&str; 3] =
    [include_str!("files/page-1.md"), include_str!("files/page-2.md"), include_str!("files/page-3.md")];

/// The number of characters of a body that its preview has.
const PREVIEW_CHARS: usize = 160;

/// A file that an agent makes beside the page.
pub(super) struct File {
    pub id: &'static str,
    pub agent: &'static str,
    pub title: &'static str,
    pub kind: &'static str,
    pub media_type: &'static str,
    pub summary: &'static str,
    pub body: &'static str,
}

#[rustfmt::skip]
pub(super) const MIGRATION: File = File {
    id: "migrate.py", agent: "writer", title: "migrate.py", kind: "code", media_type: "text/x-python",
    summary: "Reports and rewrites the calls of API v1.", body: include_str!("files/migrate.py"),
};

#[rustfmt::skip]
pub(super) const CHART: File = File {
    id: "start-time.png", agent: "researcher", title: "start-time.png", kind: "image", media_type: "image/png",
    summary: "Cold start of 4.1 and 4.2, medians of 50.", body: include_str!("files/start-time.png.base64"),
};

#[rustfmt::skip]
pub(super) const START_TIMES: File = File {
    id: "start-times.csv", agent: "researcher", title: "start-times.csv", kind: "table", media_type: "text/csv",
    summary: "The measurements behind the chart.", body: include_str!("files/start-times.csv"),
};

#[rustfmt::skip]
pub(super) const TEST_REPORT: File = File {
    id: "tests.json", agent: "researcher", title: "tests.json", kind: "report", media_type: "application/json",
    summary: "The test run of the release candidate.", body: include_str!("files/tests.json"),
};

#[rustfmt::skip]
pub(super) const LINK_REPORT: File = File {
    id: "links.html", agent: "link-watch", title: "links.html", kind: "report", media_type: "text/html",
    summary: "214 links, all of which answer.", body: include_str!("files/links.html"),
};

impl File {
    /// Returns the body as its facts contain it: text, or the address of an image with its bytes.
    pub(super) fn body(&self) -> String {
        match self.media_type {
            "image/png" => format!("data:image/png;base64,{}", self.body.replace('\n', "")),
            _ => self.body.to_owned(),
        }
    }

    /// Builds the facts of the file: its creation, and its only version.
    pub(super) fn facts(&self) -> [Value; 2] {
        let of = |event_type: &str, payload: Value| json!({ "type": event_type, "artifactId": self.id, "agentId": self.agent, "payload": payload });
        let body = self.body();
        let version = json!({
            "version": 1, "versionId": "1", "summary": self.summary, "bytes": body.len(), "ref": format!("artifacts/{}/1", self.id),
            "body": body,
        });
        [
            of(
                "artifact.created",
                json!({ "title": self.title, "kind": self.kind, "mimeType": self.media_type, "path": format!("site/artifacts/{}", self.title) }),
            ),
            of("artifact.version.created", version),
        ]
    }
}

fn about_page(event_type: &str, payload: Value) -> Value {
    json!({ "type": event_type, "artifactId": PAGE, "agentId": "writer", "taskId": "draft", "payload": payload })
}

/// Builds the facts about the new page, in its first version.
pub(super) fn created() -> Vec<Value> {
    vec![
        about_page(
            "artifact.created",
            json!({ "title": format!("{PRODUCT}: release notes"), "kind": "document", "mimeType": "text/markdown", "path": "site/releases/4.2.md" }),
        ),
        version(1, "An outline with the three changes.", ""),
        about_page(
            "artifact.preview.ready",
            json!({ "previewRef": "previews/release-notes/1", "preview": "Aurora 4.2: faster, in more languages, without API v1." }),
        ),
    ]
}

/// Returns the body of a version of the page.
fn page(number: usize, headline: &str) -> String {
    PAGE_BODIES[number - 1].replace("{headline}", headline)
}

fn version(number: usize, summary: &str, headline: &str) -> Value {
    let body = page(number, headline);
    let payload = json!({
        "version": number, "versionId": number.to_string(), "summary": summary,
        "preview": body.chars().take(PREVIEW_CHARS).collect::<String>(), "ref": format!("artifacts/release-notes/{number}"),
        "bytes": body.len(),
    });
    // A reader gets the body on demand; the activity has only the preview.
    about_page("artifact.version.created", merge(payload, json!({ "body": body })))
}

/// Builds the facts about another version and its diff.
pub(super) fn revised(number: usize, summary: &str, headline: &str, change: &str) -> Vec<Value> {
    let from = number - 1;
    let (added, removed) = count_changes(&page(from, headline), &page(number, headline));
    let payload = json!({
        "versionId": number.to_string(), "diffRef": format!("artifacts/release-notes/{from}..{number}"),
        "diffStat": { "added": added, "removed": removed }, "summary": change,
    });
    vec![version(number, summary, headline), about_page("artifact.diff.ready", payload)]
}

/// Counts the lines that only one of two texts has.
fn count_changes(before: &str, after: &str) -> (usize, usize) {
    let mut lines: HashMap<&str, i64> = HashMap::new();
    for line in after.lines() {
        *lines.entry(line).or_default() += 1;
    }
    for line in before.lines() {
        *lines.entry(line).or_default() -= 1;
    }
    let sum = |sign: i64| lines.values().map(|count| usize::try_from(count * sign).unwrap_or(0)).sum();
    (sum(1), sum(-1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_and_removed_lines_are_counted() {
        assert_eq!(count_changes("a\nb\nb\n", "a\nc\nb\nd\n"), (2, 1));
    }

    #[test]
    fn each_version_of_the_page_differs_from_the_one_before() {
        for number in 2..=PAGE_BODIES.len() {
            let (added, removed) = count_changes(&page(number - 1, "H"), &page(number, "H"));
            assert!(added > 0 && removed > 0, "version {number}");
        }
    }
}
