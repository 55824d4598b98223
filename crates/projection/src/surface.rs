//! `a2ui-surface`: an interface that an agent describes by A2UI messages, as its state.
//!
//! Each message changes the state: the components by their ids, and the data model. So a reader that joins late gets
//! the interface as it is, and not the messages that led to it. Dialects write the state as messages again
//! ([`messages`]).
//!
//! A surface belongs to the activity whose fact creates it; a later message about it reaches it there, also by a fact
//! with another id. If no fact of this log creates it, an earlier run of the thread did: the activity then has what
//! changed, and [`continued`] joins both.
//!
//! A message that cannot be read or does not fit changes nothing, and adds an entry to `diagnostics`; the messages beside
//! it count.

use super::activity_set::{Activity, Edit, escaped};
use super::change::ContentOperation;
use super::custom::{SourceActivity, with_source_activity};
use super::envelope_view::EnvelopeView;
use super::members::{Any, List, Mark, Object, Str, TypedContent, content, open_set};
use super::operations::path;
use super::{FoldState, diagnostics, patch};
use proscenium_model::Surface;
use proscenium_model::a2ui::{ACTIVITY_TYPE, OPERATIONS, SurfaceChange, SurfaceMessage, component_id, path_tokens};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The activity type.
pub const KIND: &str = ACTIVITY_TYPE;

content! {
    SURFACE = "a2ui-surface",
    "An interface that an agent describes by A2UI messages, as its state: its components and its data model, not the messages.";
    "surfaceId": Str, Sometimes as SURFACE_ID, "The surface, as its agent names it; absent before its first message.";
    "status": Str, Always as STATUS with open_set(&["building", "retrying", "failed", READY, DELETED]),
        "The status as the source states it, else ready; deleted after deleteSurface.";
    "created": Mark, Sometimes as CREATED,
        "A fact of this log creates the surface. If absent, an earlier run did, and the content has what changed since.";
    "version": Any, Sometimes as VERSION, "The A2UI version that the newest message states.";
    "catalogId": Any, Sometimes as CATALOG_ID, "The catalog of the components.";
    "theme": Any, Sometimes as THEME, "The theme, as the agent states it.";
    "sendDataModel": Any, Sometimes as SEND_DATA_MODEL, "Whether the agent wants the client's data model with each action.";
    "surface": Object, Sometimes as FURTHER, "Further members of createSurface, as the agent states them.";
    "components": Object, Sometimes as COMPONENTS, "The components, by id: at most 2,000.";
    "dataModel": Any, Sometimes as DATA_MODEL, "The data model.";
    "dataUpdates": List, Sometimes as DATA_UPDATES,
        "Of a surface that an earlier run created: the changes of its data model, { path, value? }, at most 256.";
    "messages": List, Sometimes as MESSAGES, "Messages of other A2UI versions, as they are: the newest 32.";
    "details": Object, Sometimes as DETAILS, "Further members that the source states beside the messages, such as errors of attempts.";
}

const READY: &str = "ready";
const DELETED: &str = "deleted";
const BUILDING: &str = "building";

/// The largest content of a surface, in bytes.
pub const SURFACE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The most components of a surface.
pub const COMPONENTS_MAX: usize = 2_000;
/// The most surfaces that one fact changes.
const SURFACES_PER_FACT_MAX: usize = 64;
/// The most changes of the data model of a surface that an earlier run created. A later one replaces those below it.
const DATA_UPDATES_MAX: usize = 256;
/// The most messages of other versions of a surface; the newest stay.
const OTHER_MESSAGES_MAX: usize = 32;
/// The version of the messages that the server writes, if the agent states none.
const DEFAULT_VERSION: &str = "v0.9";
/// The beginning of the ids of messages that carry surfaces in AG-UI.
pub const MESSAGE_PREFIX: &str = "a2ui-surface-";

// ── facts ──

