//! Finds the rows of an ended run that can be deleted without any visible difference.
//!
//! Candidates are facts that were useful only while the run was live (`ephemeral_live`), and diagnostics; never a
//! decision, with its question, its controls and its call. Whether the
//! run can do without one does not follow from its type, so this module tries it. It folds the run with and without the
//! candidates. An activity that differs keeps some of its candidates, until both views are equal: the activities with
//! content, order, `opened` and `sequence`, and the state that the fold keeps beside them. So later facts also fold to
//! the same result, and a reader with an old cursor receives exactly the changes that it missed.
//!
//! The module is pure, like the fold. It passes over the rows a few times and keeps only numbers beside the views.

use crate::environment::sabotage;
use crate::log::LogId;
use crate::log::row::{Row, Rows};
use crate::model::{Audience, Sequence};
use crate::projection::View;
use crate::projection::activity_set::Activity;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// How many candidates of a differing activity stay in each round, the newest of the deletable ones.
///
/// Most contents are as the last fact left them, and lists contain some of the newest entries.
const KEPT_PER_ROUND: [usize; 8] = [1, 1, 2, 4, 8, 16, 32, usize::MAX];

/// The most rounds before the run stays unchanged: keeping one row can make another one necessary.
const ROUNDS_MAX: usize = 16;

/// One activity of one audience's view, by index; or [`REMAINING_STATE`] of that view.
type ActivityIndex = (usize, usize);

/// The index of the state that a view keeps beside its activities.
const REMAINING_STATE: usize = usize::MAX;

/// The digest of a part of a view.
type Sha256Digest = [u8; 32];

/// The digests of one view: of every activity in order, and of the remaining state.
struct ViewDigests {
    activities: Vec<Sha256Digest>,
    rest: Sha256Digest,
}

impl ViewDigests {
    fn of(view: &View) -> Self {
        let activity = |activity: &Activity| json_digest(&serde_json::to_value(activity).expect("an activity is plain data"));
        Self { activities: view.activities().iter().map(activity).collect(), rest: json_digest(&view.remaining_state()) }
    }

    /// The indices at which the two views differ.
    fn differing(&self, other: &Self) -> impl Iterator<Item = usize> {
        let count = self.activities.len().max(other.activities.len());
        let differs = move |at: &usize| self.activities.get(*at) != other.activities.get(*at);
        (0..count).filter(differs).chain((self.rest != other.rest).then_some(REMAINING_STATE))
    }
}

/// The digest of a JSON value, independent of the order of members.
fn json_digest(value: &Value) -> Sha256Digest {
    fn update(value: &Value, digest: &mut Sha256) {
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(member, _)| *member);
                digest.update([b'{']);
                for (member, value) in members {
                    digest.update(Value::from(member.as_str()).to_string());
                    update(value, digest);
                }
                digest.update([b'}']);
            }
            Value::Array(values) => {
                digest.update([b'[']);
                for value in values {
                    update(value, digest);
                    digest.update([b',']);
                }
                digest.update([b']']);
            }
            plain => digest.update(plain.to_string()),
        }
    }
    let mut digest = Sha256::new();
    update(value, &mut digest);
    digest.finalize().into()
}

/// A row that is deleted unless it is needed.
struct Candidate {
    sequence: Sequence,
    is_needed: bool,
    /// Whether it adds to other facts of its type: if one of them is needed, all are.
    is_chunk: bool,
    /// The call that it is about.
    call: Option<Box<str>>,
}

/// The input of the choice.
struct CandidateSet {
    candidates: Vec<Candidate>,
    /// The candidates that changed each activity, by index, in order.
    touched: HashMap<ActivityIndex, Vec<usize>>,
    /// The views with all candidates.
    whole: [ViewDigests; 3],
}

