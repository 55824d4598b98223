//! Moves large values out of an envelope, and leaves a preview and a reference in their place.
//!
//! Every reader reads an envelope, the server keeps recent ones in memory, and every restart folds them again; a body
//! is read only on request. The largest values move first, and only as many as needed, so that a projection can still
//! fold the rest.
//!
//! The words of a conversation and the question of a decision do not move: a preview is no message, and no person can
//! approve what they cannot see. Only a text longer than [`TEXT_BYTES_MAX`] is cut, as a streamed one is, and its
//! whole moves.

use super::secrets::REDACTED;
use super::{OffloadedBody, Policy};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use proscenium_model::{BlobId, CallFact, Draft, EventType, MemberRef, Payload, TEXT_BYTES_MAX};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// The media types of bodies.
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The longest preview, in bytes of its text.
const PREVIEW_BYTES_MAX: usize = 1024;
/// The limit of a payload's JSON, as a multiple of `inline_bytes_max`.
///
/// It fits a window of messages whose texts each fit.
pub(super) const PAYLOAD_FACTOR: usize = 8;
/// The most bodies of one envelope.
///
/// If more would be needed, the member that contains them moves whole, because every reader of the envelope pays for
/// its references.
pub(super) const BODIES_MAX: usize = 32;
/// Members that move whole: clients open outputs, and do not fold them.
const OPAQUE_MEMBERS: &[&str] = &["output", "structured", "content", "result"];
/// The longest JSON pointer of a reference, in bytes.
///
/// A value with a longer pointer moves together with the value around it: each reference repeats its pointer, and keys
/// have no limit of their own.
pub(super) const POINTER_BYTES_MAX: usize = 1024;
/// The member of an artifact's fact with its body.
///
/// The bytes of a file, as a `data:` URL, move out at any size: no reader of the envelope needs them.
const BODY_MEMBER: &str = "body";
/// The member for the body of members that are too many rather than too large.
const SPILL_MEMBER: &str = "…";
/// The most bytes of JSON text that stay because of their members' names.
///
/// It fits the largest fact of the default configuration. Members beyond it move like all others.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The members of a payload that stay in the envelope.
#[derive(Debug, Clone, Copy)]
enum KeptMembers {
    All,
    Named(&'static [&'static str]),
}

impl KeptMembers {
    const NONE: Self = Self::Named(&[]);

    /// What a reader or an agent takes for the words of a conversation, for a decision, or for the content of a source's
    /// own activity, which later patches build on.
    ///
    /// `is_custom` states that the fact names the type of such an activity.
    const fn of(event_type: &EventType, is_custom: bool) -> Self {
        use EventType as E;
        match event_type {
            E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::ToolOutputDelta => {
                Self::Named(&["text"])
            }
            E::PlanFinal => Self::Named(&["text", "plan", "steps", "entries", "summary"]),
            E::ToolArgs => Self::Named(&["inputText"]),
            E::MessagesSnapshot => Self::Named(&["messages"]),
            E::ActionRequired | E::ActionResolved | E::WorkerNotification => Self::All,
            // Users may read the bodies of an envelope that they see, but not these words.
            E::FeedbackGiven => Self::Named(&["text"]),
            E::ToolProgress | E::StateSnapshot | E::StateDelta if is_custom => Self::All,
            _ => Self::NONE,
        }
    }

    fn contains(self, member: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&member),
        }
    }
}

/// Whether a member of a fact's payload stays in the envelope up to [`TEXT_BYTES_MAX`].
///
/// `is_custom` states that the fact names the type of a source's own activity.
#[must_use]
pub fn stays_inline(event_type: &EventType, is_custom: bool, member: &str) -> bool {
    KeptMembers::of(event_type, is_custom).contains(member)
}