pub(super) fn fold(envelope: &EnvelopeView, fold: &mut FoldState) {
    with_source_activity(envelope, |of| {
        if of.kind == KIND {
            fold_fact(envelope, &of, fold);
        }
    });
}

/// What a fact changes.
#[derive(Default)]
struct FactUpdate<'f> {
    messages: Vec<&'f Value>,
    /// The fact states the whole content.
    is_whole: bool,
    /// The content has a list of messages.
    has_messages: bool,
    status: Option<&'f str>,
    details: Vec<(&'f str, Option<&'f Value>)>,
    faults: Vec<String>,
}

impl<'f> FactUpdate<'f> {
    fn of_content(content: &'f Value) -> Self {
        let mut update = Self { is_whole: true, ..Self::default() };
        let Some(content) = content.as_object() else {
            update.faults.push("The content is not an object.".into());
            return update;
        };
        for (member, value) in content {
            update.read_member(member, Some(value));
        }
        update
    }

    /// Reads a JSON Patch on the source's content: it may append messages, and set the other members.
    fn of_patch(patch: &'f Value) -> Self {
        let mut update = Self::default();
        let operations = patch.as_array().map_or_else(|| std::slice::from_ref(patch), Vec::as_slice);
        for operation in operations {
            let text = |member: &str| operation.get(member).and_then(Value::as_str).unwrap_or_default();
            let (op, path) = (text("op"), text("path").strip_prefix('/').unwrap_or_default());
            let value = operation.get("value").filter(|_| op != "remove");
            let is_set = matches!((op, value), ("add" | "replace", Some(_)) | ("remove", None));
            match path.split_once('/') {
                None if is_set && !path.is_empty() && !path.contains('~') => update.read_member(path, value),
                Some((OPERATIONS, at)) if op == "add" && (at == "-" || at.parse::<usize>().is_ok()) && value.is_some() => {
                    update.has_messages = true;
                    update.messages.extend(value);
                }
                _ => update.faults.push(format!("The patch changes messages that were applied: {op} {path:?}.")),
            }
        }
        update
    }

    /// Reads a member of the source's content; `None` if it is removed.
    fn read_member(&mut self, member: &'f str, value: Option<&'f Value>) {
        match (member, value) {
            (OPERATIONS, Some(Value::Array(messages))) => {
                self.has_messages = true;
                self.messages.extend(messages);
            }
            (OPERATIONS, _) => {
                self.has_messages = true;
                self.faults.push("The messages are not a list.".into());
            }
            ("status", Some(Value::String(status))) => self.status = Some(status),
            ("status", None) => self.status = Some(READY),
            _ => self.details.push((member, value.filter(|value| !value.is_null()))),
        }
    }