/// Returns the rows of `(after, until]` that a log can do without, in order.
///
/// `pass` visits all of the log's rows, from the first to the last, on each call.
///
/// # Errors
/// The errors of `pass`.
pub fn deletable_rows<E>(
    log: &LogId,
    after: Sequence,
    until: Sequence,
    mut pass: impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<Vec<Sequence>, E> {
    let CandidateSet { mut candidates, touched, whole } = find(log, after, until, &mut pass)?;
    let mut rounds = HashMap::<ActivityIndex, usize>::new();
    for _ in 0..ROUNDS_MAX {
        let deletable = candidates.iter().filter(|candidate| !candidate.is_needed);
        let removed: Vec<_> = deletable.map(|candidate| candidate.sequence).collect();
        if removed.is_empty() || sabotage::is(52) {
            return Ok(removed);
        }
        let without = fold_without(log, &removed, &mut pass)?;
        let differing = whole.iter().zip(&without).enumerate();
        let differing = differing.flat_map(|(who, (whole, without))| whole.differing(without).map(move |at| (who, at)));
        let (mut is_same, mut kept) = (true, Vec::new());
        for thing in differing {
            is_same = false;
            let round = rounds.entry(thing).or_default();
            let count = KEPT_PER_ROUND[(*round).min(KEPT_PER_ROUND.len() - 1)];
            *round += 1;
            let newest = touched.get(&thing).into_iter().flatten().rev().copied();
            let deletable = newest.filter(|at| !candidates[*at].is_needed);
            let (chunks, others): (Vec<_>, Vec<_>) = deletable.partition(|at| candidates[*at].is_chunk);
            kept.extend(chunks.into_iter().chain(others.into_iter().take(count)));
        }
        if is_same {
            return Ok(removed);
        }
        if kept.is_empty() {
            break;
        }
        // Marked after the loop, so that a row that concerns several audiences is counted once.
        for at in kept {
            candidates[at].is_needed = true;
        }
    }
    Ok(Vec::new())
}

/// Folds all rows and collects the candidates.
///
/// It excludes rows that opened an activity or part, last changes of activities, and rows that a content refers to. It
/// also excludes each audience's first and last row.
fn find<E>(
    log: &LogId,
    after: Sequence,
    until: Sequence,
    pass: &mut impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<CandidateSet, E> {
    let mut views = Audience::ALL.map(|audience| View::new(log, audience));
    let (mut candidates, mut touched) = (Vec::new(), HashMap::<ActivityIndex, Vec<usize>>::new());
    let (mut needed, mut seen_last, mut last) = (HashSet::new(), [Sequence::NONE; 3], Sequence::NONE);
    let mut decided_calls = HashSet::new();
    pass(&mut |row| {
        let sequence = row.sequence();
        if last == Sequence::NONE {
            needed.insert(sequence);
        }
        last = sequence;
        decided_calls.extend(call_of_request(row));
        let at = Some(sequence).filter(|sequence| *sequence > after && *sequence <= until).and_then(|_| {
            candidates.push(candidate(row)?);
            Some(candidates.len() - 1)
        });
        for (who, view) in views.iter_mut().enumerate() {
            let text = row.view(view.audience);
            if text.is_some() {
                seen_last[who] = sequence;
            }
            let before = at.map(|_| (view.run_and_agent().0.clone(), view.run_and_agent().1.clone()));
            let folded = view.fold(sequence, text);
            let (Some(at), Some((run, agent))) = (at, before) else { continue };
            for change in folded.changes {
                if change.ended == Some(true) {
                    needed.insert(sequence);
                }
                touched.entry((who, change.index)).or_default().push(at);
            }
            if view.run_and_agent() != (&run, &agent) {
                touched.entry((who, REMAINING_STATE)).or_default().push(at);
            }
        }
    })?;
    needed.extend(seen_last.into_iter().chain([last]));
    for activity in views.iter().flat_map(View::activities) {
        needed.extend([activity.opened, activity.sequence]);
        if !activity.is_custom {
            collect_references(&activity.content, &mut needed);
        }
    }
    for candidate in &mut candidates {
        let is_of_decision = candidate.call.as_ref().is_some_and(|call| decided_calls.contains(call));
        candidate.is_needed = is_of_decision || needed.contains(&candidate.sequence);
    }
    Ok(CandidateSet { candidates, touched, whole: views.each_ref().map(ViewDigests::of) })
}

/// Folds a log for each audience without these rows, which are in order.
fn fold_without<E>(
    log: &LogId,
    removed: &[Sequence],
    pass: &mut impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<[ViewDigests; 3], E> {
    let mut views = Audience::ALL.map(|audience| View::new(log, audience));
    let mut removed = removed.iter().peekable();
    pass(&mut |row| {
        if removed.next_if(|removed| **removed == row.sequence()).is_none() {
            for view in &mut views {
                view.fold(row.sequence(), row.view(view.audience));
            }
        }
    })?;
    Ok(views.each_ref().map(ViewDigests::of))
}

/// The row as a candidate, if its fact was useful only for a while.
fn candidate(row: &Row) -> Option<Candidate> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind<'e> {
        #[serde(borrow)]
        r#type: Cow<'e, str>,
        #[serde(borrow, default)]
        persistence: Cow<'e, str>,
        #[serde(default)]
        tool_call_id: Option<Box<str>>,
    }
    let kind: Kind<'_> = serde_json::from_slice(row.view(Audience::Internal)?).ok()?;
    let is_chunk = matches!(&*kind.r#type, "text.delta" | "reasoning.delta" | "plan.delta" | "tool.output.delta");
    let is_short_lived = kind.persistence == "ephemeral_live" || kind.r#type.starts_with("diagnostic.");
    // The record of a decision stays whole: what was asked, answered and resolved, and the call that it was about.
    let is_recorded = kind.r#type.starts_with("action.") || kind.r#type.starts_with("control.");
    let candidate = Candidate { sequence: row.sequence(), is_needed: false, is_chunk, call: kind.tool_call_id };
    (is_short_lived && !is_recorded).then_some(candidate)
}

/// The call that a request for a decision is about.
fn call_of_request(row: &Row) -> Option<Box<str>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'e> {
        #[serde(borrow)]
        r#type: Cow<'e, str>,
        #[serde(default)]
        tool_call_id: Option<Box<str>>,
    }
    let text = row.view(Audience::Internal)?;
    memchr::memmem::find(text, b"\"action.required\"")?;
    let request: Request<'_> = serde_json::from_slice(text).ok()?;
    request.tool_call_id.filter(|_| request.r#type == "action.required")
}

/// The envelopes that a content refers to: starts of parts, of reports, and of list entries.
fn collect_references(members: &Map<String, Value>, sequences: &mut HashSet<Sequence>) {
    for (member, value) in members {
        match value.as_u64().filter(|_| matches!(member.as_str(), "opened" | "sequence" | "reported")) {
            Some(sequence) => drop(sequences.insert(Sequence(sequence))),
            None => collect_references_in(value, sequences),
        }
    }
}

fn collect_references_in(value: &Value, sequences: &mut HashSet<Sequence>) {
    match value {
        Value::Object(members) => collect_references(members, sequences),
        Value::Array(values) => values.iter().for_each(|value| collect_references_in(value, sequences)),
        _ => {}
    }
}

/// Removes rows from a log's appends, one append after the other, from the first on.
pub struct RowRemover<'g> {
    removed: std::iter::Peekable<std::slice::Iter<'g, Sequence>>,
    /// Per audience, the last remaining row that it sees.
    seen_last: [Sequence; 3],
    /// Per audience, the number of removed rows that it saw.
    pub removed_visible: [u64; 3],
}

