//! One simulation: the lives of a node, one after another, the schedule of faults, and the checks at the end.

use crate::auditor::signing_key;
use crate::chance::Chance;
use crate::client::Answer;
use crate::dialects::{DialectClient, DialectPlan};
use crate::disk::{Crash, FaultyJournal};
use crate::model;
use crate::plan::{AUDIENCES, BEGIN_MS, Plan, ReaderPlan, Step, Timed, body, of_seed, run_name, wait_rules};
use crate::world::{SECRET_FILE, SESSION, World};
use futures_util::stream;
use proscenium::auth::{AuthConfig, Authenticator};
use proscenium::environment::{Environment, sabotage, simulation};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::archive::Archive;
use proscenium::log::commit::Logs;
use proscenium::log::memory::MemoryStore;
use proscenium::object_storage::ObjectStorage;
use proscenium::retention_rules::RetentionRules;
use proscenium::serve::access::origin::Origins;
use proscenium::serve::maintenance::settle::StalenessLimits;
use proscenium::serve::{KeepAlive, Limits, Server};
use proscenium::waits::WaitRules;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

/// The most time that anything takes once the faults have stopped.
const SETTLED_WITHIN: Duration = Duration::from_mins(5);
/// The time within which the node notices what failed before the faults stopped, in milliseconds.
const FAILURES_WITHIN_MS: u64 = 1000;
/// The time within which all rules are done after a question, in milliseconds.
const RULES_WITHIN_MS: u64 = 12_000;
/// A time after the last deadline of a question, in milliseconds.
const LAST_DEADLINE_MS: u64 = 32_000;
/// The time from the last fact of an ended run to its compaction, and to its archiving.
const COMPACTED_AFTER: Duration = Duration::from_secs(1);
const ARCHIVED_AFTER: Duration = Duration::from_secs(2);
/// The time within which both are done.
const MOVED_WITHIN: Duration = Duration::from_secs(8);
/// The time between two looks at what has to come about.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The time from the last activity of the session to its erasure by a rule.
const RETAINED_FOR: Duration = Duration::from_secs(100);
/// How often the node crashes while the rule erases.
const ERASURE_CRASHES_MAX: u64 = 4;
/// How often facts come late.
const LATE_ROUNDS: usize = 5;
/// The time within which an object is deleted that no run names.
const ORPHANS_WITHIN: Duration = Duration::from_mins(2);
/// The most bytes of archived runs on the node's disk: a few runs.
const ARCHIVE_CACHE_BYTES: u64 = 4096;
/// What came of a simulation.
pub struct Outcome {
    /// What contradicts the promises; empty if nothing does.
    pub violations: Vec<String>,
    /// What happened, line by line. Equal seeds have equal traces.
    pub trace: Vec<String>,
    /// The simulated time.
    pub time: Duration,
    pub lives: u64,
    pub requests: u64,
}

/// How a life of the node ended.
enum End {
    Crashed(Crash),
    /// The server ended: a failed disk, or its operator.
    Stopped,
    /// The schedule is over, and everything is checked.
    Checked,
}

/// Simulates a seed, with a planted fault; 0: none.
#[must_use]
pub fn of_seed_with(seed: u64, fault: u32) -> Outcome {
    let (plan, steps) = of_seed(seed);
    simulate(plan, steps, fault)
}

/// Simulates a plan by a schedule.
#[must_use]
pub fn simulate(plan: Plan, steps: Vec<Timed>, fault: u32) -> Outcome {
    sabotage::plant(fault);
    let (seed, world) = (plan.seed, World::new(plan, steps));
    let (mut next, mut lives) = (0, 0);
    loop {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime of one thread can be built");
        let local = LocalSet::new();
        lives += 1;
        let end = local.block_on(&runtime, live(&world, seed ^ (lives << 48), &mut next));
        let now = {
            let _entered = runtime.enter();
            // What the node had in memory ends here, wherever each of its tasks was.
            drop(local);
            *world.node.borrow_mut() = None;
            world.now()
        };
        drop(runtime);
        simulation::end();
        world.begun.set((now, None));
        match end {
            End::Checked => break,
            End::Crashed(how) => world.note(&format!("the node crashed: {how:?}")),
            End::Stopped => world.note("the node stopped"),
        }
        if !world.model.borrow().violations.is_empty() {
            break;
        }
    }
    sabotage::plant(0);
    let time = Duration::from_millis(world.begun.get().0);
    let world = Rc::into_inner(world).expect("the tasks of all nodes have ended");
    Outcome {
        violations: world.model.into_inner().violations,
        trace: world.trace.into_inner(),
        time,
        lives,
        requests: world.requests.get(),
    }
}