    /// Sorts the messages by their surfaces, in the order in which these appear.
    fn surfaces(&mut self) -> Vec<(&'f str, Vec<SurfaceMessage<'f>>)> {
        let mut surfaces: Vec<(&str, Vec<SurfaceMessage<'_>>)> = Vec::new();
        for message in std::mem::take(&mut self.messages) {
            match SurfaceMessage::read(message) {
                Err(fault) => self.faults.push(fault.into()),
                Ok(message) => match surfaces.iter().position(|(surface, _)| *surface == message.surface) {
                    Some(at) => surfaces[at].1.push(message),
                    None if surfaces.len() < SURFACES_PER_FACT_MAX => surfaces.push((message.surface, vec![message])),
                    None => self.faults.push(format!("The fact has more than {SURFACES_PER_FACT_MAX} surfaces, the limit.")),
                },
            }
        }
        surfaces
    }
}

fn fold_fact(envelope: &EnvelopeView, of: &SourceActivity<'_>, fold: &mut FoldState) {
    let stem = of.id.strip_prefix(MESSAGE_PREFIX).filter(|rest| !rest.is_empty()).unwrap_or(of.id);
    // AG-UI: a snapshot with `replace: false` is only for readers without the activity.
    if of.content.is_some() && of.replace == Some(false) && fold.activities.get(KIND, stem).is_some() {
        return;
    }
    let mut update = match (of.content, of.patch) {
        (Some(content), _) => FactUpdate::of_content(content),
        (None, Some(patch)) => FactUpdate::of_patch(patch),
        (None, None) => return,
    };
    let surfaces = update.surfaces();
    // A fact with nothing but faults opens no activity.
    let says_nothing = update.has_messages && !update.faults.is_empty() && fold.activities.get(KIND, stem).is_none();
    if surfaces.is_empty() && !says_nothing {
        let mut edit = fold.activities.open(KIND, stem, Surface::ToolUi, envelope.ids.agent.as_ref());
        if update.is_whole && !update.has_messages {
            // The source shows its progress, and not the interface that it had.
            let mut empty = Map::new();
            edit.read(SURFACE_ID).into_iter().for_each(|surface| SURFACE_ID.put(&mut empty, surface));
            STATUS.put(&mut empty, update.status.unwrap_or(BUILDING));
            details(&mut empty, &update);
            edit.replace(empty);
        } else if update.faults.is_empty() {
            set_lifecycle(&mut edit, &update);
        }
    }
    for (surface, messages) in surfaces {
        let id = target(fold, stem, surface, &messages);
        let mut edit = fold.activities.open(KIND, &id, Surface::ToolUi, envelope.ids.agent.as_ref());
        apply_messages(&mut edit, &messages, &mut update);
    }
    for error in update.faults {
        let note = json!({ "kind": "a2ui_not_applied", "activityType": KIND, "activityId": stem, "error": error });
        diagnostics::add_entry(fold, note);
    }
}

/// The id of the activity that has the surface.
fn target(fold: &FoldState, stem: &str, surface: &str, messages: &[SurfaceMessage<'_>]) -> Box<str> {
    let is_free = |activity: &Activity| activity.content.read(SURFACE_ID).is_none_or(|known| known == surface);
    let own: Box<str> = match fold.activities.get(KIND, stem).is_none_or(is_free) {
        true => stem.into(),
        false => format!("{stem}/{surface}").into(),
    };
    let creates = messages.iter().any(|message| matches!(message.operation, SurfaceChange::Create(_)));
    if creates || fold.activities.get(KIND, &own).is_some_and(|own| own.content.has(CREATED)) {
        return own;
    }
    let has_surface = |of: &Activity| of.content.read(SURFACE_ID) == Some(surface) && of.content.has(CREATED);
    fold.activities.ids(KIND, has_surface).pop().unwrap_or(own)
}

fn apply_messages(edit: &mut Edit<'_>, messages: &[SurfaceMessage<'_>], update: &mut FactUpdate<'_>) {
    let resets = |message: &SurfaceMessage<'_>| matches!(message.operation, SurfaceChange::Create(_) | SurfaceChange::Delete);
    let Some(from) = messages.iter().rposition(resets) else {
        for message in messages {
            let applied = change(edit.content(), message).and_then(|patch| edit.apply_within(&patch, SURFACE_BYTES_MAX));
            update.faults.extend(applied.err());
        }
        return set_lifecycle(edit, update);
    };
    let (mut whole, mut bytes) = (Map::new(), None);
    for message in &messages[from..] {
        update.faults.extend(apply(&mut whole, message, &mut bytes).err());
    }
    if !is_deleted(&whole) {
        STATUS.put(&mut whole, update.status.unwrap_or(READY));
        details(&mut whole, update);
    }
    put_whole(edit, whole);
}

/// Sets what the source states beside the messages.
fn set_lifecycle(edit: &mut Edit<'_>, update: &FactUpdate<'_>) {
    let status = update.status.or_else(|| (update.is_whole || !edit.has(STATUS)).then_some(READY));
    if edit.read(STATUS).is_none_or(|known| known != DELETED) {
        edit.set_some(STATUS, status);
    }
    let mut further = if update.is_whole { Map::new() } else { edit.read(DETAILS).cloned().unwrap_or_default() };
    set_details(&mut further, update);
    match further.is_empty() {
        true => edit.remove(DETAILS),
        false => edit.set(DETAILS, further),
    }
}

fn details(content: &mut Map<String, Value>, update: &FactUpdate<'_>) {
    let mut further = Map::new();
    set_details(&mut further, update);
    if !further.is_empty() {
        DETAILS.put(content, further);
    }
}

fn set_details(details: &mut Map<String, Value>, update: &FactUpdate<'_>) {
    for (member, value) in &update.details {
        match value {
            Some(value) => drop(details.insert((*member).to_owned(), (*value).clone())),
            None => drop(details.shift_remove(*member)),
        }
    }
}

/// Makes the content equal to this one, and tells readers only what differs.
fn put_whole(edit: &mut Edit<'_>, whole: Map<String, Value>) {
    if edit.is_new() || !edit.has(CREATED) {
        return edit.replace(whole);
    }
    let gone = |known: &Map<String, Value>, new: &Map<String, Value>| -> Vec<String> {
        known.keys().filter(|member| !new.contains_key(*member)).cloned().collect()
    };
    for member in gone(edit.content(), &whole) {
        edit.remove_named(&member);
    }
    for (member, value) in whole {
        match value {
            Value::Object(new) if member == COMPONENTS.name() && edit.read(COMPONENTS).is_some() => {
                let Some(mut components) = edit.object(COMPONENTS) else { continue };
                for id in gone(components.content(), &new) {
                    components.remove_named(&id);
                }
                for (id, component) in new {
                    components.set_named(&id, component);
                }
            }
            value => edit.set_named(&member, value),
        }
    }
}

// ── the state ──

fn is_deleted(state: &Map<String, Value>) -> bool {
    state.read(STATUS) == Some(DELETED)
}

/// Applies a message to a state. `bytes` caches its size.
fn apply(state: &mut Map<String, Value>, message: &SurfaceMessage<'_>, bytes: &mut Option<usize>) -> Result<(), String> {
    if matches!(message.operation, SurfaceChange::Create(_) | SurfaceChange::Delete) {
        (*state, *bytes) = (Map::new(), None);
    }
    let patch = change(state, message)?;
    patch::apply_within(state, &patch, SURFACE_BYTES_MAX, bytes)
}

/// The JSON Patch by which a message changes a state. That of a message that creates or deletes is of an empty one.
fn change(state: &Map<String, Value>, message: &SurfaceMessage<'_>) -> Result<Vec<Value>, String> {
    if is_deleted(state) {
        return Err("The surface was deleted.".into());
    }
    let mut changes = Changes { state, patch: Vec::new() };
    changes.set(SURFACE_ID.name(), message.surface.into());
    if let Some(version) = message.version {
        changes.set(VERSION.name(), version.clone());
    }
    match message.operation {
        SurfaceChange::Create(members) => changes.create(members),
        SurfaceChange::Components(components) => changes.components(components)?,
        SurfaceChange::DataModel { path, value } if state.has(CREATED) => changes.data_model(path, value)?,
        SurfaceChange::DataModel { path, value } => changes.data_update(path, value)?,
        SurfaceChange::Delete => changes.set(STATUS.name(), DELETED.into()),
        SurfaceChange::Other(message) => changes.other(message),
    }
    Ok(changes.patch)
}

/// A JSON Patch on a state.
struct Changes<'s> {
    state: &'s Map<String, Value>,
    patch: Vec<Value>,
}

