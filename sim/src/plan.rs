//! What a seed means: the runs, producers and readers of a simulation, and its schedule.

use crate::chance::Chance;
use crate::dialects::{Address, DialectPlan};
use crate::disk::{Crash, Point};
use serde_json::{Value, json};
use std::fmt;

/// The audiences, narrowest first.
pub const AUDIENCES: [&str; 3] = ["user", "dashboard", "internal"];
/// The time at which every simulation begins, in milliseconds since 1970.
pub const BEGIN_MS: i64 = 1_767_225_600_000;
/// The rules of the server for all questions: what each does, and after how many milliseconds.
pub const STEPS: [(&str, i64); 2] = [("remind", 2000), ("escalate", 5000)];
/// The size of a body: more than a fact may have.
const BODY_BYTES: usize = 300_000;
/// The time after which the server decides a question with a stated risk, in milliseconds.
pub const DECIDED_AFTER_MS: i64 = 8000;

/// What takes part in a simulation.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub producers: Vec<ProducerPlan>,
    pub readers: Vec<ReaderPlan>,
    /// Clients of dialects, which read all the time.
    pub clients: Vec<DialectPlan>,
    pub questions: Vec<QuestionPlan>,
    pub runs: usize,
    /// The first of the runs that end while the node still fails: nothing of them waits.
    pub quick_from: usize,
    /// Whether each request has a token.
    pub has_tokens: bool,
    pub upkeep: Upkeep,
    /// The feed's ring, in bytes, and its tick, in milliseconds.
    pub ring_bytes: u64,
    pub tick_ms: u64,
}

/// What the node does with runs that have ended.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep {
    pub compacts: bool,
    pub archives: bool,
    /// Whether a rule of retention erases everything in the end.
    pub retains: bool,
}

/// A producer of one run.
#[derive(Debug, Clone)]
pub struct ProducerPlan {
    pub run: usize,
    pub name: String,
    /// Whether it numbers its facts, and so repeats what got no answer.
    pub is_numbered: bool,
    pub facts: Vec<FactPlan>,
}

impl ProducerPlan {
    /// Whether its facts come after the end of its run.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.name.rsplit_once('.').is_some_and(|(_, part)| part == "late")
    }
}

/// A fact of a producer's script.
#[derive(Debug, Clone)]
pub struct FactPlan {
    /// A text that is in no other fact.
    pub token: String,
    /// The index of its audience.
    pub audience: usize,
    pub fact: Value,
}

/// A question of a run, which people decide.
#[derive(Debug, Clone)]
pub struct QuestionPlan {
    pub run: usize,
    pub action: String,
    /// The token of the fact that asks.
    pub token: String,
    pub wait: Wait,
}

/// How a question ends that no person decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// With its run.
    Run,
    /// A rule decides it.
    Rule { approves: bool },
    /// Its deadline passes, this time after the beginning. The server may have to reject it then.
    Deadline { ms: i64, rejects: bool },
    /// With its run; two people have to approve it.
    People,
}

/// A reader.
#[derive(Debug, Clone)]
pub struct ReaderPlan {
    /// The run; `None`: the session of all runs.
    pub run: Option<usize>,
    pub is_events: bool,
    pub audience: usize,
    pub is_socket: bool,
}

/// A step of a schedule. Any of them may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A producer sends further facts, in bodies of up to `burst`.
    Send { producer: usize, facts: usize, burst: usize },
    /// A producer that numbers its facts forgets the number, and asks.
    Restart { producer: usize },
    /// A reader connects.
    Open { reader: usize },
    /// A reader's connection ends.
    Cut { reader: usize },
    /// A reader stops reading for a while.
    Stall { reader: usize, ms: u64 },
    /// Each connection from now on ends after about so many bytes; 0: none does.
    CutAfter { bytes: u64 },
    /// A person decides a question.
    Decide { question: usize, person: usize, approves: bool },
    /// The worker returns, drops or answers late what it claims from now on.
    Worker { mood: u64 },
    /// Pages and an export of a run are read and compared.
    Look { run: usize, audience: usize },
    /// A run is erased.
    Erase { run: usize },
    /// The wall clock is set.
    Clock { ms: i64 },
    /// Writes and syncs take up to this time.
    Slow { ms: u64 },
    /// The next append fails.
    Fail { point: Point },
    /// The object storage fails for a while.
    Storage { ms: u64 },
    /// The disk is full for a while.
    Full { ms: u64 },
    /// The node ends, now or within its next append.
    Crash { at: Option<Point>, how: Crash },
    /// The node stops as its operator stops it.
    Stop,
}

