//! Finds the rows of an ended run that can be deleted without any visible difference.
//!
//! Candidates are facts that were useful only while the run was live (`ephemeral_live`), and diagnostics. Whether the
//! run can do without one does not follow from its type, so this module tries it. It folds the run with and without the
//! candidates. An activity that differs keeps some of its candidates, until both views are equal: the activities with
//! content, order, `opened` and `sequence`, and the state that the fold keeps beside them. So later facts also fold to
//! the same result, and a reader with an old cursor receives exactly the changes that it missed.
//!
//! The module is pure, like the fold. It passes over the rows a few times and keeps only numbers beside the views.

use super::View;
use super::stage::Activity;
use crate::log::LogId;
use crate::log::row::{Row, Rows};
use crate::model::{Audience, Sequence};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// How many candidates of a differing activity stay in each round, the newest of the deletable ones.
///
/// Most contents are as the last fact left them, and lists contain some of the newest entries.
const KEPT_IN_TURN: [usize; 8] = [1, 1, 2, 4, 8, 16, 32, usize::MAX];

/// The most rounds before the run stays unchanged: keeping one row can make another one necessary.
const PROOFS_MAX: usize = 16;

/// One activity of one audience's view, by index; or [`THE_REST`] of that view.
type Thing = (usize, usize);

/// The index of the state that a view keeps beside its activities.
const THE_REST: usize = usize::MAX;

/// The digest of a part of a view.
type Print = [u8; 32];

/// The digests of one view: of every activity in order, and of the remaining state.
struct Prints {
    activities: Vec<Print>,
    rest: Print,
}

impl Prints {
    fn of(view: &View) -> Self {
        let rest = serde_json::to_value((view.framed, &view.scene.own_agent, &view.scene.run));
        let activity = |activity: &Activity| print(&serde_json::to_value(activity).expect("an activity is plain data"));
        Self { activities: view.activities().iter().map(activity).collect(), rest: print(&rest.expect("the state is plain data")) }
    }

    /// The indices at which the two views differ.
    fn differing(&self, other: &Self) -> impl Iterator<Item = usize> {
        let count = self.activities.len().max(other.activities.len());
        let differs = move |at: &usize| self.activities.get(*at) != other.activities.get(*at);
        (0..count).filter(differs).chain((self.rest != other.rest).then_some(THE_REST))
    }
}

/// The digest of a JSON value, independent of the order of members.
fn print(value: &Value) -> Print {
    fn enter(value: &Value, digest: &mut Sha256) {
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(member, _)| *member);
                digest.update([b'{']);
                for (member, value) in members {
                    digest.update(Value::from(member.as_str()).to_string());
                    enter(value, digest);
                }
                digest.update([b'}']);
            }
            Value::Array(values) => {
                digest.update([b'[']);
                for value in values {
                    enter(value, digest);
                    digest.update([b',']);
                }
                digest.update([b']']);
            }
            plain => digest.update(plain.to_string()),
        }
    }
    let mut digest = Sha256::new();
    enter(value, &mut digest);
    digest.finalize().into()
}

/// A row that is deleted unless it is needed.
struct Candidate {
    sequence: Sequence,
    is_needed: bool,
    /// Whether it adds to other facts of its type: if one of them is needed, all are.
    is_chunk: bool,
}

/// The input of the choice.
struct Found {
    candidates: Vec<Candidate>,
    /// The candidates that changed each activity, by index, in order.
    touched: HashMap<Thing, Vec<usize>>,
    /// The views with all candidates.
    whole: [Prints; 3],
}