impl Changes<'_> {
    fn add(&mut self, path: &str, value: Value) {
        self.patch.push(json!({ "op": "add", "path": path, "value": value }));
    }

    fn remove(&mut self, path: &str) {
        self.patch.push(json!({ "op": "remove", "path": path }));
    }

    /// Sets a member of the content.
    fn set(&mut self, member: &str, value: Value) {
        if self.state.get(member) != Some(&value) {
            self.add(&format!("/{member}"), value);
        }
    }

    fn create(&mut self, members: &Map<String, Value>) {
        self.set(CREATED.name(), true.into());
        let mut further = Map::new();
        for (member, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            match member.as_str() {
                "surfaceId" => {}
                known if [CATALOG_ID.name(), THEME.name(), SEND_DATA_MODEL.name()].contains(&known) => {
                    self.set(known, value.clone());
                }
                _ => drop(further.insert(member.clone(), value.clone())),
            }
        }
        if !further.is_empty() {
            self.set(FURTHER.name(), further.into());
        }
    }

    fn components(&mut self, components: &[Value]) -> Result<(), String> {
        let known = self.state.read(COMPONENTS);
        if known.is_none() {
            self.set(COMPONENTS.name(), json!({}));
        }
        let mut new = HashSet::new();
        for component in components {
            let Some(id) = component_id(component) else { continue };
            let before = known.and_then(|known| known.get(id));
            if before.is_none() && new.insert(id) && known.map_or(0, Map::len) + new.len() > COMPONENTS_MAX {
                return Err(format!("The surface would have more than {COMPONENTS_MAX} components, the limit."));
            }
            let mut component = component.clone();
            // A known component that comes without its type keeps it.
            if let (Some(kind), Some(members)) = (before.and_then(|before| before.get("component")), component.as_object_mut()) {
                members.entry("component").or_insert_with(|| kind.clone());
            }
            if before != Some(&component) {
                self.add(&format!("/{}/{}", COMPONENTS.name(), escaped(id)), component);
            }
        }
        Ok(())
    }

    /// Sets or removes a value as renderers do: a missing list or object on the way is made.
    fn data_model(&mut self, path: &str, value: Option<&Value>) -> Result<(), String> {
        let mut at = format!("/{}", DATA_MODEL.name());
        let mut current = self.state.get(DATA_MODEL.name()).filter(|model| !model.is_null());
        let mut is_item = false;
        let mut tokens = path_tokens(path).peekable();
        while let Some(container) = current
            && let Some(token) = tokens.next()
        {
            is_item = false;
            (at, current) = match container {
                Value::Object(members) => (format!("{at}/{}", escaped(&token)), members.get(&*token)),
                Value::Array(items) => {
                    let index: usize = token.parse().map_err(|_| format!("The path has {token:?} in place of an index."))?;
                    if index > items.len() {
                        return Err(format!("The path has the index {index}. The list has {} items.", items.len()));
                    }
                    is_item = index < items.len();
                    (format!("{at}/{index}"), items.get(index))
                }
                _ => return Err(format!("The path leads into a value that is no object and no list: {at:?}.")),
            };
            current = current.filter(|value| !value.is_null() || tokens.peek().is_none());
        }
        match value {
            Some(value) if is_item => {
                let value = nested(tokens, value)?;
                self.patch.push(json!({ "op": "replace", "path": at, "value": value }));
            }
            Some(value) => self.add(&at, nested(tokens, value)?),
            // The other items keep their places.
            None if is_item && current.is_some() => self.patch.push(json!({ "op": "replace", "path": at, "value": null })),
            None if current.is_some() => self.remove(&at),
            None => {}
        }
        Ok(())
    }

    /// Notes a change of the data model of a surface that an earlier run created.
    fn data_update(&mut self, path: &str, value: Option<&Value>) -> Result<(), String> {
        let list = format!("/{}", DATA_UPDATES.name());
        let known = self.state.read(DATA_UPDATES).map(Vec::as_slice).unwrap_or_default();
        if self.state.read(DATA_UPDATES).is_none() {
            self.add(&list, json!([]));
        }
        let tokens: Vec<_> = path_tokens(path).collect();
        let is_covered = |update: &Value| {
            let mut theirs = path_tokens(update.get("path").and_then(Value::as_str).unwrap_or_default());
            tokens.iter().all(|token| theirs.next().is_some_and(|their| their == *token))
        };
        let covered: Vec<usize> = (0..known.len()).filter(|at| is_covered(&known[*at])).collect();
        if known.len() - covered.len() >= DATA_UPDATES_MAX {
            return Err(format!("The data model has {DATA_UPDATES_MAX} changes since an earlier run, the limit."));
        }
        for at in covered.into_iter().rev() {
            self.remove(&format!("{list}/{at}"));
        }
        let mut update = Map::from_iter([("path".to_owned(), Value::from(if path.is_empty() { "/" } else { path }))]);
        update.extend(value.map(|value| ("value".to_owned(), value.clone())));
        self.add(&format!("{list}/-"), update.into());
        Ok(())
    }

    fn other(&mut self, message: &Value) {
        let list = format!("/{}", MESSAGES.name());
        match self.state.read(MESSAGES) {
            None => return self.add(&list, json!([message])),
            Some(known) if known.len() >= OTHER_MESSAGES_MAX => self.remove(&format!("{list}/0")),
            Some(_) => {}
        }
        self.add(&format!("{list}/-"), message.clone());
    }
}

