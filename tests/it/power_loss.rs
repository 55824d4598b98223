//! A power loss of the embedded store, over many seeds: the disk has all that was synced, and of every later write any
//! sectors.
//!
//! After it, the store equals a prefix of its history that has every commit whose durability was acknowledged. A store
//! that left the sync out must be noticed by the same check.

use crate::crash::kills;
use crate::store::{Contents, append, compact, epoch, list_files, mark_file, read_contents, run, with_body, with_state};
use proscenium::log::embedded::Sync;
use proscenium::log::testing::on_disk;
use proscenium::log::{LogId, Store};
use proscenium::model::Sequence;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: usize = 512;

/// A sequence of numbers that a seed decides.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The content of the files that are written in place: the segments of the journal, and the mark beside them.
type Written = BTreeMap<PathBuf, Vec<u8>>;

fn read_written(dir: &Path) -> Written {
    let is_written = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "seg") || *path == mark_file(dir);
    list_files(&dir.join("journal"))
        .into_iter()
        .filter(is_written)
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// What the store holds, but for checkpoints, which it may lose.
fn without_checkpoints(mut contents: Contents) -> Contents {
    contents.checkpoints.clear();
    contents
}

/// A store with its history.
struct Story {
    dir: tempfile::TempDir,
    sync: Sync,
    /// What the store held after each commit.
    history: Vec<Contents>,
    /// How often each log was compacted or erased, after each commit.
    rewrites: Vec<BTreeMap<u64, u64>>,
    /// The files as they were when everything was last synced, and the number of commits then.
    synced: (Written, usize),
}

impl Story {
    /// Acts as the seed says.
    fn play(seed: u64, sync: Sync) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = on_disk(dir.path(), sync).unwrap();
        let contents = || without_checkpoints(read_contents(&store).unwrap());
        let (history, rewrites) = (vec![contents()], vec![BTreeMap::new()]);
        let synced = (read_written(dir.path()), 0);
        let mut story = Self { dir, sync, history, rewrites, synced };
        let mut random = Random::new(seed);
        for step in 0..4 + random.below(12) {
            // Before the commit: a power loss in the last one leaves this.
            if sync == Sync::Always {
                story.synced = (read_written(story.dir.path()), story.history.len() - 1);
            }
            let log = random.below(3);
            let mut rewrites = story.rewrites.last().unwrap().clone();
            let last = store.load(&id(log)).unwrap().map_or(0, |loaded| loaded.last.0);
            match random.below(10) {
                0..5 => {
                    let text = "x".repeat(usize::try_from(1 + random.below(3000)).unwrap());
                    let one = with_state(append(&id(log), last, &[&text, "y"]), b"n", Some(&step.to_string()));
                    let group = [with_body(one, &format!("b{}", random.below(3)), text), append(&id(log), last + 2, &["z"])];
                    store.commit(&group).unwrap();
                }
                5 if last > 0 => {
                    compact(&store, &id(log), last, |n| n % 3 == 1 || n == last);
                    *rewrites.entry(log).or_default() += 1;
                }
                6 if last > 0 => {
                    store.erase(&id(log)).unwrap();
                    *rewrites.entry(log).or_default() += 1;
                }
                7 => {
                    let body = rewrites.get(&log).copied().unwrap_or_default().to_string();
                    store.save_checkpoint(&id(log), epoch(1), 0, Sequence(last), body.into()).unwrap();
                    continue;
                }
                8 => {
                    store.persist().unwrap();
                    story.synced = (read_written(story.dir.path()), story.history.len() - 1);
                    continue;
                }
                _ => {
                    store.flush().unwrap();
                    story.synced = (read_written(story.dir.path()), story.history.len() - 1);
                    continue;
                }
            }
            // An erasure is synced in every mode.
            let is_erasure = store.load(&id(log)).unwrap().is_none();
            story.history.push(contents());
            story.rewrites.push(rewrites);
            if is_erasure && sync != Sync::Always {
                story.synced = (read_written(story.dir.path()), story.history.len() - 1);
            }
        }
        // A close syncs what is left. The loss below takes that back.
        drop(store);
        story
    }

    /// Loses any of the sectors that were written since the last sync.
    fn lose(&self, random: &mut Random) {
        for (path, now) in read_written(self.dir.path()) {
            let Some(synced) = self.synced.0.get(&path) else { continue };
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            // The mark is written after the sync of what it says, so it is lost with it.
            let is_mark = path == mark_file(self.dir.path());
            for at in (0..now.len()).step_by(SECTOR_BYTES) {
                let end = (at + SECTOR_BYTES).min(now.len());
                let old = synced.get(at..end).map_or_else(|| vec![0; end - at], <[u8]>::to_vec);
                if old != now[at..end] && (is_mark || random.below(2) == 0) {
                    file.write_all_at(&old, at as u64).unwrap();
                }
            }
        }
    }

    /// Opens what is left; says what is wrong with it.
    fn check(&self, acknowledged: usize) -> Result<(), String> {
        let store = on_disk(self.dir.path(), self.sync).map_err(|error| error.to_string())?;
        let read = read_contents(&store).map_err(|error| error.to_string())?;
        let checkpoints = read.checkpoints.clone();
        let logs: Vec<LogId> = read.logs.iter().map(|(listed, ..)| listed.log.clone()).collect();
        let read = without_checkpoints(read);
        let found =
            (0..self.history.len()).rev().find(|at| self.history[*at] == read).ok_or("it equals no part of the history")?;
        if found < acknowledged {
            return Err(format!("it has {found} commits, and {acknowledged} were acknowledged as durable"));
        }
        for (log, newest) in logs.iter().zip(&checkpoints) {
            let number = (0..3).find(|n| id(*n) == *log).unwrap();
            let rewrites = self.rewrites[found].get(&number).copied().unwrap_or_default();
            if let Some((_, body)) = &newest[0]
                && *body != rewrites.to_string()
            {
                return Err(format!("{log} was rewritten {rewrites} times, and has a checkpoint from {body:?} times"));
            }
        }
        drop(store);
        // What was lost stays lost.
        let store = on_disk(self.dir.path(), self.sync).map_err(|error| error.to_string())?;
        let again = without_checkpoints(read_contents(&store).map_err(|error| error.to_string())?);
        if again == read { Ok(()) } else { Err("the next start has other data".to_owned()) }
    }
}

fn id(log: u64) -> LogId {
    run(&format!("r{log}"))
}

/// The number of seeds: a thousand in the long form.
fn seeds() -> u64 {
    if kills().is_some() { 1000 } else { 200 }
}

#[test]
fn after_a_power_loss_the_store_is_a_prefix_of_its_history_with_every_acknowledged_commit() {
    let mut lost = 0;
    for seed in 0..seeds() {
        for sync in [Sync::Always, Sync::Never] {
            let story = Story::play(seed, sync);
            story.lose(&mut Random::new(!seed));
            story.check(story.synced.1).unwrap_or_else(|what| panic!("{sync:?} seed {seed}: {what}"));
            lost += story.history.len() - 1 - story.synced.1;
        }
    }
    assert!(lost > 10, "{lost} commits could be lost: the model is too kind");
}

#[test]
fn a_store_that_left_the_sync_out_is_noticed() {
    let noticed = (0..seeds()).filter(|seed| {
        let story = Story::play(*seed, Sync::Never);
        story.lose(&mut Random::new(!seed));
        story.check(story.history.len() - 1).is_err()
    });
    let noticed = noticed.count() as u64;
    assert!(noticed > seeds() / 4, "{noticed} of {} seeds", seeds());
}