/// Returns the rows of `(after, until]` that a log can do without, in order.
///
/// `pass` visits all of the log's rows, from the first to the last, on each call.
///
/// # Errors
/// The errors of `pass`.
pub fn dispensable<E>(
    log: &LogId,
    after: Sequence,
    until: Sequence,
    mut pass: impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<Vec<Sequence>, E> {
    let Found { mut candidates, touched, whole } = find(log, after, until, &mut pass)?;
    let mut turns = HashMap::<Thing, usize>::new();
    for _ in 0..PROOFS_MAX {
        let going = candidates.iter().filter(|candidate| !candidate.is_needed);
        let gone: Vec<_> = going.map(|candidate| candidate.sequence).collect();
        if gone.is_empty() {
            return Ok(gone);
        }
        let without = fold_without(log, &gone, &mut pass)?;
        let differing = whole.iter().zip(&without).enumerate();
        let differing = differing.flat_map(|(who, (whole, without))| whole.differing(without).map(move |at| (who, at)));
        let (mut is_same, mut kept) = (true, Vec::new());
        for thing in differing {
            is_same = false;
            let turn = turns.entry(thing).or_default();
            let count = KEPT_IN_TURN[(*turn).min(KEPT_IN_TURN.len() - 1)];
            *turn += 1;
            let newest = touched.get(&thing).into_iter().flatten().rev().copied();
            let going = newest.filter(|at| !candidates[*at].is_needed);
            let (chunks, others): (Vec<_>, Vec<_>) = going.partition(|at| candidates[*at].is_chunk);
            kept.extend(chunks.into_iter().chain(others.into_iter().take(count)));
        }
        if is_same {
            return Ok(gone);
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
/// Not deletable are the rows that opened an activity or part, the last change of an activity, rows that a content
/// refers to, and each audience's first and last row.
fn find<E>(
    log: &LogId,
    after: Sequence,
    until: Sequence,
    pass: &mut impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<Found, E> {
    let mut views = Audience::ALL.map(|audience| View::new(log, audience));
    let (mut candidates, mut touched) = (Vec::new(), HashMap::<Thing, Vec<usize>>::new());
    let (mut needed, mut seen_last, mut last) = (HashSet::new(), [Sequence::NONE; 3], Sequence::NONE);
    pass(&mut |row| {
        let sequence = row.sequence();
        if last == Sequence::NONE {
            needed.insert(sequence);
        }
        last = sequence;
        let at = Some(sequence).filter(|sequence| *sequence > after && *sequence <= until).and_then(|_| {
            candidates.push(candidate(row)?);
            Some(candidates.len() - 1)
        });
        for (who, view) in views.iter_mut().enumerate() {
            let text = row.view(view.audience);
            if text.is_some() {
                seen_last[who] = sequence;
            }
            let before = at.map(|_| (view.scene.own_agent.clone(), view.scene.run.clone()));
            let folded = view.fold(sequence, text);
            let (Some(at), Some((agent, run))) = (at, before) else { continue };
            for touch in folded.touched {
                if touch.ended == Some(true) {
                    needed.insert(sequence);
                }
                touched.entry((who, touch.at)).or_default().push(at);
            }
            if view.scene.own_agent != agent || view.scene.run != run {
                touched.entry((who, THE_REST)).or_default().push(at);
            }
        }
    })?;
    needed.extend(seen_last.into_iter().chain([last]));
    for activity in views.iter().flat_map(View::activities) {
        needed.extend([activity.opened, activity.sequence]);
        if !activity.is_custom {
            referred_by(&activity.content, &mut needed);
        }
    }
    for candidate in &mut candidates {
        candidate.is_needed = needed.contains(&candidate.sequence);
    }
    Ok(Found { candidates, touched, whole: views.each_ref().map(Prints::of) })
}

/// Folds a log for each audience without these rows, which are in order.
fn fold_without<E>(
    log: &LogId,
    gone: &[Sequence],
    pass: &mut impl FnMut(&mut dyn FnMut(&Row)) -> Result<(), E>,
) -> Result<[Prints; 3], E> {
    let mut views = Audience::ALL.map(|audience| View::new(log, audience));
    let mut gone = gone.iter().peekable();
    pass(&mut |row| {
        if gone.next_if(|gone| **gone == row.sequence()).is_none() {
            for view in &mut views {
                view.fold(row.sequence(), row.view(view.audience));
            }
        }
    })?;
    Ok(views.each_ref().map(Prints::of))
}

/// The row as a candidate, if its fact was useful only for a while.
fn candidate(row: &Row) -> Option<Candidate> {
    #[derive(Deserialize)]
    struct Kind<'e> {
        #[serde(borrow)]
        r#type: Cow<'e, str>,
        #[serde(borrow, default)]
        persistence: Cow<'e, str>,
    }
    let kind: Kind<'_> = serde_json::from_slice(row.view(Audience::Internal)?).ok()?;
    let is_chunk = matches!(&*kind.r#type, "text.delta" | "reasoning.delta" | "plan.delta" | "tool.output.delta");
    let is_passing = kind.persistence == "ephemeral_live" || kind.r#type.starts_with("diagnostic.");
    is_passing.then_some(Candidate { sequence: row.sequence(), is_needed: false, is_chunk })
}

/// The envelopes that a content refers to: where a part opened, where reports began, where an entry came from.
fn referred_by(members: &Map<String, Value>, sequences: &mut HashSet<Sequence>) {
    for (member, value) in members {
        match value.as_u64().filter(|_| matches!(member.as_str(), "opened" | "sequence" | "reported")) {
            Some(sequence) => drop(sequences.insert(Sequence(sequence))),
            None => referred(value, sequences),
        }
    }
}

fn referred(value: &Value, sequences: &mut HashSet<Sequence>) {
    match value {
        Value::Object(members) => referred_by(members, sequences),
        Value::Array(values) => values.iter().for_each(|value| referred(value, sequences)),
        _ => {}
    }
}

/// Removes rows from a log's appends, one append after the other, from the first on.
pub struct Thinning<'g> {
    gone: std::iter::Peekable<std::slice::Iter<'g, Sequence>>,
    /// Per audience, the last remaining row that it sees.
    seen_last: [Sequence; 3],
    /// Per audience, the number of removed rows that it saw.
    pub unseen: [u64; 3],
}

impl<'g> Thinning<'g> {
    /// Removes these rows, which are in order.
    #[must_use]
    pub fn new(gone: &'g [Sequence]) -> Self {
        Self { gone: gone.iter().peekable(), seen_last: [Sequence::NONE; 3], unseen: [0; 3] }
    }

    /// The remaining rows of the next append, and the last one's sequence; `None` if the append is unchanged.
    pub fn append(&mut self, rows: &Bytes) -> Option<(Sequence, Bytes)> {
        let (mut left, mut last, mut is_changed) = (Vec::with_capacity(rows.len()), Sequence::NONE, false);
        for row in Rows(rows.clone()) {
            let is_gone = self.gone.next_if(|gone| **gone == row.sequence()).is_some();
            is_changed |= is_gone;
            if !is_gone {
                last = row.sequence();
                row.encode_after(&mut left, self.seen_last);
            }
            for audience in Audience::ALL.into_iter().filter(|audience| row.view(*audience).is_some()) {
                let seen_last = &mut self.seen_last[audience.index()];
                if is_gone {
                    self.unseen[audience.index()] += 1;
                } else {
                    is_changed |= row.prev(audience) != *seen_last;
                    *seen_last = row.sequence();
                }
            }
        }
        is_changed.then(|| (last, left.into()))
    }
}