/// A value below the rest of its path.
fn nested<'t>(tokens: impl Iterator<Item = std::borrow::Cow<'t, str>>, value: &Value) -> Result<Value, String> {
    let mut tokens: Vec<_> = tokens.collect();
    let mut nested = value.clone();
    while let Some(token) = tokens.pop() {
        nested = match token.bytes().all(|byte| byte.is_ascii_digit()) {
            true if token != "0" => return Err(format!("The path has the index {token} of an empty list.")),
            true => json!([nested]),
            false => Value::Object(Map::from_iter([(token.into_owned(), nested)])),
        };
    }
    Ok(nested)
}

// ── for dialects ──

/// The A2UI messages that lead to this state.
#[must_use]
pub fn messages(state: &Map<String, Value>) -> Vec<Value> {
    let Some(surface) = state.read(SURFACE_ID) else { return Vec::new() };
    let version = state.get(VERSION.name()).cloned().unwrap_or_else(|| DEFAULT_VERSION.into());
    let message = |operation: &str, members: Map<String, Value>| {
        let mut body = Map::from_iter([("surfaceId".to_owned(), Value::from(surface))]);
        body.extend(members);
        json!({ "version": version, operation: body })
    };
    if is_deleted(state) {
        return vec![message("deleteSurface", Map::new())];
    }
    let mut messages = Vec::new();
    if state.has(CREATED) {
        let known = [CATALOG_ID.name(), THEME.name(), SEND_DATA_MODEL.name()].into_iter();
        let mut members: Map<String, Value> =
            known.filter_map(|name| Some((name.to_owned(), state.get(name)?.clone()))).collect();
        members.extend(state.read(FURTHER).cloned().unwrap_or_default());
        messages.push(message("createSurface", members));
    }
    let components: Vec<Value> = state.read(COMPONENTS).into_iter().flat_map(Map::values).cloned().collect();
    if !components.is_empty() {
        messages.push(message("updateComponents", Map::from_iter([("components".to_owned(), components.into())])));
    }
    if let Some(model) = state.get(DATA_MODEL.name()) {
        let members = [("path".to_owned(), Value::from("/")), ("value".to_owned(), model.clone())];
        messages.push(message("updateDataModel", members.into_iter().collect()));
    }
    let updates = state.read(DATA_UPDATES).into_iter().flatten().filter_map(Value::as_object);
    messages.extend(updates.map(|update| message("updateDataModel", update.clone())));
    messages.extend(state.read(MESSAGES).into_iter().flatten().cloned());
    messages
}