/// Moves values out of `draft` that exceed the policy's limits.
pub(super) fn offload(policy: &Policy, new_id: &mut dyn FnMut() -> BlobId, draft: &mut Draft, bodies: &mut Vec<OffloadedBody>) {
    let inline_bytes_max = policy.inline_bytes_max;
    let mut room = inline_bytes_max;
    let fits = payload_fits(&draft.payload, &mut room)
        && map_fits(&draft.extra, &mut room)
        && draft.refs.iter().chain(&draft.raw_event_ref).all(|value| value_fits(value, &mut room));
    let has_bytes = is_artifact(&draft.event_type) && draft.text(BODY_MEMBER).is_some_and(|body| body.starts_with("data:"));
    if fits && !has_bytes {
        return;
    }
    let mut offloader = Offloader { inline_bytes_max, new_id, bodies, links: Vec::new() };
    let kept = KeptMembers::of(&draft.event_type, draft.member("activityType").is_some());
    // Few facts come here, and any of their members may move: by its name, whatever its type.
    let mut payload = std::mem::replace(&mut draft.payload, Payload::Open(Map::new())).into_map();
    if has_bytes && let Some(Value::String(bytes)) = payload.shift_remove(BODY_MEMBER) {
        let href = offloader.store_body("/payload/body", TEXT, bytes);
        payload.insert("bodyRef".into(), href.into());
    }
    let kept = offloader.take_kept(kept, &mut payload);
    offloader.shrink("/payload", &mut payload, payload_bytes_max(&draft.event_type, inline_bytes_max));
    for (at, name, value) in kept {
        payload.shift_insert(at.min(payload.len()), name, value);
    }
    draft.payload = Payload::read(&draft.event_type, payload);
    // The members at the envelope's top level share one limit.
    let mut top = std::mem::take(&mut draft.extra);
    for (name, value) in [("refs", draft.refs.take()), ("rawEventRef", draft.raw_event_ref.take())] {
        if let Some(value) = value {
            top.insert(name.into(), value);
        }
    }
    offloader.shrink("", &mut top, PAYLOAD_FACTOR * inline_bytes_max);
    draft.refs = top.shift_remove("refs");
    draft.raw_event_ref = top.shift_remove("rawEventRef");
    draft.extra = top;
    for link in offloader.links {
        if draft.event_type == EventType::ToolResult
            && link["member"] == "/payload/output"
            && let Some(call) = draft.payload.fact_mut::<CallFact>()
        {
            call.output_ref = Some(link["href"].clone().into());
        }
        draft.add_ref("output", Some(link));
    }
}

/// The limit of a payload's JSON. The structure of a state stays longer, because later patches build on it.
fn payload_bytes_max(event_type: &EventType, inline_bytes_max: usize) -> usize {
    let bytes_max = PAYLOAD_FACTOR * inline_bytes_max;
    match event_type {
        EventType::StateSnapshot | EventType::StateDelta => bytes_max.max(TEXT_BYTES_MAX),
        _ => bytes_max,
    }
}

const fn is_artifact(event_type: &EventType) -> bool {
    use EventType::{ArtifactChanged, ArtifactCreated, ArtifactUpdated, ArtifactVersionCreated};
    matches!(event_type, ArtifactCreated | ArtifactUpdated | ArtifactChanged | ArtifactVersionCreated)
}

/// Subtracts an upper bound of the value's JSON length from `room`. Returns false if nothing is left.
///
/// Most drafts are far below every limit, and this check writes no JSON.
fn value_fits(value: &Value, room: &mut usize) -> bool {
    match value {
        Value::String(text) => text_fits(text, room),
        Value::Array(items) => take_bytes(2, room) && items.iter().all(|item| take_bytes(1, room) && value_fits(item, room)),
        Value::Object(map) => map_fits(map, room),
        Value::Null | Value::Bool(_) | Value::Number(_) => take_bytes(32, room),
    }
}

fn map_fits(map: &Map<String, Value>, room: &mut usize) -> bool {
    take_bytes(2, room) && map.iter().all(|(name, value)| take_bytes(2, room) && text_fits(name, room) && value_fits(value, room))
}

fn payload_fits(payload: &Payload, room: &mut usize) -> bool {
    let mut fits = take_bytes(2, room);
    payload.each(|name, member| {
        fits = fits
            && take_bytes(2, room)
            && text_fits(name, room)
            && match member {
                MemberRef::Text(text) => text_fits(text, room),
                MemberRef::Flag(_) | MemberRef::Number(_) => take_bytes(32, room),
                MemberRef::Value(value) => value_fits(value, room),
            };
    });
    fits
}

/// Subtracts the length of a text; a control character takes six bytes in JSON.
const fn text_fits(text: &str, room: &mut usize) -> bool {
    take_bytes(2 + 6 * text.len(), room)
}

