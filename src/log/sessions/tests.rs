//! Tests of the session index.

use super::*;
use crate::log::testing::in_memory;
use crate::log::{Append, META};
use crate::model::{Epoch, Sequence};
use crate::source::ledger::Status;
use bytes::Bytes;

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn run(name: &str) -> LogId {
    LogId::Run(RunId::new(name).unwrap())
}

fn own(name: &str) -> LogId {
    LogId::Session(id(name))
}

/// A summary with this session and this parent; `""` for none.
fn summary_of(session: &str, parent: &str) -> Summary {
    let named = |name: &str| (!name.is_empty()).then(|| id(name));
    Summary { session_id: named(session), parent_session_id: named(parent), ..Summary::default() }
}

fn names(sessions: impl IntoIterator<Item = SessionId>) -> Vec<String> {
    sessions.into_iter().map(|session| session.to_string()).collect()
}

/// Up to `limit` sessions created before `before`, newest first.
fn list(sessions: &Sessions, before: Option<u64>, limit: usize) -> Vec<(u64, SessionId)> {
    let before = before.map(|created| ListPlace { at: 0, created });
    let listed = sessions.list(SessionSort::Created, None, before, limit).into_iter();
    listed.map(|(place, session)| (place.created, session)).collect()
}

/// Gives a summary an envelope of this time, which all audiences see.
fn with_news(mut summary: Summary, time: &str) -> Summary {
    (summary.last_activity, summary.last_sequence) = (Some(time.into()), Sequence(1));
    summary.seen_last = [Sequence(1); 3];
    summary
}

fn runs(sessions: &Sessions, session: &str) -> Vec<String> {
    sessions.runs_of(&id(session)).iter().map(ToString::to_string).collect()
}

fn below(sessions: &Sessions, session: &str) -> Vec<String> {
    names(sessions.children_of(&id(session)))
}

#[test]
fn sessions_are_listed_newest_first_by_the_creation_of_their_first_log() {
    let sessions = Sessions::default();
    for (n, session) in (1..).zip(["s", "t", "s", "u", "t", "v"]) {
        sessions.apply(&run(&format!("r{n}")), n, None, &summary_of(session, "")).notify();
    }
    sessions.apply(&run("unowned"), 7, None, &summary_of("", "")).notify();
    sessions.apply(&own("w"), 8, None, &summary_of("", "")).notify();
    sessions.apply(&own("t"), 9, None, &summary_of("t", "")).notify();
    let first = list(&sessions, None, 3);
    assert_eq!(first, [(8, id("w")), (6, id("v")), (4, id("u"))]);
    sessions.apply(&run("late"), 10, None, &summary_of("x", "")).notify();
    assert_eq!(list(&sessions, Some(4), 3), [(2, id("t")), (1, id("s"))]);
    assert_eq!(list(&sessions, Some(1), 3), []);
    assert_eq!((runs(&sessions, "s"), runs(&sessions, "t")), (vec!["r1".into(), "r3".into()], vec!["r2".into(), "r5".into()]));
    assert_eq!(["s", "t", "w"].map(|session| sessions.has_own_log(&id(session))), [false, true, true]);
    assert_eq!((runs(&sessions, "w"), runs(&sessions, "never")), (vec![], vec![]));
}

/// A summary of a log of this owner.
fn owned(session: &str, owner: &str, bytes: u64) -> Summary {
    let mut summary = summary_of(session, "");
    (summary.extension.owner, summary.extension.bytes) = (Some(owner.parse().unwrap()), bytes);
    summary
}