/// A life of the node, from its start to its end.
async fn live(world: &Rc<World>, seed: u64, next: &mut usize) -> End {
    let (at, _) = world.begun.get();
    world.begun.set((at, Some(Instant::now())));
    let ms = BEGIN_MS + at.cast_signed() + world.wall_ms.get();
    let wall = jiff::Timestamp::from_millisecond(ms).expect("the time is in range");
    simulation::begin(seed, wall);
    world.disk.recover();
    world.storage.heal();
    let (sender, sockets) = mpsc::unbounded_channel();
    let server = match server(world) {
        Ok(server) => server,
        Err(error) => {
            world.violation(format!("the node does not start: {error}"));
            return End::Checked;
        }
    };
    *world.node.borrow_mut() = Some(sender);
    let sockets = stream::unfold(sockets, async |mut sockets| Some((sockets.recv().await?, sockets)));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    world.note("the node starts");
    world.start();
    tokio::select! {
        biased;
        how = world.disk.crashed() => End::Crashed(how),
        ended = server.run_on(sockets, async { drop(stopped.await) }) => {
            let is_healed = world.healed_at.get().is_some_and(|at| world.now() > at + FAILURES_WITHIN_MS);
            if is_healed && stop.is_some() {
                world.violation(format!("the node stopped without a fault: {ended:?}"));
                return End::Checked;
            }
            End::Stopped
        },
        () = async {
            follow_schedule(world, next, &mut stop).await;
            world.note("the faults stop");
            world.disk.heal();
            world.storage.heal();
            world.healed_at.set(world.healed_at.get().or(Some(world.now())));
            world.cut_after.set(0);
            if world.active_at.get().is_none() {
                settle(world).await;
            }
            if world.plan.upkeep.retains && world.model.borrow().violations.is_empty() {
                await_retention(world, seed).await;
            }
        } => End::Checked,
    }
}

fn server(world: &World) -> Result<Server, proscenium::log::StoreError> {
    let plan = &world.plan;
    let archive = world.archive_dir.as_ref().map_or_else(Archive::none, |dir| {
        let storage = ObjectStorage::of(world.storage.clone(), "simulated".to_owned());
        Archive::on(storage, dir.path(), ARCHIVE_CACHE_BYTES).expect("a directory of this process can be emptied")
    });
    let logs = Logs::open_with(MemoryStore::new(), Arc::new(FaultyJournal(world.disk.clone())), archive)?;
    let sizes = FeedConfig {
        tick: Duration::from_millis(plan.tick_ms),
        ring_bytes_max: plan.ring_bytes as usize,
        ..FeedConfig::default()
    };
    let (limits, keep_alive) = (Limits::default(), KeepAlive::default());
    let server = Server::on_logs(logs, None, Policy::default(), sizes, limits, keep_alive, Environment::SYSTEM);
    // Producers that stop for the length of a fault are not gone.
    let after = Duration::from_secs(100_000);
    let server = server.with_staleness_limits(StalenessLimits { stale_after: after, settle_after: after });
    let rules = serde_json::from_value(wait_rules()).expect("the rules have their form");
    let rules = WaitRules::new(rules, |name| name == "pager", plan.has_tokens).expect("the rules are valid");
    let keys = AuthConfig { key: Some(SECRET_FILE.into()), service: "proscenium".into(), ..AuthConfig::default() };
    let keys = plan.has_tokens.then(|| Authenticator::open(keys, Environment::SYSTEM).expect("the secret is valid")).flatten();
    let server = server.with_compaction(plan.upkeep.compacts.then_some(COMPACTED_AFTER));
    let server = server.with_archiving(plan.upkeep.archives.then_some(ARCHIVED_AFTER));
    let rule = json!({"after": format!("{}s", RETAINED_FOR.as_secs()), "then": "erase", "confirm": true});
    let rule = serde_json::from_value(rule).expect("the rule has its form");
    let retention = if plan.upkeep.retains { vec![(rule, None)] } else { Vec::new() };
    let server = server.with_retention(RetentionRules::new(retention, true).expect("the rule is valid"));
    Ok(server.with_waits(rules).with_signing_key(signing_key()).with_auth(keys, Origins::default()))
}

