//! `artifact` and `evidence`: the current version and where to read it.
//!
//! Never a body: clients load bodies on demand.

use super::envelope_view::EnvelopeView;
use super::{FoldState, carry, lifecycle};
use crate::model::{ArtifactId, EventType, EvidenceId, ReceivedAt, Surface};
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
const VERSION_MEMBERS: &[&str] = &[
    "version", "versionId", "versionRef", "title", "summary", "preview", "previewRef", "diffRef", "bodyRef", "contentRef", "ref",
    "href", "size", "bytes", "sha256", "createdAt",
];

pub(super) fn artifact(envelope: &EnvelopeView, fold: &mut FoldState) {
    use EventType as E;
    let by_class = match envelope.event_type {
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
    let Some(id) = envelope.ids.artifact.as_ref().map(ArtifactId::as_str) else { return };
    let received_at = fold.activities.received_at();
    let mut edit = fold.activities.open("artifact", id, Surface::ArtifactWorkspace, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    // A failure or a deletion counts, even if the owner states another status.
    let is_plain = !matches!(envelope.event_type, E::ArtifactFailed | E::ArtifactDeleted);
    edit.set_str("status", envelope.text("status").filter(|_| is_plain).unwrap_or(by_class));
    if is_plain {
        edit.remove("error");
    }
    carry::members_in_brief(envelope, &mut edit, MEMBERS);
    carry::ids(envelope, &mut edit, &["taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(envelope, &mut edit);
    match envelope.get("versions").and_then(Value::as_array) {
        Some(versions) => {
            let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
            edit.set("versions", carry::newest(&versions, VERSIONS_MAX));
        }
        None if envelope.event_type == E::ArtifactVersionCreated => {
            edit.push_bounded("versions", version(envelope, received_at), VERSIONS_MAX);
        }
        None => {}
    }
}

fn version(envelope: &EnvelopeView, received_at: ReceivedAt) -> Value {
    let mut version =
        Map::from_iter([("sequence".to_owned(), json!(envelope.sequence)), ("at".to_owned(), json!(received_at.to_string()))]);
    version.extend(envelope.ids.agent.as_ref().map(|agent| ("agentId".to_owned(), json!(agent))));
    for member in VERSION_MEMBERS {
        version.extend(envelope.get(member).map(|value| ((*member).to_owned(), carry::brief(value))));
    }
    Value::Object(version)
}

pub(super) fn evidence(envelope: &EnvelopeView, fold: &mut FoldState) {
    if envelope.event_type != EventType::EvidenceChanged {
        return;
    }
    let Some(id) = envelope.ids.evidence.as_ref().map(EvidenceId::as_str) else { return };
    let mut edit = fold.activities.open("evidence", id, Surface::TimelineEvidence, envelope.ids.agent.as_ref());
    #[rustfmt::skip]
    carry::members_in_brief(envelope, &mut edit, &[
        "kind", "evidenceType", "status", "verdict", "title", "name", "summary", "preview", "previewRef", "source", "target",
        "reviewer", "ref", "href", "url", "uri", "range", "traceId", "replayId", "version", "confidence", "reason", "error",
        "message", "requestedFixes", "artifactRefs", "evidenceRefs", "size", "bytes", "sha256",
    ]);
    if let Some(versions) = envelope.get("versions").and_then(Value::as_array) {
        let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
        edit.set("versions", carry::newest(&versions, VERSIONS_MAX));
    }
    carry::ids(envelope, &mut edit, &["artifactId", "taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(envelope, &mut edit);
    if edit.get("status").is_none() {
        let status = edit.text("verdict").unwrap_or("unknown").to_owned();
        edit.set("status", status);
    }
}