#[test]
fn the_sessions_of_an_owner_are_listed_newest_first_and_their_use_is_summed() {
    let sessions = Sessions::default();
    let (ann, bob) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    for (n, session, owner, bytes) in
        [(1, "s", "ann", 10), (2, "t", "bob", 1), (3, "u", "ann", 5), (4, "s", "ann", 7), (5, "", "ann", 3)]
    {
        sessions.apply(&run(&format!("r{n}")), n, None, &owned(session, owner, bytes)).notify();
    }
    sessions.apply(&run("r6"), 6, None, &summary_of("v", "")).notify();
    assert_eq!(sessions.list_of(&ann, None, 9), [(3, id("u")), (1, id("s"))]);
    assert_eq!(sessions.list_of(&ann, Some(3), 9), [(1, id("s"))]);
    assert_eq!(sessions.use_of(&ann), OwnerUse { sessions: 2, bytes: 25, turns: 0 });
    let owner = |session: &str| sessions.owner_of(&id(session)).map(|owner| owner.to_string());
    assert_eq!([owner("s"), owner("t"), owner("v"), owner("never")], [Some("ann".into()), Some("bob".into()), None, None]);
    // The first log of a session goes, then all of them.
    sessions.apply(&run("r4"), 4, Some(&owned("s", "ann", 7)), &owned("s", "ann", 9)).notify();
    sessions.forget(&run("r1"), &owned("s", "ann", 10)).notify();
    assert_eq!((sessions.list_of(&ann, None, 9), sessions.use_of(&ann).bytes), (vec![(4, id("s")), (3, id("u"))], 17));
    sessions.forget(&run("r4"), &owned("s", "ann", 9)).notify();
    assert_eq!((owner("s"), sessions.use_of(&ann)), (None, OwnerUse { sessions: 1, bytes: 8, turns: 0 }));
    for (n, session, owner, bytes) in [(3, "u", "ann", 5), (5, "", "ann", 3), (2, "t", "bob", 1)] {
        sessions.forget(&run(&format!("r{n}")), &owned(session, owner, bytes)).notify();
    }
    assert_eq!((sessions.uses(9), sessions.use_of(&bob)), (vec![], OwnerUse::default()));
}

#[test]
fn a_session_that_begins_has_one_owner_until_no_writer_holds_it() {
    let sessions = Sessions::default();
    let owner = |name: &str| name.parse().ok();
    let first = sessions.claim(&id("s"), owner("ann").as_ref());
    assert_eq!(*sessions.claim(&id("s"), owner("bob").as_ref()), owner("ann"));
    drop(first);
    let second = sessions.claim(&id("s"), owner("bob").as_ref());
    assert_eq!(*second, owner("bob"));
    sessions.apply(&run("r"), 1, None, &owned("s", "bob", 1)).notify();
    drop(second);
    sessions.sweep();
    assert_eq!(*sessions.claim(&id("s"), owner("ann").as_ref()), owner("bob"), "the session exists");
    assert_eq!(*sessions.claim(&id("t"), None), None);
}

#[test]
fn a_run_that_names_its_session_late_or_changes_it_keeps_its_creation_order() {
    let sessions = Sessions::default();
    sessions.apply(&run("a"), 1, None, &summary_of("", "")).notify();
    sessions.apply(&run("b"), 2, None, &summary_of("s", "")).notify();
    assert_eq!(list(&sessions, None, 9), [(2, id("s"))]);
    sessions.apply(&run("a"), 1, Some(&summary_of("", "")), &summary_of("s", "")).notify();
    assert_eq!((runs(&sessions, "s"), sessions.created_order(&id("s"))), (vec!["a".into(), "b".into()], Some(1)));
    sessions.apply(&run("a"), 1, Some(&summary_of("s", "")), &summary_of("t", "s")).notify();
    assert_eq!((runs(&sessions, "s"), runs(&sessions, "t")), (vec!["b".into()], vec!["a".into()]));
    assert_eq!(list(&sessions, None, 9), [(2, id("s")), (1, id("t"))]);
    assert_eq!(below(&sessions, "s"), ["t"]);
}