const fn take_bytes(bytes: usize, room: &mut usize) -> bool {
    match room.checked_sub(bytes) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    }
}

/// The length of the value's JSON text, in bytes.
pub(super) fn json_bytes(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("JSON has string keys, and counting cannot fail");
    count.0
}

struct Offloader<'a> {
    inline_bytes_max: usize,
    new_id: &'a mut dyn FnMut() -> BlobId,
    bodies: &'a mut Vec<OffloadedBody>,
    links: Vec<Value>,
}

/// A value beyond the limit, and the values inside it that exceed the limit too.
struct OversizedValue {
    /// The number of texts among them, including itself.
    texts: usize,
    /// By their index among the items or members.
    inside: Vec<(usize, OversizedValue)>,
}

/// Measures a value's JSON in bytes, and finds the values in it longer than `bytes_max`.
fn measure(value: &Value, bytes_max: usize) -> (usize, Option<OversizedValue>) {
    let mut inside = Vec::new();
    let mut look = |at: usize, value: &Value| {
        let (bytes, large) = measure(value, bytes_max);
        inside.extend(large.map(|large| (at, large)));
        bytes
    };
    let bytes = match value {
        Value::Array(items) => {
            items.iter().enumerate().fold(2 + items.len().saturating_sub(1), |sum, (i, item)| sum + look(i, item))
        }
        Value::Object(map) => map
            .iter()
            .enumerate()
            .fold(2 + map.len().saturating_sub(1), |sum, (i, (name, value))| sum + json_bytes(name) + 1 + look(i, value)),
        leaf => json_bytes(leaf),
    };
    let texts = inside.iter().map(|(_, large)| large.texts).sum::<usize>() + usize::from(value.is_string());
    (bytes, (bytes > bytes_max).then_some(OversizedValue { texts, inside }))
}