impl<'g> RowRemover<'g> {
    /// Removes these rows, which are in order.
    #[must_use]
    pub fn new(removed: &'g [Sequence]) -> Self {
        Self { removed: removed.iter().peekable(), seen_last: [Sequence::NONE; 3], removed_visible: [0; 3] }
    }

    /// The remaining rows of the next append, and the last sequence; `None` if unchanged.
    pub fn append(&mut self, rows: &Bytes) -> Option<(Sequence, Bytes)> {
        let (mut left, mut last, mut is_changed) = (Vec::with_capacity(rows.len()), Sequence::NONE, false);
        for row in Rows(rows.clone()) {
            let is_removed = self.removed.next_if(|removed| **removed == row.sequence()).is_some();
            is_changed |= is_removed;
            if !is_removed {
                last = row.sequence();
                row.encode_after(&mut left, self.seen_last);
            }
            for audience in Audience::ALL.into_iter().filter(|audience| row.view(*audience).is_some()) {
                let seen_last = &mut self.seen_last[audience.index()];
                if is_removed {
                    self.removed_visible[audience.index()] += 1;
                } else {
                    is_changed |= row.prev(audience) != *seen_last;
                    *seen_last = row.sequence();
                }
            }
        }
        is_changed.then(|| (last, left.into()))
    }
}
