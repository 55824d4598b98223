//! Audiences and restores: each audience sees its own text, also when a restart interrupts it.

use super::*;
use crate::stream::PARTS_MAX;
use proptest::collection::vec;
use proptest::sample::select;
use proscenium_model::Visibility;
use proscenium_sources::ledger::Ledger;

/// One step of a run whose call and message change their audience.
#[derive(Debug, Clone)]
enum Step {
    /// The call starts or restarts.
    Start(Audience),
    Result,
    /// A chunk of the call's output.
    Output(&'static str, Audience),
    /// A chunk of a message's text, in one of two parts.
    Text(&'static str, Audience, bool),
    Final,
}

impl Step {
    fn draft(&self) -> Draft {
        match self {
            Self::Start(audience) => of_call(EventType::ToolStarted).with_audience(*audience),
            Self::Result => of_call(EventType::ToolResult),
            Self::Output(text, audience) => of_call(EventType::ToolOutputDelta).with("text", *text).with_audience(*audience),
            Self::Text(text, audience, second) => {
                chunk(text).with_audience(*audience).with_part(PartId::new(if *second { "p2" } else { "p1" }).unwrap())
            }
            Self::Final => Draft::new(EventType::TextFinal).with_message(MessageId::new("m").unwrap()),
        }
    }
}

/// The streamed texts that each audience sees, by stream.
type VisibleTexts = [std::collections::BTreeMap<String, String>; 3];

fn see(visibilities: &mut VisibleTexts, draft: &Draft) {
    let (EventType::ToolOutputDelta | EventType::TextDelta) = draft.event_type else { return };
    let envelope = proscenium_model::Envelope {
        sequence: proscenium_model::Sequence(1),
        event_id: uuid::Uuid::nil(),
        received_at: "",
        draft: Cow::Borrowed(draft),
    };
    let stream = draft.ids.part.as_ref().map_or("output", PartId::as_str);
    for reader in Audience::ALL {
        if reader.visibility(&envelope) == Visibility::Body {
            visibilities[reader.index()].entry(stream.into()).or_default().push_str(draft.text("text").unwrap());
        }
    }
}

/// The texts that each audience would see unguarded and sees guarded, and if a restore lost one.
fn play(steps: &[Step], restores: &[bool]) -> (VisibleTexts, VisibleTexts, bool) {
    let (mut before, mut after) = (VisibleTexts::default(), VisibleTexts::default());
    let (mut ledger, mut harness, mut gave_up) = (Ledger::default(), Harness::new(), false);
    for (i, step) in steps.iter().enumerate() {
        let mut draft = step.draft();
        ledger.record(&mut draft, 0);
        see(&mut before, &draft);
        harness.pass(draft);
        if !restores.is_empty() && restores[i % restores.len()] {
            gave_up |= saved(&harness.guard).to_string().contains("\"owesMark\":true");
            harness.crash();
        }
    }
    harness.pass(Draft::new(EventType::RunFinished));
    assert!(harness.guard.is_idle() && harness.guard.holding == 0);
    harness.out.iter().for_each(|guarded| see(&mut after, guarded.draft()));
    for visibilities in [&mut before, &mut after] {
        for streams in visibilities.iter_mut() {
            streams.retain(|_, text| !text.is_empty());
        }
    }
    (before, after, gave_up)
}

/// Whether each audience sees, beside marks, only letters that were meant for it, in their order.
fn has_only_meant_text(meant: &VisibleTexts, seen: &VisibleTexts) -> bool {
    meant.iter().zip(seen).all(|(meant, seen)| {
        seen.iter().all(|(stream, text)| {
            let mut letters = meant.get(stream).map_or("", String::as_str).chars();
            text.replace(REDACTED, "").chars().all(|c| letters.any(|meant| meant == c))
        })
    })
}

/// Steps of one run.
///
/// Each for itself, and a call that starts again for other audiences while a tail of its output is held.
fn steps(pieces: &'static [&'static str], count: usize) -> impl Strategy<Value = Vec<Step>> {
    let audience = || select(&Audience::ALL[..]);
    let step = prop_oneof![
        3 => audience().prop_map(Step::Start),
        2 => Just(Step::Result),
        6 => (select(pieces), audience()).prop_map(|(text, audience)| Step::Output(text, audience)),
        4 => (select(pieces), audience(), any::<bool>()).prop_map(|(text, audience, second)| Step::Text(text, audience, second)),
        1 => Just(Step::Final),
    ];
    let starts_again = (audience(), select(pieces), audience(), select(pieces)).prop_map(|(second, held, third, next)| {
        let before = [Step::Start(Audience::User), Step::Result, Step::Start(second), Step::Output(held, Audience::User)];
        before.into_iter().chain([Step::Start(third), Step::Output(next, Audience::User)]).collect()
    });
    vec(prop_oneof![12 => step.prop_map(|step| vec![step]), 1 => starts_again], 1..count).prop_map(|parts| parts.concat())
}

/// Beginnings of secrets that never become one, and their ends.
#[rustfmt::skip]
const BENIGN: &[&str] = &[
    "http://loc", "alhost:", ":", "/", ":30", "sk-", "s", "learn,", " ", " Bea", "rer ", "xo", "\n---", "ta", "\"pass",
    "word", "é",
];

/// Beginnings of secrets, with their continuations.
#[rustfmt::skip]
const MIXED: &[&str] = &[
    "http://us", "er:", "hunter2", "@h/", "sk-", "live-", "abcdef0123456789", "k", "ta", " ", "Bearer ",
    "\"password\":\"", "\"", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "3000/", "learn",
];

proptest! {
    #![proptest_config(many())]

    #[test]
    fn each_audience_sees_exactly_its_text_with_restores_at_any_time(
        steps in steps(BENIGN, 14),
        restores in vec(prop::bool::weighted(0.5), 0..9),
    ) {
        let (before, after, gave_up) = play(&steps, &restores);
        if gave_up {
            // A risky tail reads as the mark after a restore, and the rest of its token is dropped.
            prop_assert!(has_only_meant_text(&before, &after), "{after:?} is not part of {before:?}");
        } else {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn each_audience_sees_the_same_with_and_without_restores(
        steps in steps(MIXED, 30),
        restores in vec(prop::bool::weighted(0.5), 1..9),
    ) {
        let (meant, with, gave_up) = play(&steps, &restores);
        let (_, without, _) = play(&steps, &[]);
        for seen in [&with, &without] {
            prop_assert!(has_only_meant_text(&meant, seen), "{seen:?} is not of {meant:?}");
        }
        if !gave_up {
            prop_assert_eq!(with, without);
        }
    }

    #[test]
    fn a_guard_that_has_not_changed_saves_what_it_saved_before(
        steps in vec(prop_oneof![steps(BENIGN, 14), steps(MIXED, 30)], 1..3),
        starts in any::<bool>(),
    ) {
        let (mut ledger, mut harness) = (Ledger::default(), Harness::new());
        let mut before = saved(&harness.guard);
        let start = starts.then(|| Draft::new(EventType::RunStarted));
        for mut draft in steps.concat().iter().map(Step::draft).chain(start) {
            ledger.record(&mut draft, 0);
            harness.pass(draft);
            let now = saved(&harness.guard);
            prop_assert!(harness.guard.take_changed() || now == before, "it saves {} after {}", now, before);
            before = now;
        }
    }
}

#[test]
fn the_next_chunk_of_a_word_changes_nothing_that_is_saved() {
    let mut harness = Harness::new();
    harness.pass(chunk("Some wo"));
    assert!(harness.guard.take_changed());
    harness.pass(chunk("rdswithoutanend"));
    assert!(!harness.guard.take_changed());
    harness.pass(chunk(" sk-"));
    assert!(harness.guard.take_changed());
}

fn output(text: &str) -> Draft {
    Step::Output("", Audience::User).draft().with("text", text)
}

/// A call that users saw restarts hidden from them; then a held tail of output claims to be for users.
fn hidden_tail() -> (Ledger, Harness) {
    let (mut ledger, mut harness) = (Ledger::default(), Harness::new());
    let before = [Step::Start(Audience::User), Step::Result, Step::Start(Audience::Internal)];
    for mut draft in before.iter().map(Step::draft).chain([output("https://internal-host")]) {
        ledger.record(&mut draft, 0);
        harness.pass(draft);
    }
    (ledger, harness)
}

#[test]
fn a_tail_hidden_from_users_stays_hidden_after_a_restore() {
    let finished = Draft::new(EventType::RunFinished);
    let again = Step::Start(Audience::User).draft();
    for (restores, ends) in [
        (true, vec![Step::Result.draft()]),
        (true, vec![finished.clone()]),
        (false, vec![again.clone(), output(" and on"), finished.clone()]),
        (true, vec![again.clone(), output(" and on"), finished.clone()]),
        (false, vec![again.clone(), output("-more"), output(" and on"), finished.clone()]),
        (true, vec![again, output("-more"), output(" and on"), finished]),
    ] {
        let (mut ledger, mut harness) = hidden_tail();
        if restores {
            harness.crash();
        }
        for mut draft in ends {
            ledger.record(&mut draft, 0);
            harness.pass(draft);
        }
        let mut seen = VisibleTexts::default();
        harness.out.iter().for_each(|guarded| see(&mut seen, guarded.draft()));
        let text = |audience: Audience| seen[audience.index()].get("output").cloned().unwrap_or_default();
        assert!(!text(Audience::User).contains("internal"), "{}", text(Audience::User));
        assert!(text(Audience::Internal).starts_with("https://internal-host"), "{}", text(Audience::Internal));
        assert!(text(Audience::Internal).matches("host").count() == 1);
    }
}

#[test]
fn a_tail_of_alternating_audiences_is_decided_beyond_8_parts_each_for_its_own_audience() {
    let play = |count: usize, restores: &[bool]| {
        let audiences = [Audience::User, Audience::Internal];
        let of =
            |i: usize| if i == 0 { Step::Text("http://", audiences[1], false) } else { Step::Text("x", audiences[i % 2], false) };
        play(&(0..count).map(of).collect::<Vec<_>>(), restores)
    };
    for count in [PARTS_MAX - 1, PARTS_MAX, PARTS_MAX + 1, 3 * PARTS_MAX] {
        for restores in [&[][..], &[true]] {
            let (before, after, gave_up) = play(count, restores);
            assert!(!gave_up);
            assert_eq!(before, after);
        }
    }
    let mut harness = Harness::new();
    for i in 0..=PARTS_MAX {
        harness.pass(chunk(if i == 0 { "http://x" } else { "y" }).with_audience(Audience::ALL[i % 2]));
        assert_eq!(harness.guard.streams.values().next().unwrap().held_parts(), if i == PARTS_MAX { 0 } else { i + 1 });
    }
}

#[test]
fn a_tail_saved_by_an_older_version_is_read_and_a_calls_tail_is_internal() {
    let (_, mut harness) = hidden_tail();
    harness.pass(chunk("see sk-"));
    let mut saved = saved(&harness.guard);
    for stream in saved["streams"].as_array_mut().unwrap() {
        let mut tail = stream["held"][0]["draft"].take();
        for member in ["callAudience", "missedBy", "mayBeAbort"] {
            tail.as_object_mut().unwrap().shift_remove(member);
        }
        stream["tail"] = tail;
        stream.as_object_mut().unwrap().shift_remove("held");
    }
    harness.guard = restored(&saved).unwrap();
    harness.out.clear();
    harness.flush();
    assert_eq!(harness.text(), "internal-hostsk-");
    let missed: Vec<_> = harness.out.iter().map(|guarded| guarded.draft().missed_by).collect();
    assert_eq!(missed, [Some(Audience::Dashboard), None]);
}

#[test]
fn a_port_after_a_restart_is_not_a_password() {
    for (before, after) in [
        ("see http://localhost:", "3000/ now"),
        ("see http://localhost:30", "00/ now"),
        ("see http://[::1]:", "3000/ now"),
        ("see http://[fe80::", "1]:3000/ now"),
        ("see http://git@host:22", "/x now"),
    ] {
        let mut harness = Harness::new();
        harness.pass(chunk(before)).crash().crash().pass(chunk(after)).flush();
        assert_eq!(harness.text(), format!("{before}{after}"));
    }
    for (before, after) in [("http://me:1234", "5678@h/"), ("http://me:", "hunter2@h/"), ("http://[", "x:hunter2@h/")] {
        let mut harness = Harness::new();
        harness.pass(chunk(before)).crash().pass(chunk(after)).flush();
        assert_eq!(harness.text(), "http://[redacted]@h/");
    }
}

#[test]
fn a_word_that_a_restart_cuts_stays_one_word() {
    let mut harness = Harness::new();
    harness.pass(chunk("ta")).crash().pass(chunk("sk-0123456789abcdef is a task ")).flush();
    assert_eq!(harness.text(), "task-0123456789abcdef is a task ");
}