#[test]
fn the_first_log_that_names_a_parent_decides_and_its_erasure_promotes_the_next() {
    let sessions = Sessions::default();
    sessions.apply(&run("a"), 1, None, &summary_of("s", "")).notify();
    sessions.apply(&run("b"), 5, None, &summary_of("s", "late")).notify();
    sessions.apply(&own("s"), 3, None, &summary_of("s", "own")).notify();
    assert_eq!((below(&sessions, "own"), below(&sessions, "late")), (vec!["s".into()], vec![]));
    assert_eq!(sessions.created_order(&id("own")), None, "it is named, and not there");
    sessions.apply(&run("a"), 1, Some(&summary_of("s", "")), &summary_of("s", "first")).notify();
    assert_eq!(sessions.parent_of(&id("s")), Some(id("first")));
    for (log, parent) in [(run("a"), Some(id("own"))), (own("s"), Some(id("late"))), (run("b"), None)] {
        assert!(sessions.created_order(&id("s")).is_some());
        sessions.forget(&log, &summary_of("s", "")).notify();
        assert_eq!(sessions.parent_of(&id("s")), parent);
    }
    assert_eq!((list(&sessions, None, 9), below(&sessions, "late")), (vec![], vec![]));
    let inner = sessions.inner.read();
    assert!(inner.sessions.is_empty() && inner.children.is_empty(), "no trace of the session is left");
}

#[test]
fn every_descendant_is_found_once_even_in_cycles() {
    let sessions = Sessions::default();
    for (n, (session, parent)) in
        (1..).zip([("root", "leaf"), ("b", "root"), ("a", "root"), ("leaf", "a"), ("self", "self"), ("c", "b")])
    {
        sessions.apply(&run(session), n, None, &summary_of(session, parent)).notify();
    }
    assert_eq!(below(&sessions, "root"), ["b", "a", "c", "leaf"]);
    assert_eq!(below(&sessions, "leaf"), ["root", "b", "a", "c"]);
    assert_eq!((below(&sessions, "self"), sessions.parent_of(&id("self"))), (vec![], None));
    let waiting = sessions.watch(&id("b"));
    sessions.apply(&run("more"), 9, None, &summary_of("leaf", "")).notify();
    assert!(!waiting.has_changed(), "b is not above leaf");
    sessions.apply(&run("more"), 10, None, &summary_of("c", "")).notify();
    assert!(waiting.has_changed());
}

/// A summary with this number of pending actions.
fn summary_with(session: &str, parent: &str, pending: usize) -> Summary {
    let mut summary = summary_of(session, parent);
    summary.run.pending = (0..pending).map(|n| n.to_string()).collect();
    summary
}

#[test]
fn pending_actions_count_at_every_level_above_and_follow_a_session_to_another_parent() {
    const LEVELS: u64 = 5000;
    let sessions = Sessions::default();
    for level in 1..=LEVELS {
        let summary = summary_with(&format!("s{level}"), &format!("s{}", level - 1), usize::from(level == LEVELS) * 3);
        sessions.apply(&run(&format!("r{level}")), level, None, &summary).notify();
    }
    let below = |session: &str| sessions.pending_below().of(&id(session), Audience::User);
    assert_eq!(["s0", "s1", "s4999", "s5000"].map(below), [3, 3, 3, 0]);
    // The session's own log is older than the log that names the parent.
    let (first, moved) = (summary_with("s2500", "", 0), summary_with("s2500", "elsewhere", 0));
    sessions.apply(&own("s2500"), 0, None, &first).notify();
    sessions.apply(&own("s2500"), 0, Some(&first), &moved).notify();
    assert_eq!(["s0", "s2499", "elsewhere", "s2500"].map(below), [0, 0, 3, 3]);
    assert!(Arc::ptr_eq(&sessions.pending_below(), &sessions.pending_below()), "the sum is computed once");
    let last = summary_with("s5000", "s4999", 3);
    sessions.apply(&run("r5000"), LEVELS, Some(&last), &summary_with("s5000", "s4999", 1)).notify();
    assert_eq!(["elsewhere", "s2500"].map(below), [1, 1]);
    sessions.forget(&run("r5000"), &last).notify();
    assert_eq!(["elsewhere", "s2500"].map(below), [0, 0]);
    assert!(sessions.inner.read().with_pending.is_empty() && sessions.inner.read().children_with_pending.is_empty());
}

