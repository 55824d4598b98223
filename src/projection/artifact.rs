//! `artifact` and `evidence`: the current version and where to read it. Never a body: clients load bodies on demand.

use super::seen::Seen;
use super::{Scene, carry, lifecycle};
use crate::model::{ArtifactId, EventType, EvidenceId, Surface};
use serde_json::{Map, Value, json};

/// The most versions in the list; the newest stay.
const VERSIONS_MAX: usize = 50;

#[rustfmt::skip]
const MEMBERS: &[&str] = &[
    "title", "name", "kind", "artifactKind", "artifactType", "mimeType", "mediaType", "language", "path", "preview", "previewRef",
    "diffRef", "diffStat", "exportRef", "exportFormat", "bodyRef", "contentRef", "ref", "href", "url", "uri", "version",
    "versionId", "versionRef", "size", "bytes", "sha256", "summary", "reason", "error", "message", "readOnly", "retryable",
    "progress", "artifactRefs", "evidenceRefs", "remoteTaskId", "runtimeEntity",
];

/// Members that identify a version and its location.
#[rustfmt::skip]
const OF_A_VERSION: &[&str] = &[
    "version", "versionId", "versionRef", "title", "summary", "preview", "previewRef", "diffRef", "bodyRef", "contentRef", "ref",
    "href", "size", "bytes", "sha256", "createdAt",
];

pub(super) fn artifact(seen: &Seen, scene: &mut Scene) {
    use EventType as E;
    let by_class = match seen.class {
        E::ArtifactCreated => "created",
        E::ArtifactUpdated => "updated",
        E::ArtifactPreviewReady => "preview_ready",
        E::ArtifactVersionCreated => "version_created",
        E::ArtifactDiffReady => "diff_ready",
        E::ArtifactExportStarted => "exporting",
        E::ArtifactExportCompleted => "exported",
        E::ArtifactFailed => "failed",
        E::ArtifactDeleted => "deleted",
        E::ArtifactChanged => "changed",
        _ => return,
    };
    let Some(id) = seen.ids.artifact.as_ref().map(ArtifactId::as_str) else { return };
    let mut edit = scene.stage.open("artifact", id, Surface::ArtifactWorkspace, seen.ids.agent.as_ref());
    lifecycle::lift(&mut edit);
        // A failure or a deletion counts, even if the owner states another status.
    let is_plain = !matches!(seen.class, E::ArtifactFailed | E::ArtifactDeleted);
    edit.say("status", seen.text("status").filter(|_| is_plain).unwrap_or(by_class));
    if is_plain {
        edit.remove("error");
    }
    carry::members_in_brief(seen, &mut edit, MEMBERS);
    carry::ids(seen, &mut edit, &["taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(seen, &mut edit);
    match seen.get("versions").and_then(Value::as_array) {
        Some(versions) => {
            let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
            edit.set("versions", carry::newest(&versions, VERSIONS_MAX));
        }
        None if seen.class == E::ArtifactVersionCreated => edit.push_bounded("versions", version(seen), VERSIONS_MAX),
        None => {}
    }
}

fn version(seen: &Seen) -> Value {
    let mut version = Map::from_iter([("sequence".to_owned(), json!(seen.sequence))]);
    for member in OF_A_VERSION {
        version.extend(seen.get(member).map(|value| ((*member).to_owned(), carry::brief(value))));
    }
    Value::Object(version)
}

pub(super) fn evidence(seen: &Seen, scene: &mut Scene) {
    if seen.class != EventType::EvidenceChanged {
        return;
    }
    let Some(id) = seen.ids.evidence.as_ref().map(EvidenceId::as_str) else { return };
    let mut edit = scene.stage.open("evidence", id, Surface::TimelineEvidence, seen.ids.agent.as_ref());
    #[rustfmt::skip]
    carry::members_in_brief(seen, &mut edit, &[
        "kind", "evidenceType", "status", "verdict", "title", "name", "summary", "preview", "previewRef", "source", "target",
        "reviewer", "ref", "href", "url", "uri", "range", "traceId", "replayId", "version", "confidence", "reason", "error",
        "message", "requestedFixes", "artifactRefs", "evidenceRefs", "size", "bytes", "sha256",
    ]);
    if let Some(versions) = seen.get("versions").and_then(Value::as_array) {
        let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
        edit.set("versions", carry::newest(&versions, VERSIONS_MAX));
    }
    carry::ids(seen, &mut edit, &["artifactId", "taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(seen, &mut edit);
    if edit.get("status").is_none() {
        let status = edit.text("verdict").unwrap_or("unknown").to_owned();
        edit.set("status", status);
    }
}
