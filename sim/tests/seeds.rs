//! The simulator in the gate: its seeds, its planted faults, and the equality of its traces.

#![expect(clippy::disallowed_methods, reason = "a test prints how long the seeds took")]

use proscenium_sim::plan::of_seed;
use proscenium_sim::planted::FAULTS;
use proscenium_sim::simulation::{Outcome, minimise, of_seed_with, simulate};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The seeds of the gate, from 1 on. `PROSCENIUM_SEEDS` asks for another number.
const SEEDS: u64 = 300;

/// Calls `work` with each number of a range, on all processors. Each simulation stays on one thread.
fn in_parallel(numbers: std::ops::RangeInclusive<u64>, work: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(*numbers.start());
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if !numbers.contains(&number) {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

#[test]
fn equal_seeds_have_equal_traces_in_one_process_and_in_two() {
    for seed in 1..=20 {
        let [first, second] = [(); 2].map(|()| of_seed_with(seed, 0).trace.join("\n"));
        assert_eq!(first, second, "seed {seed}, twice in one process");
        if seed <= 3 {
            let mut command = Command::new(env!("CARGO_BIN_EXE_proscenium-sim"));
            let output = command.args([&seed.to_string(), "--trace"]).output().expect("the simulator runs");
            let printed = String::from_utf8(output.stdout).expect("the trace is text");
            assert!(printed.starts_with(&first), "seed {seed}, in another process");
        }
    }
}

#[test]
#[ignore = "the step `simulation` of scripts/test runs it"]
fn no_seed_of_the_gate_breaks_a_promise() {
    let seeds = std::env::var("PROSCENIUM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let (begun, failed, sums) = (Instant::now(), Mutex::new(Vec::new()), Mutex::new((Duration::ZERO, 0, 0)));
    in_parallel(1..=seeds, |seed| {
        let Outcome { violations, time, lives, requests, .. } = of_seed_with(seed, 0);
        let mut sums = sums.lock().expect("no thread panicked");
        *sums = (sums.0 + time, sums.1 + lives, sums.2 + requests);
        if !violations.is_empty() {
            failed.lock().expect("no thread panicked").push((seed, violations));
        }
    });
    let ((time, lives, requests), real) = (sums.into_inner().expect("no thread panicked"), begun.elapsed());
    let times = time.as_secs_f64() / real.as_secs_f64();
    println!(
        "{seeds} seeds in {real:.1?}: {time:.0?} simulated, {times:.0} times real time, {lives} lives, {requests} connections"
    );
    let mut failed = failed.into_inner().expect("no thread panicked");
    failed.sort();
    let Some((seed, violations)) = failed.first() else { return };
    let (plan, steps) = of_seed(*seed);
    let shortest = minimise(&plan, &steps, 0);
    let shortest: String = shortest.iter().map(|step| format!("{step}\n")).collect();
    let all: Vec<_> = failed.iter().map(|(seed, _)| seed).collect();
    panic!("the seeds {all:?} fail. Seed {seed}: {violations:#?}\nIts shortest schedule:\n{shortest}");
}

#[test]
#[ignore = "the step `simulation` of scripts/test runs it"]
fn every_planted_fault_is_found_within_its_seeds() {
    let found = Mutex::new(Vec::new());
    in_parallel(1..=FAULTS.len() as u64, |n| {
        let fault = &FAULTS[n as usize - 1];
        let first = (1..=fault.within).find(|seed| !of_seed_with(*seed, fault.number).violations.is_empty());
        found.lock().expect("no thread panicked").push((fault.number, first));
    });
    let mut found = found.into_inner().expect("no thread panicked");
    found.sort();
    for (number, first) in &found {
        println!("fault {number}: {}", first.map_or("not found".to_owned(), |seed| format!("seed {seed}")));
    }
    let missed: Vec<_> = found.iter().filter(|(_, first)| first.is_none()).map(|(number, _)| number).collect();
    assert!(missed.is_empty(), "no seed found the planted faults {missed:?}");
}

#[test]
fn a_failing_schedule_gets_shorter_and_still_fails() {
    let fault = 16;
    let seed = (1..=20).find(|seed| !of_seed_with(*seed, fault).violations.is_empty()).expect("the fault is found");
    let (plan, steps) = of_seed(seed);
    let shortest = minimise(&plan, &steps, fault);
    assert!(shortest.len() < steps.len(), "{} of {} steps are left", shortest.len(), steps.len());
    assert!(!simulate(plan.clone(), shortest.clone(), fault).violations.is_empty(), "it still fails");
    assert!(simulate(plan, shortest, 0).violations.is_empty(), "without the fault it does not");
}

#[test]
fn the_page_lists_every_planted_fault() {
    let page = include_str!("../../docs/src/simulation.md");
    for fault in FAULTS {
        let row = format!("| {} | {} | {} |", fault.number, fault.what, fault.within);
        assert!(page.contains(&row), "docs/src/simulation.md lacks this row of the table of planted faults:\n{row}");
    }
}