/// Does the steps that are due, until none is left. Each is done once, in whichever life of the node.
async fn follow_schedule(world: &Rc<World>, next: &mut usize, stop: &mut Option<tokio::sync::oneshot::Sender<()>>) {
    while let Some(Timed { at, step }) = world.steps.get(*next).copied() {
        sleep(Duration::from_millis(at.saturating_sub(world.now()))).await;
        *next += 1;
        world.note(&format!("step {step:?}"));
        match step {
            Step::Send { producer, facts, burst } => {
                let of = &world.producers[producer];
                let all = world.plan.producers[producer].facts.len();
                let most = if ends_waiting_run(world, producer) { all - 1 } else { all };
                of.allowed.set((of.allowed.get() + facts).min(most));
                of.burst.set(burst);
            }
            Step::Restart { producer } => world.producers[producer].asks.set(true),
            Step::Open { reader } => world.readers[reader].is_open.set(true),
            Step::Cut { reader } => world.readers[reader].cut.notify_one(),
            Step::Stall { reader, ms } => world.readers[reader].stall_ms.set(ms),
            Step::CutAfter { bytes } => world.cut_after.set(bytes),
            Step::Decide { question, person, approves } => world.decisions.borrow_mut().push((question, person, approves)),
            Step::Worker { mood } => world.worker.mood.set(mood),
            Step::Look { run, audience } => {
                let world = world.clone();
                tokio::task::spawn_local(async move {
                    drop(pages(&world, &run_name(run), audience).await);
                    world.audit(run).await;
                });
            }
            Step::Erase { run } => {
                let of_run = world.plan.producers.iter().zip(&world.producers).filter(|(plan, _)| plan.run == run);
                of_run.for_each(|(_, producer)| producer.is_refused.set(true));
                world.erasures.borrow_mut().insert(run);
            }
            Step::Clock { ms } => world.step_wall_clock(ms),
            Step::Slow { ms } => world.disk.slow(ms),
            Step::Fail { point } => world.disk.fail(point),
            Step::Storage { ms } => world.storage.fail(Duration::from_millis(ms)),
            Step::Full { ms } => world.disk.fill(Duration::from_millis(ms)),
            Step::Crash { at: Some(point), how } => world.disk.crash_at(point, how),
            Step::Crash { at: None, how } => world.disk.crash(how),
            Step::Stop => drop(stop.take()),
        }
        world.changed.notify_waiters();
        tokio::task::yield_now().await;
    }
}

/// Whether the last fact of a producer ends a run, and comes when the decisions of that run are over.
fn ends_waiting_run(world: &World, producer: usize) -> bool {
    let of = &world.plan.producers[producer];
    of.run < world.plan.quick_from && of.name.rsplit_once('.').is_some_and(|(_, part)| part == "main")
}