/// A step, and when it comes, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    pub at: u64,
    pub step: Step,
}

impl fmt::Display for Timed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:>6} ms  {:?}", self.at, self.step)
    }
}

/// The name of a run.
#[must_use]
pub fn run_name(run: usize) -> String {
    format!("r{run}")
}

/// The plan and the schedule of a seed.
#[must_use]
pub fn of_seed(seed: u64) -> (Plan, Vec<Timed>) {
    let mut chance = Chance::new(seed, 1);
    let waiting = chance.in_range(1..4) as usize;
    let has_tokens = chance.once_in(2);
    let compacts = Chance::new(seed, 6).once_in(3);
    let (mut producers, mut questions) = (Vec::new(), Vec::new());
    for run in 0..waiting {
        let mut main = main_producer(&mut chance, run, has_tokens, &mut questions);
        if compacts {
            add_whole_texts(&mut main);
        }
        producers.push(main);
        if chance.once_in(2) {
            let name = format!("r{run}.side");
            let count = chance.in_range(2..12);
            let facts = (0..count).map(|n| text(&mut chance, &name, n)).collect();
            producers.push(ProducerPlan { run, name, is_numbered: chance.once_in(2), facts });
        }
    }
    let readers = (0..chance.in_range(2..6)).map(|_| ReaderPlan {
        run: (!chance.once_in(4)).then(|| chance.in_range(0..waiting as u64) as usize),
        is_events: chance.once_in(2),
        audience: chance.in_range(0..3) as usize,
        is_socket: chance.once_in(3),
    });
    let mut readers: Vec<_> = readers.collect();
    let (archives, mut chance_of_quick) = (Chance::new(seed, 8).once_in(3), Chance::new(seed, 9));
    let runs = waiting + chance_of_quick.in_range(0..3) as usize;
    for run in waiting..runs {
        let chance = &mut chance_of_quick;
        let mut main = quick_producer(chance, run, archives);
        if compacts {
            add_whole_texts(&mut main);
        }
        producers.push(main);
        if compacts || archives {
            let name = format!("r{run}.late");
            let facts = (0..chance.in_range(0..40)).map(|n| text(chance, &name, n)).collect();
            producers.push(ProducerPlan { run, name, is_numbered: true, facts });
        }
        let (is_events, audience, is_socket) = (chance.once_in(2), chance.in_range(0..3) as usize, chance.once_in(3));
        readers.push(ReaderPlan { run: Some(run), is_events, audience, is_socket });
    }
    let ring_bytes = *chance.pick(&[1 << 10, 4 << 10, 256 << 10]);
    let tick_ms = *chance.pick(&[0, 1, 8, 50]);
    // A stream of a dialect ends with its run: a client has what comes late if it was cut before, and not otherwise.
    let clients = clients(&mut Chance::new(seed, 5), if compacts || archives { waiting } else { runs } as u64);
    let quick_from = waiting;
    let plan = Plan {
        seed,
        producers,
        readers,
        clients,
        questions,
        runs,
        quick_from,
        has_tokens,
        upkeep: Upkeep { compacts, archives, retains: false },
        ring_bytes,
        tick_ms,
    };
    let mut steps = schedule(&mut chance, &plan);
    // What was on its way when a run was erased may begin it again. Then it never ends, and no rule is about it.
    let has_erasure = steps.iter().any(|step| matches!(step.step, Step::Erase { .. }));
    let retains = Chance::new(seed, 12).once_in(4) && !has_erasure;
    let plan = Plan { upkeep: Upkeep { retains, ..plan.upkeep }, ..plan };
    if archives {
        let last = steps.last().map_or(0, |step| step.at);
        for _ in 0..chance_of_quick.in_range(0..4) {
            let (at, ms) = (chance_of_quick.in_range(0..last + 1), chance_of_quick.in_range(1..4000));
            steps.push(Timed { at, step: Step::Storage { ms } });
        }
        steps.sort_by_key(|step| step.at);
    }
    (plan, steps)
}