/// The content of the activity that AG-UI has for a surface: its messages, its status, and what the source states beside.
#[must_use]
pub fn shown(state: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = Map::from_iter([(OPERATIONS.to_owned(), Value::Array(messages(state)))]);
    let status = state.read(STATUS).filter(|status| ![READY, DELETED].contains(status));
    shown.extend(status.map(|status| (STATUS.name().to_owned(), status.into())));
    for (member, value) in state.read(DETAILS).into_iter().flatten() {
        shown.entry(member.as_str()).or_insert_with(|| value.clone());
    }
    shown
}

/// Whether the state has only what changed since an earlier run, which created the surface.
#[must_use]
pub fn is_partial(state: &Map<String, Value>) -> bool {
    state.has(SURFACE_ID) && !state.has(CREATED) && !is_deleted(state)
}

/// The state after what a later run changed.
#[must_use]
pub fn continued(base: &Map<String, Value>, later: &Map<String, Value>) -> Map<String, Value> {
    if !is_partial(later) || is_deleted(base) {
        return later.clone();
    }
    let (mut whole, mut bytes) = (base.clone(), None);
    for message in messages(later) {
        // What does not fit into the whole does not change it.
        _ = SurfaceMessage::read(&message).map(|message| apply(&mut whole, &message, &mut bytes));
    }
    for member in [STATUS.name(), DETAILS.name()] {
        match later.get(member) {
            Some(value) => drop(whole.insert(member.to_owned(), value.clone())),
            None => drop(whole.shift_remove(member)),
        }
    }
    whole
}