#[test]
fn a_commit_costs_the_same_in_a_session_with_many_runs() {
    const RUNS: u64 = 20_000;
    let time_of = |runs: u64| {
        let sessions = Sessions::default();
        let summary = with_news(summary_with("s", "", 1), "2026-01-01T00:00:00.000Z");
        for n in 1..=runs {
            sessions.apply(&run(&format!("r{n}")), n, None, &summary).notify();
        }
        let mut now = summary.clone();
        now.run.pending.insert("more");
        let once = || {
            let begun = tokio::time::Instant::now();
            for _ in 0..1000 {
                sessions.apply(&run("r1"), 1, Some(&summary), &now).notify();
            }
            begun.elapsed()
        };
        (0..5).map(|_| once()).min().unwrap()
    };
    let (few, many) = (time_of(1), time_of(RUNS));
    // Reading each run would take thousands of times as long. The factor leaves room for a busy machine.
    assert!(many < few * 200, "{many:?} with {RUNS} runs, {few:?} with one");
}

#[test]
fn a_new_log_notifies_a_bounded_number_of_ancestors() {
    let sessions = Sessions::default();
    let levels = ANCESTORS_MAX as u64 + 50;
    for level in 1..=levels {
        sessions
            .apply(&run(&format!("r{level}")), level, None, &summary_of(&format!("s{level}"), &format!("s{}", level - 1)))
            .notify();
    }
    let (near, far) = (sessions.watch(&id("s60")), sessions.watch(&id("s10")));
    sessions.apply(&run("new"), levels + 1, None, &summary_of(&format!("s{levels}"), "")).notify();
    assert_eq!((near.has_changed(), far.has_changed()), (true, false));
}

#[test]
fn the_status_of_a_session_follows_all_of_its_logs() {
    let sessions = Sessions::default();
    let summary_at = |status, time: &str| {
        let mut summary = with_news(summary_of("s", ""), time);
        summary.run.status = status;
        summary
    };
    let overview = || sessions.overview(&id("s"), Audience::User).unwrap();
    let time = || overview().last_activity.map(|time| format!("{time:.3}")).unwrap();
    let (old, new) =
        (summary_at(Status::Running, "2026-01-01T00:00:00.001Z"), summary_at(Status::Completed, "2026-01-02T00:00:00.500Z"));
    sessions.apply(&run("old"), 1, None, &old).notify();
    for n in 2..100 {
        sessions.apply(&run(&format!("r{n}")), n, None, &new).notify();
    }
    assert_eq!((overview().status, overview().runs, time()), (Status::Running, 99, "2026-01-02T00:00:00.500Z".into()));
    let mut waiting = summary_at(Status::Waiting, "2026-01-03T00:00:00.000Z");
    waiting.run.pending.insert("a");
    waiting.preview.set_title("Oldest");
    sessions.apply(&run("old"), 1, Some(&old), &waiting).notify();
    assert_eq!(
        (overview().status, overview().pending, overview().preview_sources[0]),
        (Status::Waiting, 1, Some((LogKind::Run, 1)))
    );
    let mut titled = new.clone();
    titled.preview.set_title("Newer");
    sessions.apply(&run("r50"), 50, Some(&new), &titled).notify();
    assert_eq!(overview().preview_sources[0], Some((LogKind::Run, 50)));
    sessions.apply(&own("s"), 100, None, &titled).notify();
    assert_eq!(overview().preview_sources[0], Some((LogKind::Session, 100)));
    sessions.forget(&own("s"), &titled).notify();
    sessions.forget(&run("r50"), &titled).notify();
    assert_eq!((overview().preview_sources[0], time()), (Some((LogKind::Run, 1)), "2026-01-03T00:00:00.000Z".into()));
    sessions.forget(&run("old"), &waiting).notify();
    assert_eq!((overview().status, overview().pending, overview().preview_sources[0]), (Status::Completed, 0, None));
    assert_eq!(time(), "2026-01-02T00:00:00.500Z");
    let inner = sessions.inner.read();
    let session = &inner.sessions[&id("s")];
    let totals = session.totals();
    assert!(session.totals.is_some(), "a session of several runs keeps its sums");
    assert_eq!(*totals, session.sum(), "and they equal those of its logs");
    assert_eq!((totals.urgent, totals.actions.pending, totals.stale), ([[0; 3]; 3], [0; 3], [0; 3]));
}

