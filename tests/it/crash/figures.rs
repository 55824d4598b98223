//! What the suite found, in numbers: each test adds its own, and the last to end prints the sum.

use std::sync::Mutex;

/// What one test has done, and what it found wrong.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    pub kills: u64,
    pub cuts: u64,
    /// Facts that were acknowledged to their producers.
    pub acknowledged: u64,
    /// Facts that were there although nobody had been told yet.
    pub beyond: u64,
    /// Acknowledged facts that were not there.
    pub lost: u64,
    /// Facts that were there, or shown to a reader, more than once.
    pub duplicated: u64,
    /// Sequences that a run or a reader missed.
    pub gaps: u64,
    /// Envelopes that readers saw who were cut off and came back.
    pub followed: u64,
    /// Controls that were acknowledged to those who asked for them.
    pub asked: u64,
    /// How often one was handed over.
    pub handed: u64,
    /// Controls that were not there, not whole, or never came back to be answered.
    pub controls_lost: u64,
    /// Controls that were there twice, told of twice, or handed over twice as if for the first time or after their answer.
    pub controls_doubled: u64,
}

static SUM: Mutex<Option<Figures>> = Mutex::new(None);

impl Figures {
    /// Nothing may have been found wrong.
    pub fn hold(&self) {
        let wrong = [self.lost, self.duplicated, self.gaps, self.controls_lost, self.controls_doubled];
        assert_eq!(wrong, [0; 5], "lost, duplicated, gaps; controls lost, controls doubled: {self:#?}");
    }

    /// Adds these to what the other tests found, and prints all of it as one line.
    pub fn tell(&self) {
        self.hold();
        let mut sum = SUM.lock().unwrap();
        let sum = sum.get_or_insert_default();
        sum.add(self);
        println!(
            "crash: {} kills, {} cuts; {} facts acknowledged and {} beyond, {} lost, {} duplicated, {} gaps, {} envelopes followed; \
             {} controls acknowledged, handed over {} times, {} lost, {} doubled",
            sum.kills,
            sum.cuts,
            sum.acknowledged,
            sum.beyond,
            sum.lost,
            sum.duplicated,
            sum.gaps,
            sum.followed,
            sum.asked,
            sum.handed,
            sum.controls_lost,
            sum.controls_doubled,
        );
    }

    pub fn add(&mut self, more: &Self) {
        self.kills += more.kills;
        self.cuts += more.cuts;
        self.acknowledged += more.acknowledged;
        self.beyond += more.beyond;
        self.lost += more.lost;
        self.duplicated += more.duplicated;
        self.gaps += more.gaps;
        self.followed += more.followed;
        self.asked += more.asked;
        self.handed += more.handed;
        self.controls_lost += more.controls_lost;
        self.controls_doubled += more.controls_doubled;
    }
}