/// The state after these changes of the fold; `None` if they do not apply.
///
/// The state may be that of an earlier run, and the changes those of a later one.
#[must_use]
pub fn changed(state: &Map<String, Value>, operations: &[ContentOperation]) -> Option<Map<String, Value>> {
    let mut whole = state.clone();
    for operation in operations {
        if path(operation).starts_with(UPDATES_PATH) && state.has(CREATED) {
            for message in appended(state.read(SURFACE_ID)?, std::slice::from_ref(operation))? {
                apply(&mut whole, &SurfaceMessage::read(&message).ok()?, &mut None).ok()?;
            }
        } else {
            patch::apply(&mut whole, &[json!(operation)], &mut None).ok()?;
        }
    }
    Some(whole)
}

const UPDATES_PATH: &str = "/dataUpdates";

/// The messages that changes of the fold are, for a reader that appends them to those that it has.
///
/// `None` if the reader needs the state as a whole.
#[must_use]
pub fn appended(surface: &str, operations: &[ContentOperation]) -> Option<Vec<Value>> {
    let mut messages = Vec::new();
    for operation in operations {
        let Value::Object(mut operation) = json!(operation) else { return None };
        let value = operation.shift_remove("value");
        let path = operation.get("path").and_then(Value::as_str)?;
        let (member, rest) = path.strip_prefix('/').map(|path| path.split_once('/').unwrap_or((path, "")))?;
        let mut push = |name: &str, members: Value| {
            let mut body = Map::from_iter([("surfaceId".to_owned(), Value::from(surface))]);
            body.extend(members.as_object().cloned().unwrap_or_default());
            messages.push(json!({ "version": DEFAULT_VERSION, name: body }));
        };
        match (member, rest, value) {
            ("components", "", Some(Value::Object(all))) => {
                if !all.is_empty() {
                    push("updateComponents", json!({ "components": all.values().collect::<Vec<_>>() }));
                }
            }
            ("components", _, Some(component)) => push("updateComponents", json!({ "components": [component] })),
            ("dataModel", _, value) => {
                let mut update = Map::from_iter([("path".to_owned(), Value::from(format!("/{rest}")))]);
                update.extend(value.map(|value| ("value".to_owned(), value)));
                push("updateDataModel", update.into());
            }
            ("dataUpdates", "", Some(Value::Array(all))) => all.into_iter().for_each(|update| push("updateDataModel", update)),
            ("dataUpdates", _, Some(update)) => push("updateDataModel", update),
            ("messages", "", Some(Value::Array(all))) => messages.extend(all),
            ("messages", _, Some(message)) => messages.push(message),
            // What these remove was applied, or is another's by now.
            ("dataUpdates" | "messages", _, None) | ("version" | "surfaceId", ..) => {}
            _ => return None,
        }
    }
    Some(messages)
}