#[test]
fn a_watcher_of_a_session_is_notified_of_changes_to_it_and_below_it() {
    let sessions = Sessions::default();
    let above = sessions.watch(&id("above"));
    let other = sessions.watch(&id("other"));
    let was_notified = |what: &str| {
        assert!(!other.has_changed(), "{what} concerns another session");
        let is_notified = above.has_changed();
        above.mark_unchanged();
        is_notified
    };
    sessions.apply(&run("a"), 1, None, &summary_of("s", "")).notify();
    assert!(!was_notified("a session without a parent"));
    sessions.apply(&run("b"), 2, None, &summary_of("s", "above")).notify();
    assert!(was_notified("a child"));
    sessions.apply(&run("c"), 3, None, &summary_of("deep", "s")).notify();
    assert!(was_notified("a child's child"));
    sessions.forget(&run("c"), &summary_of("deep", "s")).notify();
    assert!(was_notified("the erasure of a grandchild"));
    sessions.apply(&run("b"), 2, Some(&summary_of("s", "above")), &summary_of("t", "")).notify();
    assert!(was_notified("a child that moves away"));
    sessions.apply(&run("d"), 4, None, &summary_of("s", "")).notify();
    assert!(!was_notified("a former child"));
    sessions.apply(&own("other"), 5, None, &summary_of("", "")).notify();
    assert!(other.has_changed());
    other.mark_unchanged();
    drop(above);
    sessions.sweep();
    assert_eq!(sessions.inner.read().watchers.len(), 1);
}

#[tokio::test]
async fn the_index_read_from_a_store_equals_the_index_kept_while_writing() {
    let store = in_memory();
    let kept = Sessions::default();
    for n in 0..3000_u64 {
        let log = if n % 50 == 7 { own(&format!("s{}", n % 90)) } else { run(&format!("r{n}")) };
        let parent = if n % 4 == 1 { format!("s{}", n % 7) } else { String::new() };
        let mut summary = match n % 3 {
            0 => summary_of("", ""),
            _ => summary_of(&format!("s{}", n % 90), &parent),
        };
        summary.run.pending.extend((0..n % 5).map(|n| n.to_string()));
        summary = with_news(summary, &format!("2026-01-01T00:{:02}:{:02}.000Z", n / 60, n % 60));
        summary.agent = AgentId::new(&format!("a{}", n % 20)).ok();
        summary.extension.created_by = (n % 11 == 1 && n % 50 != 7).then(|| format!("person {}", n % 13).into());
        summary.extension.archived = n % 4 == 3;
        let expected = Sequence::NONE;
        let meta = Bytes::from(serde_json::to_vec(&summary).unwrap());
        let state = vec![(Bytes::from_static(META), Some(meta))];
        let (epoch, rows) = (Epoch::from_random(1), Bytes::new());
        let append = Append { log: log.clone(), epoch, expected, last: expected, rows, blobs: Vec::new(), state };
        let outcomes = store.commit(&[append]).unwrap();
        let crate::log::AppendOutcome::Committed { created, .. } = outcomes[0] else { panic!("{outcomes:?}") };
        kept.apply(&log, created, None, &summary).notify();
    }
    let read = Sessions::load(&*store, |_, _, _| {}).unwrap();
    let all = list(&kept, None, usize::MAX);
    assert!(all.len() > 50);
    assert_eq!(list(&read, None, usize::MAX), all);
    let sorts = [SessionSort::Created].into_iter().chain(Audience::ALL.map(SessionSort::Updated));
    for (sort, archived) in sorts.flat_map(|sort| [None, Some(false), Some(true)].map(|archived| (sort, archived))) {
        let [kept, read] = [&kept, &read].map(|index| index.list(sort, archived, None, usize::MAX));
        assert_eq!(kept, read, "{sort:?} {archived:?}");
        assert!(!kept.is_empty() && kept.is_sorted_by(|a, b| a > b), "{sort:?} {archived:?}");
    }
    for n in 0..13 {
        assert_eq!(read.created_by(&format!("person {n}")), kept.created_by(&format!("person {n}")));
    }
    for (_, session) in &all {
        assert_eq!(read.runs_of(session), kept.runs_of(session), "{session}");
        assert_eq!(read.parent_of(session), kept.parent_of(session), "{session}");
        assert_eq!(read.children_of(session), kept.children_of(session), "{session}");
        assert_eq!(read.has_own_log(session), kept.has_own_log(session), "{session}");
        let overview =
            |of: &Sessions| of.overview(session, Audience::User).map(|overview| SessionOverview { version: 0, ..overview });
        assert_eq!(overview(&read), overview(&kept), "{session}");
        assert_eq!(
            read.pending_below().of(session, Audience::User),
            kept.pending_below().of(session, Audience::User),
            "{session}"
        );
    }
}