fn clients(chance: &mut Chance, runs: u64) -> Vec<DialectPlan> {
    let clients = (0..chance.in_range(0..3)).map(|_| DialectPlan {
        run: chance.in_range(0..runs) as usize,
        audience: chance.in_range(0..3) as usize,
        address: *chance.pick(&Address::ALL),
    });
    clients.collect()
}

/// A text for readers of one audience, in a message of that audience.
fn text(chance: &mut Chance, name: &str, n: u64) -> FactPlan {
    let audience = chance.in_range(0..3) as usize;
    let token = format!("<{name}.{n}>");
    let words = "word ".repeat(chance.in_range(0..20) as usize);
    let fact = json!({"type": "text.delta", "messageId": format!("{name}-{}", AUDIENCES[audience]),
        "audience": AUDIENCES[audience], "payload": {"text": format!("{token} {words}")}});
    FactPlan { token, audience, fact }
}

/// The producer that begins and ends a run.
fn main_producer(chance: &mut Chance, run: usize, has_tokens: bool, questions: &mut Vec<QuestionPlan>) -> ProducerPlan {
    let name = format!("r{run}.main");
    let plain = |n, audience, fact| noted(&name, n, audience, fact);
    let mut facts = vec![plain(0, 0, json!({"type": "run.started"}))];
    for n in 1..chance.in_range(4..20) {
        let call = format!("r{run}-c{n}");
        facts.push(match chance.in_range(0..8) {
            0 => {
                let (question, payload) = question(chance, run, n, has_tokens);
                let fact = json!({"type": "action.required", "actionId": question.action, "payload": payload});
                questions.push(question);
                plain(n, 0, fact)
            }
            1 => plain(
                n,
                0,
                json!({"type": "tool.started", "toolCallId": call, "payload": {"toolName": "search", "input": {"n": n}}}),
            ),
            2 => plain(n, 2, json!({"type": "diagnostic.note", "payload": {"n": n}})),
            _ => text(chance, &name, n),
        });
    }
    let n = facts.len() as u64;
    facts.push(plain(n, 0, json!({"type": "run.finished"})));
    ProducerPlan { run, name, is_numbered: true, facts }
}

/// The producer of a run that nothing waits for. `has_body`: half of them have a body.
fn quick_producer(chance: &mut Chance, run: usize, has_body: bool) -> ProducerPlan {
    let name = format!("r{run}.main");
    let mut facts = vec![noted(&name, 0, 0, json!({"type": "run.started"}))];
    for n in 1..chance.in_range(3..10) {
        facts.push(match chance.in_range(0..6) {
            0 => noted(&name, n, 2, json!({"type": "diagnostic.note", "payload": {"n": n}})),
            _ => text(chance, &name, n),
        });
    }
    let n = facts.len() as u64;
    if has_body && chance.once_in(2) {
        let payload = json!({"toolName": "dig", "result": body()});
        facts.push(noted(&name, n, 0, json!({"type": "tool.finished", "toolCallId": format!("r{run}-dig"), "payload": payload})));
    }
    let n = facts.len() as u64;
    facts.push(noted(&name, n, 0, json!({"type": "run.finished"})));
    ProducerPlan { run, name, is_numbered: true, facts }
}

/// A text that the server offloads.
#[must_use]
pub fn body() -> String {
    "word ".repeat(BODY_BYTES / 5)
}

/// A fact with its token in a note.
fn noted(name: &str, n: u64, audience: usize, mut fact: Value) -> FactPlan {
    let token = format!("<{name}.{n}>");
    fact["payload"]["note"] = json!(token);
    fact["audience"] = json!(AUDIENCES[audience]);
    FactPlan { token, audience, fact }
}

/// Repeats the whole text of each message at its end, so that a compaction may remove its chunks.
fn add_whole_texts(producer: &mut ProducerPlan) {
    for (audience, audience_name) in AUDIENCES.iter().enumerate() {
        let message = format!("{}-{audience_name}", producer.name);
        let chunks = producer.facts.iter().filter(|one| one.fact["messageId"] == message.as_str());
        let text: String = chunks.filter_map(|one| one.fact["payload"]["text"].as_str()).collect();
        if !text.is_empty() {
            let token = format!("<{}.whole{audience}>", producer.name);
            let fact = json!({"type": "text.final", "messageId": message, "audience": audience_name,
                "payload": {"text": text, "note": token}});
            let end = producer.facts.len() - 1;
            producer.facts.insert(end, FactPlan { token, audience, fact });
        }
    }
}