impl Offloader<'_> {
    /// Takes the members that stay out of a payload, with their places. Texts in them that are too long are cut.
    fn take_kept(&mut self, kept: KeptMembers, payload: &mut Map<String, Value>) -> Vec<(usize, String, Value)> {
        let mut room = KEPT_BYTES_MAX;
        let names = payload.keys().cloned().enumerate().filter(|(_, name)| kept.contains(name));
        let names: Vec<(usize, String)> = names.collect();
        let mut taken = Vec::with_capacity(names.len());
        for (at, name) in names {
            let Some(pointer) = pointer("/payload", &name) else { continue };
            if take_bytes(json_bytes(&payload[&name]), &mut room) {
                let mut value = payload.shift_remove(&name).expect("the name was listed above");
                self.cut_texts(&pointer, &mut value);
                taken.push((at, name, value));
            }
        }
        taken
    }

    /// Cuts the texts at or below `value` that are longer than a message may be. Their whole moves out.
    fn cut_texts(&mut self, at: &str, value: &mut Value) {
        match value {
            Value::String(text) if text.len() > TEXT_BYTES_MAX.max(self.inline_bytes_max) && !self.is_full() => {
                let beginning = beginning(text, TEXT_BYTES_MAX).to_owned();
                self.store_body(at, TEXT, std::mem::replace(text, beginning));
            }
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    if let Some(at) = pointer(at, &i.to_string()) {
                        self.cut_texts(&at, item);
                    }
                }
            }
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    if let Some(at) = pointer(at, name) {
                        self.cut_texts(&at, value);
                    }
                }
            }
            _ => {}
        }
    }

    /// Moves values out of `map` at the pointer `at`: oversized ones, then as many as needed to fit `bytes_max`.
    fn shrink(&mut self, at: &str, map: &mut Map<String, Value>, bytes_max: usize) {
        // A member whose name is too long for a pointer moves together with its name.
        let mut spilled = HashSet::new();
        for (name, value) in map.iter_mut() {
            let Some(large) = measure(value, self.inline_bytes_max).1 else { continue };
            match pointer(at, name) {
                Some(at) => self.move_oversized(&at, name, value, &large),
                None => drop(spilled.insert(name.clone())),
            }
        }
        let mut bytes = json_bytes(map);
        if bytes > bytes_max {
            self.move_largest(at, map, &mut bytes, bytes_max);
        }
        if bytes > bytes_max || !spilled.is_empty() {
            self.spill(at, map, bytes.saturating_sub(bytes_max), spilled);
        }
    }

    /// Moves texts, then whole members out of `map`, the largest first, down to `bytes_max`.
    fn move_largest(&mut self, at: &str, map: &mut Map<String, Value>, bytes: &mut usize, bytes_max: usize) {
        // The largest texts go first: readers open them on request anyway, and the structure around them stays
        // foldable.
        let mut texts = Vec::new();
        for (i, (name, value)) in map.iter().enumerate() {
            if let Some(room) = POINTER_BYTES_MAX.checked_sub(at.len() + token_bytes(name)) {
                list_texts(&mut vec![i], room, value, 2 * self.preview_bytes_max(), &mut texts);
            }
        }
        texts.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        for (path, size) in texts {
            if *bytes <= bytes_max || self.is_full() {
                break;
            }
            if let Some((at, text)) = member_at(at, map, &path) {
                self.replace(&at, text);
                *bytes = *bytes - size + json_bytes(text);
            }
        }
        // Whole members follow.
        let members = map.iter().enumerate().filter(|(_, (name, _))| pointer(at, name).is_some());
        let mut members: Vec<_> = members.map(|(i, (_, value))| (i, json_bytes(value))).collect();
        members.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        for (i, size) in members {
            if *bytes <= bytes_max || self.is_full() || size <= 2 * self.preview_bytes_max() {
                break;
            }
            if let Some((at, value)) = member_at(at, map, &[i]) {
                self.replace(&at, value);
                *bytes = *bytes - size + json_bytes(value);
            }
        }
    }

    /// Moves the values beyond the limit at or below `value`.
    ///
    /// The value moves whole if the texts inside would need too many bodies or a pointer that is too long.
    fn move_oversized(&mut self, at: &str, name: &str, value: &mut Value, large: &OversizedValue) {
        let goes_whole = value.is_string() || OPAQUE_MEMBERS.contains(&name) || self.bodies.len() + large.texts + 2 > BODIES_MAX;
        let inside = if goes_whole { None } else { inside(at, value, large) };
        match inside {
            Some(inside) => inside.into_iter().for_each(|(at, name, value, large)| self.move_oversized(&at, &name, value, large)),
            None if !self.is_full() => self.replace(at, value),
            None => {}
        }
    }

    /// Whether no body is left. Two are reserved for the final spill of the payload and of the top level.
    fn is_full(&self) -> bool {
        self.bodies.len() + 2 >= BODIES_MAX
    }

    fn preview_bytes_max(&self) -> usize {
        PREVIEW_BYTES_MAX.min(self.inline_bytes_max)
    }

    /// Moves `value` out and leaves a preview.
    fn replace(&mut self, at: &str, value: &mut Value) {
        let (media_type, text) = match value.take() {
            Value::String(text) => (TEXT, text),
            value => (JSON, value.to_string()),
        };
        *value = Value::String(self.preview(&text));
        self.store_body(at, media_type, text);
    }

    /// Stores a body and returns its address.
    fn store_body(&mut self, at: &str, media_type: &'static str, text: String) -> String {
        let sha256 = HEXLOWER.encode(&Sha256::digest(text.as_bytes()));
        let id = (self.new_id)();
        let href = format!("/v1/blobs/{id}");
        let mut link = json!({ "href": href, "bytes": text.len(), "sha256": sha256, "member": at });
        if media_type == JSON {
            link["mediaType"] = JSON.into();
        }
        self.links.push(link);
        self.bodies.push(OffloadedBody { id, media_type, bytes: Bytes::from(text) });
        href
    }

    fn preview(&self, text: &str) -> String {
        format!("{}…", beginning(text, self.preview_bytes_max()))
    }

    /// Moves members with their names into one body.
    ///
    /// These are the ones in `spilled`, and the largest ones until `bytes` are free.
    fn spill(&mut self, at: &str, map: &mut Map<String, Value>, bytes: usize, mut spilled: HashSet<String>) {
        let mut names: Vec<(usize, String)> =
            map.iter().map(|(name, value)| (json_bytes(name) + json_bytes(value), name.clone())).collect();
        names.sort_by(|one, other| other.cmp(one));
        // The moved members leave a preview of up to six bytes per character, and its name.
        let enough = if bytes == 0 { 0 } else { bytes + 6 * self.preview_bytes_max() + 64 };
        let mut freed = 0;
        for (size, name) in names {
            if freed >= enough {
                break;
            }
            freed += size;
            spilled.insert(name);
        }
        let (rest, kept) = std::mem::take(map).into_iter().partition(|(name, _)| spilled.contains(name));
        *map = kept;
        let mut rest = Value::Object(rest);
        self.replace(at, &mut rest);
        map.insert(SPILL_MEMBER.into(), rest);
    }
}