/// Waits until something has come about; records it if it does not.
async fn await_that(world: &World, what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + SETTLED_WITHIN;
    while !is_so() && world.model.borrow().violations.is_empty() {
        if Instant::now() > until {
            return world.violation(format!("{what}: not within {SETTLED_WITHIN:?} after the faults stopped"));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Lets everything come to its end without further faults, and checks it.
async fn settle(world: &Rc<World>) {
    world.worker.mood.set(0);
    world.correct_wall_clock();
    let ends = |n: usize| world.plan.producers[n].facts.len() - usize::from(ends_waiting_run(world, n));
    let all = || world.producers.iter().enumerate();
    if world.plan.upkeep.archives {
        send_late(world).await;
    }
    all().for_each(|(n, producer)| producer.allowed.set(ends(n)));
    world.changed.notify_waiters();
    await_that(world, "all facts are sent", || all().all(|(n, of)| of.is_refused.get() || of.next.get() >= ends(n))).await;
    await_that(world, "all decisions and erasures are sent", || {
        world.decisions.borrow().is_empty() && world.erasures.borrow().is_empty()
    })
    .await;
    // Rejects what too few people have approved.
    for (n, question) in world.plan.questions.iter().enumerate() {
        if world.model.borrow().has_approval(question) && !world.is_erased(&run_name(question.run)) {
            world.decisions.borrow_mut().push((n, 3, false));
        }
    }
    world.changed.notify_waiters();
    await_that(world, "all questions have enough decisions", || world.decisions.borrow().is_empty()).await;
    sleep(Duration::from_millis(RULES_WITHIN_MS.max(LAST_DEADLINE_MS.saturating_sub(world.now())))).await;
    let runs: Vec<_> = (0..world.plan.runs).map(run_name).filter(|run| !world.model.borrow().is_erased(run)).collect();
    let until = Instant::now() + SETTLED_WITHIN;
    for run in &runs {
        let is_open = |control: &Value| matches!(control["status"].as_str(), Some("queued" | "claimed"));
        while listed(world, run, "controls", "after").await.iter().any(is_open) && Instant::now() < until {
            sleep(Duration::from_millis(500)).await;
        }
    }
    all().for_each(|(n, producer)| producer.allowed.set(world.plan.producers[n].facts.len()));
    // Some readers come back to compacted runs.
    let moves_rows = world.plan.upkeep.compacts || world.plan.upkeep.archives;
    for (reader, n) in world.readers.iter().zip(0..) {
        let comes_late = moves_rows && n % 2 == 1;
        reader.is_open.set(!comes_late);
        if comes_late {
            reader.cut.notify_one();
        }
    }
    world.changed.notify_waiters();
    let is_sent = |(n, of): (usize, &crate::world::Producer)| of.next.get() >= world.plan.producers[n].facts.len();
    await_that(world, "all runs are ended", || all().all(|one| one.1.is_refused.get() || is_sent(one))).await;
    // Readers that got the end of a run come back for what came late.
    let may_be_late = |reader: &ReaderPlan| moves_rows && reader.run.is_some_and(|run| run >= world.plan.quick_from);
    let ended_early = world.plan.readers.iter().zip(&world.readers).filter(|(plan, _)| may_be_late(plan));
    ended_early.for_each(|(_, reader)| reader.has_ended.set(false));
    world.changed.notify_waiters();
    if moves_rows {
        sleep(MOVED_WITHIN).await;
        world.readers.iter().for_each(|reader| reader.is_open.set(true));
        world.changed.notify_waiters();
    }
    // What was on its way when a run was erased may begin it again, without an end.
    let mut begun_again = HashSet::new();
    for run in 0..world.plan.runs {
        if world.model.borrow().is_erased(&run_name(run)) && world.get(&format!("/v1/runs/{}", run_name(run))).await.is_some() {
            begun_again.insert(run);
        }
    }
    let has_ended = |n: usize| {
        let (of, reader) = (&world.plan.readers[n], &world.readers[n]);
        let of_run = |run: &String| reader.picture.borrow().logs.get(run).is_some_and(|log| log.ended.is_some());
        let waits_for_ever = |run: usize| begun_again.contains(&run) || world.model.borrow().is_erased_unwritten(&run_name(run));
        reader.has_ended.get() || of.run.is_some_and(waits_for_ever) || of.run.is_none() && runs.iter().all(of_run)
    };
    await_that(world, "all readers get the ends", || (0..world.readers.len()).all(has_ended)).await;
    let open: Vec<_> = (0..world.readers.len()).filter(|n| !has_ended(*n)).map(|n| (n, world.plan.readers[n].run)).collect();
    if !open.is_empty() {
        world.violation(format!("readers, each with its run, wait: {open:?}"));
    }
    let is_over = |(of, client): (&DialectPlan, &DialectClient)| {
        client.has_ended.get() || world.model.borrow().is_erased(&run_name(of.run))
    };
    await_that(world, "all clients of dialects get the ends", || world.plan.clients.iter().zip(&world.clients).all(is_over))
        .await;
    // What a reader gets too much of comes now.
    sleep(Duration::from_secs(2)).await;
    if world.model.borrow().violations.is_empty() {
        check(world, &runs).await;
    }
}

/// Lets facts come late to runs that have ended, again and again about when those are archived.
async fn send_late(world: &World) {
    let mut chance = Chance::new(world.plan.seed, 11);
    let is_late = |n: usize| world.plan.producers[n].is_late();
    let all = || world.producers.iter().enumerate();
    // The runs end.
    all()
        .filter(|(n, _)| !is_late(*n))
        .filter(|(n, _)| world.plan.producers[*n].run >= world.plan.quick_from)
        .for_each(|(n, producer)| producer.allowed.set(world.plan.producers[n].facts.len()));
    world.disk.slow(30);
    for _ in 0..LATE_ROUNDS {
        world.changed.notify_waiters();
        if chance.once_in(3) {
            world.storage.fail(Duration::from_millis(chance.in_range(1..4000)));
        }
        sleep(ARCHIVED_AFTER + Duration::from_millis(chance.in_range(0..1200))).await;
        for (n, producer) in all().filter(|(n, _)| is_late(*n)) {
            let most = world.plan.producers[n].facts.len();
            producer.allowed.set((producer.allowed.get() + 8).min(most));
            producer.burst.set(chance.in_range(1..5) as usize);
        }
    }
    world.disk.slow(1);
    world.storage.heal();
}

async fn check(world: &Rc<World>, runs: &[String]) {
    for run in 0..world.plan.runs {
        if world.audit(run).await.is_none() {
            world.violation(format!("r{run} cannot be exported"));
        }
    }
    for run in runs {
        let mut events: [model::Events; 3] = Default::default();
        for (audience, of_audience) in events.iter_mut().enumerate() {
            let Some(found) = pages(world, run, audience).await else {
                return world.violation(format!("{run} cannot be read for {}", AUDIENCES[audience]));
            };
            *of_audience = found;
        }
        for event in events[2].values() {
            check_body(world, event).await;
        }
        let state = world.get(&format!("/v1/runs/{run}?audience=internal")).await.unwrap_or_default();
        world.model.borrow_mut().check_run(run, &events, state["compacted"] == true);
        let (listed, record) = (listed(world, run, "controls", "after").await, listed(world, run, "decisions", "cursor").await);
        world.model.borrow_mut().check_controls(run, &listed, &record);
        world.model.borrow_mut().check_waits(run, &events[2]);
        if state["status"] != "completed" {
            world.violation(format!("{run} was ended, and is {state}"));
        }
        for (plan, reader) in world.plan.readers.iter().zip(&world.readers) {
            if plan.run.is_some_and(|of| run_name(of) != *run) {
                continue;
            }
            let path = format!("/v1/runs/{run}/activities?audience={}", AUDIENCES[plan.audience]);
            let Some(activities) = world.get(&path).await else {
                return world.violation(format!("the activities of {run} cannot be read"));
            };
            let mut model = world.model.borrow_mut();
            reader.picture.borrow().check(run, &activities["activities"], &events[plan.audience], &mut model);
        }
    }
    for (n, of) in world.plan.clients.iter().enumerate() {
        if runs.contains(&run_name(of.run)) {
            world.check_client(n).await;
        }
    }
    let attention = world.get("/v1/attention?audience=internal&limit=100").await.unwrap_or_default();
    for run in (0..world.plan.runs).map(run_name).filter(|run| !runs.contains(run)) {
        // What was on its way when it was erased begins the run again.
        let mut is_anew = false;
        for of in ["events", "activities"] {
            let answer = world.request("GET", &format!("/v1/runs/{run}/{of}?audience=internal"), &[], String::new()).await;
            is_anew |= answer.as_ref().is_some_and(|answer| answer.status == 200 && answer.text.contains('<'));
            if !is_anew && !answer.as_ref().is_some_and(|answer| matches!(answer.status, 404 | 410)) {
                world.violation(format!("{run} is erased, and its {of} are {answer:?}"));
            }
            world.model.borrow_mut().shown("a page", 2, &answer.map_or_else(String::new, |answer| answer.text));
        }
    }
    let text = attention.to_string();
    world.model.borrow_mut().shown("the list of pending actions", 2, &text);
    for question in &world.plan.questions {
        let (run, token) = (run_name(question.run), format!("\"{}\"", question.action));
        let is_gone = runs.contains(&run) || world.model.borrow().is_erased_fact(&question.token);
        if is_gone && text.contains(&token) {
            world.violation(format!("{run} has ended or is erased, and its question {token} is pending: {text}"));
        }
    }
    let path = format!("/v1/sessions/{SESSION}/events?audience=internal");
    if !runs.is_empty() && world.get(&path).await.is_none() {
        world.violation("the session cannot be read".to_owned());
    }
    if world.plan.upkeep.archives {
        check_objects(world, runs).await;
    }
}

/// Waits until the object storage has an object of each ended run, and no other one. Then erases one of the runs.
async fn check_objects(world: &World, runs: &[String]) {
    let ended = runs.len();
    // What was on its way when a run was erased may begin it again, and end it.
    let mut again = 0;
    for run in (0..world.plan.runs).map(run_name).filter(|run| world.model.borrow().is_erased(run)) {
        again += usize::from(world.get(&format!("/v1/runs/{run}")).await.is_some());
    }
    let possible = ended..=ended + again;
    let until = Instant::now() + ORPHANS_WITHIN;
    let mut count = world.storage.count().await;
    world.note(&format!("the object storage has {count} objects of {ended} ended runs"));
    while !possible.contains(&count) && Instant::now() < until {
        sleep(Duration::from_secs(1)).await;
        count = world.storage.count().await;
    }
    if !possible.contains(&count) {
        return world.violation(format!("{ended} runs are ended, and the object storage has {count} objects"));
    }
    let Some(run) = runs.last().filter(|_| !world.plan.upkeep.retains) else { return };
    world.model.borrow_mut().erases(run);
    let answer = world.request("DELETE", &format!("/v1/runs/{run}"), &[], String::new()).await;
    let left = world.storage.count().await;
    if answer.is_none_or(|answer| answer.status != 204) || left != count - 1 {
        world.violation(format!("{run} is erased, and of {count} objects {left} are left"));
    }
}

/// Reads the body that an envelope names, if it names one.
async fn check_body(world: &World, event: &Value) {
    let Some(address) = event["refs"][0]["href"].as_str() else { return };
    let answer = world.request("GET", &format!("{address}?audience=internal"), &[], String::new()).await;
    if answer.as_ref().is_none_or(|answer| answer.status != 200 || !answer.text.contains(&body())) {
        let answer = answer.map(|Answer { status, text }| (status, text.chars().take(200).collect::<String>()));
        world.violation(format!("the body of {event} is {answer:?}"));
    }
}

/// Waits until the rule of retention has erased the session and its runs, over crashes of the node, and checks that.
async fn await_retention(world: &World, seed: u64) {
    let mut chance = Chance::new(seed, 13);
    let runs: Vec<_> = (0..world.plan.runs).map(run_name).collect();
    for run in &runs {
        world.model.borrow_mut().erases(run);
    }
    world.readers.iter().for_each(|reader| {
        reader.is_open.set(false);
        reader.cut.notify_one();
    });
    world.disk.slow(200);
    if world.active_at.get().is_none() {
        let session = world.get(&format!("/v1/sessions/{SESSION}?audience=internal")).await.unwrap_or_default();
        let active = session["lastActivity"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        world.active_at.set(active.map(jiff::Timestamp::as_millisecond));
    }
    let Some(active_at) = world.active_at.get() else { return world.violation("the session has no last activity".into()) };
    let due_at = active_at + RETAINED_FOR.as_millis() as i64;
    let addresses = || runs.iter().map(|run| format!("/v1/runs/{run}")).chain([format!("/v1/sessions/{SESSION}")]);
    let is_gone = |answer: Option<Answer>| answer.is_some_and(|answer| matches!(answer.status, 404 | 410));
    let early = u64::try_from(due_at - world.wall_clock_ms() - 1000).unwrap_or(0);
    if early > 0 {
        sleep(Duration::from_millis(early)).await;
        for address in addresses() {
            if is_gone(world.request("GET", &address, &[], String::new()).await) {
                world.violation(format!("{address} is gone before the rule is due"));
            }
        }
    }
    let until = Instant::now() + SETTLED_WITHIN;
    loop {
        let (mut left, mut gone) = (Vec::new(), 0);
        for address in addresses() {
            match is_gone(world.request("GET", &address, &[], String::new()).await) {
                true => gone += 1,
                false => left.push(address),
            }
        }
        // An erasure refuses what it is about first.
        for path in ["/v1/sessions?archived=all&", "/v1/runs?", "/v1/attention?"] {
            let listed = world.get(&format!("{path}audience=internal")).await.map_or_else(String::new, |list| list.to_string());
            let has = |id: &str| listed.contains(&format!("\"{id}\""));
            if listed.is_empty() || has(SESSION) || runs.iter().any(|run| has(run)) {
                left.push(path.to_owned());
            }
        }
        if left.is_empty() {
            break;
        }
        if Instant::now() > until {
            return world.violation(format!("no rule has erased {left:?}"));
        }
        // The erasure takes several commits.
        let crashes = world.erasure_crashes.get();
        if gone > 0 && crashes < ERASURE_CRASHES_MAX && chance.once_in(3) {
            world.erasure_crashes.set(crashes + 1);
            world.disk.crash(if chance.once_in(2) { Crash::Power } else { Crash::Process });
            return std::future::pending().await;
        }
        sleep(Duration::from_millis(chance.in_range(1..if gone > 0 { 300 } else { 2000 }))).await;
    }
    let facts = format!("/v1/runs/{}/facts?sessionId={SESSION}", runs[0]);
    let late = json!([{"type": "run.started"}]).to_string();
    let answer = world.request("POST", &facts, &[], late).await;
    if answer.as_ref().is_none_or(|answer| answer.status != 410) {
        world.violation(format!("a fact of an erased session is not refused: {answer:?}"));
    }
    let objects = world.storage.count().await;
    if objects > 0 {
        world.violation(format!("everything is erased, and the object storage has {objects} objects"));
    }
}

/// All envelopes of a run for an audience; `None` if they cannot be read.
async fn pages(world: &World, run: &str, audience: usize) -> Option<model::Events> {
    let (mut events, mut after, limit) = (model::Events::new(), 0, world.chance.borrow_mut().in_range(1..200));
    loop {
        let path = format!("/v1/runs/{run}/events?audience={}&after={after}&limit={limit}", AUDIENCES[audience]);
        let page = world.get(&path).await?;
        let found = page["events"].as_array()?;
        for event in found {
            let (sequence, mut model) = (event["sequence"].as_u64()?, world.model.borrow_mut());
            model.shown("a page", audience, &event.to_string());
            model.seen("a page", run, audience, event);
            if sequence <= after {
                model.violation(format!("a page of {run} after {after} has {sequence}"));
            }
            after = sequence;
            events.insert(sequence, event.clone());
        }
        if page["truncated"] != true {
            return Some(events);
        }
        if found.is_empty() {
            return None;
        }
    }
}

/// All controls of a run, or its record of decisions.
async fn listed(world: &World, run: &str, of: &str, cursor: &str) -> Vec<Value> {
    let (mut listed, mut path) = (Vec::new(), format!("/v1/runs/{run}/{of}?audience=internal"));
    loop {
        let page = world.get(&path).await.unwrap_or_default();
        listed.extend(page[of].as_array().cloned().unwrap_or_default());
        match page["nextCursor"].as_str() {
            Some(next) => path = format!("/v1/runs/{run}/{of}?audience=internal&{cursor}={next}"),
            None => return listed,
        }
    }
}

/// The shortest schedule of a plan that still fails, found by leaving out steps.
#[must_use]
pub fn minimise(plan: &Plan, steps: &[Timed], fault: u32) -> Vec<Timed> {
    let fails = |steps: &[Timed]| !simulate(plan.clone(), steps.to_vec(), fault).violations.is_empty();
    let (mut shortest, mut size) = (steps.to_vec(), steps.len().div_ceil(2));
    while size > 0 {
        let mut from = 0;
        while from < shortest.len() {
            let mut without = shortest.clone();
            without.drain(from..(from + size).min(shortest.len()));
            if fails(&without) {
                shortest = without;
            } else {
                from += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    shortest
}