/// A question, and the payload of the fact that asks it.
fn question(chance: &mut Chance, run: usize, n: u64, has_tokens: bool) -> (QuestionPlan, Value) {
    let mut payload = json!({"kind": "tool_approval", "title": format!("May I do {n}?")});
    let wait = match chance.in_range(0..6) {
        0 | 1 => Wait::Rule { approves: chance.once_in(2) },
        2 => Wait::Deadline { ms: chance.in_range(1000..30_000).cast_signed(), rejects: chance.once_in(3) },
        3 if has_tokens => Wait::People,
        _ => Wait::Run,
    };
    match wait {
        Wait::Rule { approves } => payload["risk"] = if approves { "low" } else { "high" }.into(),
        Wait::Deadline { ms, rejects } => {
            payload["expiresAt"] = (BEGIN_MS + ms).into();
            payload["onExpiry"] = if rejects { "reject".into() } else { Value::Null };
        }
        Wait::People => payload["approvals"] = 2.into(),
        Wait::Run => {}
    }
    (QuestionPlan { run, action: format!("r{run}-q{n}"), token: format!("<r{run}.main.{n}>"), wait }, payload)
}

/// The server's rules for questions, as its configuration has them.
#[must_use]
pub fn wait_rules() -> Value {
    let seconds = |ms: i64| format!("{}s", ms / 1000);
    let [remind, escalate] = STEPS.map(|(then, ms)| json!({"name": then, "then": then, "after": seconds(ms)}));
    let (mut rules, after) = (vec![remind, escalate], seconds(DECIDED_AFTER_MS));
    rules[1]["to"] = "pager".into();
    rules.push(json!({"name": "approve", "risk": "low", "after": after, "then": "approve", "allow-approve": true}));
    rules.push(json!({"name": "reject", "risk": "high", "after": after, "then": "reject"}));
    rules.into()
}

fn schedule(chance: &mut Chance, plan: &Plan) -> Vec<Timed> {
    let (mut steps, mut at) = (Vec::new(), 0);
    let (producers, readers) = (plan.producers.len() as u64, plan.readers.len() as u64);
    let has_erasure = chance.once_in(4);
    for _ in 0..chance.in_range(20..70) {
        at += if chance.once_in(8) { chance.in_range(0..3000) } else { chance.in_range(0..60) };
        let producer = chance.in_range(0..producers) as usize;
        let reader = chance.in_range(0..readers) as usize;
        let run = chance.in_range(0..plan.runs as u64) as usize;
        let point = *chance.pick(&[Point::Before, Point::Written, Point::Synced]);
        let step = match chance.in_range(0..40) {
            0..12 => Step::Send { producer, facts: chance.in_range(1..6) as usize, burst: chance.in_range(1..5) as usize },
            12..17 => Step::Open { reader },
            17..19 => Step::Cut { reader },
            19..21 => Step::Stall { reader, ms: chance.in_range(1..2000) },
            21..22 => Step::CutAfter { bytes: if chance.once_in(2) { chance.in_range(50..4000) } else { 0 } },
            22..27 if !plan.questions.is_empty() => {
                let question = chance.in_range(0..plan.questions.len() as u64) as usize;
                let approves = chance.once_in(2) || plan.questions[question].wait == Wait::People && !chance.once_in(4);
                Step::Decide { question, person: chance.in_range(0..3) as usize, approves }
            }
            27..29 => Step::Worker { mood: chance.in_range(0..5) },
            29..31 => Step::Look { run, audience: chance.in_range(0..3) as usize },
            31 if has_erasure => Step::Erase { run },
            32 => Step::Clock { ms: chance.in_range(0..200_000).cast_signed() - 100_000 },
            33 => Step::Slow { ms: *chance.pick(&[1, 10, 200, 1500]) },
            34 => Step::Fail { point },
            35 => Step::Full { ms: chance.in_range(1..2000) },
            36 => Step::Stop,
            37..39 => {
                let how = if chance.once_in(2) { Crash::Power } else { Crash::Process };
                Step::Crash { at: chance.once_in(2).then_some(point), how }
            }
            _ => Step::Restart { producer },
        };
        steps.push(Timed { at, step });
    }
    steps
}
