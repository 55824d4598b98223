//! `cargo run -p proscenium-sim -- SEED [--seeds COUNT] [--fault N] [--trace]`

use proscenium_sim::plan::of_seed;
use proscenium_sim::simulation::{minimise, of_seed_with};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let Some(first) = arguments.first().and_then(|seed| seed.parse::<u64>().ok()) else {
        eprintln!("proscenium-sim SEED [--seeds COUNT] [--fault N] [--trace]");
        return ExitCode::from(2);
    };
    let (count, fault) = (value("--seeds").unwrap_or(1), value("--fault").unwrap_or(0) as u32);
    let (mut time, mut lives, mut requests, mut failed) = (Duration::ZERO, 0, 0, 0);
    for seed in first..first + count {
        let outcome = of_seed_with(seed, fault);
        time += outcome.time;
        lives += outcome.lives;
        requests += outcome.requests;
        if arguments.iter().any(|argument| argument == "--trace") {
            for line in &outcome.trace {
                println!("{line}");
            }
        }
        if outcome.violations.is_empty() {
            continue;
        }
        failed += 1;
        println!("seed {seed} fails:");
        for violation in outcome.violations.iter().take(5) {
            println!("  {violation:.500}");
        }
        if failed == 1 {
            let (plan, steps) = of_seed(seed);
            let shortest = minimise(&plan, &steps, fault);
            println!("its shortest schedule, {} of {} steps:", shortest.len(), steps.len());
            for step in &shortest {
                println!("  {step}");
            }
        }
    }
    println!("{count} seeds, {failed} failed; {time:.0?} simulated, {lives} lives of the node, {requests} connections");
    ExitCode::from(u8::from(failed > 0))
}
