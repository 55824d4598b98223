//! `artifact` and `evidence`: the current version and where to read it.
//!
//! Never a body: clients load bodies on demand.

use super::envelope_view::EnvelopeView;
use super::members::{Any, List, Mark, STALE_ABOUT, Str, content, open_set};
use super::{FoldState, carry, lifecycle, list};
use proscenium_model::fact::{ArtifactFact, EvidenceFact};
use proscenium_model::{ArtifactId, EventType, EvidenceId, ReceivedAt, Surface};
use serde_json::{Map, Value, json};

content! {
    ARTIFACT = "artifact" of ArtifactFact, "A deliverable: its kind, its version, and where to read it. Never its body.";
    "status": Str, Always as STATUS with open_set(BY_EVENT), "The status as the owner states it, else the latest event.";
    "versions": List, Sometimes as VERSIONS,
        "The newest 50 versions, without their bodies. `sequence`, `at` and `agentId` name the event, its time and its agent.";
    "error": Any, Sometimes as ERROR, "The error, while the artifact is failed.";
    "refs": Any, Sometimes, "Further references.";
    "stale": Mark, Sometimes, STALE_ABOUT;
}

content! {
    EVIDENCE = "evidence" of EvidenceFact { VERDICT = "verdict" }, "A citation, trace, replay, review or audit. Never its body.";
    "status": Any, Always, "The status as the owner states it, else the verdict; unknown if neither exists.";
    "versions": List, Sometimes, "The newest 50 versions, without their bodies.";
    "refs": Any, Sometimes, "References to the evidence.";
}

/// The status of an artifact by its latest event.
#[rustfmt::skip]
const BY_EVENT: &[&str] = &[
    "created", "updated", "preview_ready", "version_created", "diff_ready", "exporting", "exported", "failed", "deleted",
    "changed",
];

/// The most versions in the list; the newest stay.
const VERSIONS_MAX: usize = 50;

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
    let fact = envelope.fact();
    // A version takes the time. The guard moves the bytes out of the envelope.
    let ArtifactFact { status, versions, created_at: _, body: _, extra: _ } = &*fact;
    let received_at = fold.activities.received_at();
    let mut edit = fold.activities.open("artifact", id, Surface::ArtifactWorkspace, envelope.ids.agent.as_ref());
    lifecycle::clear_stale(&mut edit);
    // A failure or a deletion counts, even if the owner states another status.
    let is_plain = !matches!(envelope.event_type, E::ArtifactFailed | E::ArtifactDeleted);
    edit.set(STATUS, status.as_deref().filter(|_| is_plain).unwrap_or(by_class));
    if is_plain {
        edit.remove(ERROR);
    }
    carry::copied_in_brief::<ArtifactFact>(envelope, &mut edit);
    carry::ids(envelope, &mut edit, &["taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(envelope, &mut edit);
    match list(versions) {
        Some(versions) => {
            let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
            edit.set(VERSIONS, carry::newest(&versions, VERSIONS_MAX));
        }
        None if envelope.event_type == E::ArtifactVersionCreated => {
            edit.push_bounded(VERSIONS, version(envelope, received_at), VERSIONS_MAX);
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
    let fact = envelope.fact();
    let EvidenceFact { versions, extra: _ } = &*fact;
    let mut edit = fold.activities.open("evidence", id, Surface::TimelineEvidence, envelope.ids.agent.as_ref());
    carry::copied_in_brief::<EvidenceFact>(envelope, &mut edit);
    if let Some(versions) = list(versions) {
        let versions: Vec<Value> = versions.iter().map(carry::brief).collect();
        edit.set(VERSIONS, carry::newest(&versions, VERSIONS_MAX));
    }
    carry::ids(envelope, &mut edit, &["artifactId", "taskId", "agentId", "toolCallId", "messageId"]);
    carry::refs(envelope, &mut edit);
    if !edit.has(STATUS) {
        let status = edit.read(VERDICT).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        edit.set(STATUS, status);
    }
}