/// The beginning of a text, at most `bytes_max` long.
fn beginning(text: &str, bytes_max: usize) -> &str {
    let end = text.floor_char_boundary(bytes_max);
    // A mark that is cut in two would look like the producer's text.
    let marks = (1..REDACTED.len()).map(|n| end.saturating_sub(n));
    let cut = marks.into_iter().find(|at| text.as_bytes()[*at..].starts_with(REDACTED.as_bytes()));
    &text[..cut.unwrap_or(end)]
}

/// The pointer of a member below `at` (RFC 6901); `None` if it is too long to repeat.
fn pointer(at: &str, name: &str) -> Option<String> {
    let fits = at.len() + token_bytes(name) <= POINTER_BYTES_MAX;
    fits.then(|| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")))
}

/// The length that a member's name adds to a pointer, in bytes.
fn token_bytes(name: &str) -> usize {
    1 + name.len() + memchr::memchr2_iter(b'~', b'/', name.as_bytes()).count()
}

/// The oversized values directly inside `value`, with pointer and name; `None` if one is too long.
fn inside<'v, 'l>(
    at: &str,
    value: &'v mut Value,
    large: &'l OversizedValue,
) -> Option<Vec<(String, String, &'v mut Value, &'l OversizedValue)>> {
    let mut wanted = large.inside.iter().peekable();
    let mut found = Vec::with_capacity(large.inside.len());
    let mut find = |i: usize, name: &str, value: &'v mut Value, is_member: bool| {
        let Some((_, large)) = wanted.next_if(|(at, _)| *at == i) else { return Some(()) };
        let at = if is_member { pointer(at, name)? } else { pointer(at, &i.to_string())? };
        found.push((at, name.to_owned(), value, large));
        Some(())
    };
    match value {
        Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(i, item)| find(i, "", item, false))?,
        Value::Object(map) => map.iter_mut().enumerate().try_for_each(|(i, (name, value))| find(i, name, value, true))?,
        _ => {}
    }
    Some(found)
}

/// The value at a path of indices, and its pointer; `None` if that is too long.
fn member_at<'m>(at: &str, map: &'m mut Map<String, Value>, path: &[usize]) -> Option<(String, &'m mut Value)> {
    let (first, path) = path.split_first()?;
    let (name, mut value) = map.iter_mut().nth(*first)?;
    let mut at = pointer(at, name)?;
    for &i in path {
        (at, value) = match value {
            Value::Array(items) => (pointer(&at, &i.to_string())?, items.get_mut(i)?),
            Value::Object(map) => {
                let (name, value) = map.iter_mut().nth(i)?;
                (pointer(&at, name)?, value)
            }
            _ => return None,
        };
    }
    Some((at, value))
}

/// Lists the texts at or below `value` whose JSON is longer than `bytes_min` and whose pointer fits.
///
/// `path` is the path of `value`, and `room` the bytes that a pointer may add to its pointer.
fn list_texts(path: &mut Vec<usize>, room: usize, value: &Value, bytes_min: usize, texts: &mut Vec<(Vec<usize>, usize)>) {
    let mut look = |i: usize, value: &Value, token_bytes: usize| {
        if let Some(room) = room.checked_sub(token_bytes) {
            path.push(i);
            list_texts(path, room, value, bytes_min, texts);
            path.pop();
        }
    };
    match value {
        Value::String(text) if 2 + 6 * text.len() > bytes_min => {
            let bytes = json_bytes(text);
            if bytes > bytes_min {
                texts.push((path.clone(), bytes));
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| look(i, item, 2 + i.checked_ilog10().unwrap_or(0) as usize));
        }
        Value::Object(map) => map.iter().enumerate().for_each(|(i, (name, value))| look(i, value, token_bytes(name))),
        _ => {}
    }
}