#[test]
fn sessions_are_listed_by_what_each_audience_last_saw_and_archived_ones_apart() {
    let sessions = Sessions::default();
    let time = |second: u32| format!("2026-01-01T00:00:{second:02}.000Z");
    let summaries: Vec<_> = ["a", "b", "c"].map(|session| with_news(summary_of(session, ""), &time(1))).into();
    for (n, summary) in (1..).zip(&summaries) {
        sessions.apply(&run(&format!("r{n}")), n, None, summary).notify();
    }
    let listed = |audience, archived| {
        let listed = sessions.list(SessionSort::Updated(audience), archived, None, 9).into_iter();
        names(listed.map(|(_, session)| session)).join(" ")
    };
    assert_eq!(listed(Audience::User, None), "c b a");
    // A later envelope of `a` that only internal readers see.
    let mut hidden = summaries[0].clone();
    (hidden.last_sequence, hidden.seen_last[2]) = (Sequence(2), Sequence(2));
    hidden.note_news([None, None, Some(Sequence(2))], [Sequence(1); 3], Sequence(1), 1_767_225_602_000);
    hidden.last_activity = Some(time(2).into());
    sessions.apply(&run("r1"), 1, Some(&summaries[0]), &hidden).notify();
    assert_eq!((listed(Audience::User, None), listed(Audience::Internal, None)), ("c b a".into(), "a c b".into()));
    let shown = with_news(summaries[1].clone(), &time(3));
    sessions.apply(&run("r2"), 2, Some(&summaries[1]), &shown).notify();
    assert_eq!((listed(Audience::User, None), listed(Audience::Internal, None)), ("b c a".into(), "b a c".into()));
    let mut archive = summary_of("", "");
    archive.extension.archived = true;
    sessions.apply(&own("b"), 4, None, &archive).notify();
    assert_eq!((listed(Audience::User, Some(false)), listed(Audience::User, Some(true))), ("c a".into(), "b".into()));
    let before = sessions.list(SessionSort::Updated(Audience::User), None, None, 2).pop().map(|(place, _)| place);
    let rest = sessions.list(SessionSort::Updated(Audience::User), None, before, 9).into_iter().map(|(_, session)| session);
    assert_eq!(names(rest), ["a"]);
    sessions.forget(&own("b"), &archive).notify();
    assert_eq!(listed(Audience::User, Some(false)), "b c a", "with its own log, a session loses what a person did");
}

#[test]
fn the_session_of_a_log_from_an_earlier_version_shows_no_time_of_a_hidden_envelope() {
    let sessions = Sessions::default();
    let mut summary = with_news(summary_of("s", ""), "2026-01-01T00:00:09.000Z");
    (summary.last_sequence, summary.seen_last) = (Sequence(4), [Sequence(3), Sequence(3), Sequence(4)]);
    summary.started_at = Some("2026-01-01T00:00:01.000Z".into());
    sessions.apply(&run("r"), 1, None, &summary).notify();
    let at = |audience| sessions.overview(&id("s"), audience).unwrap().last_activity.unwrap().as_second() % 60;
    assert_eq!(Audience::ALL.map(at), [1, 1, 9]);
}
