//! The suite's results in numbers: each test adds its own, and the last to end prints the sum.

use std::sync::Mutex;

/// The work and the errors of one test.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    pub kills: u64,
    pub cuts: u64,
    /// Facts acknowledged to their producers.
    pub acknowledged: u64,
    /// Facts found although they were not acknowledged yet.
    pub unacknowledged: u64,
    /// Acknowledged facts that were missing.
    pub lost: u64,
    /// Facts stored or shown to a reader more than once.
    pub duplicated: u64,
    /// Sequences that a run or a reader lacked.
    pub gaps: u64,
    /// Envelopes read by readers that were cut off and resumed.
    pub followed: u64,
    /// Controls acknowledged to their submitters.
    pub submitted: u64,
    /// Claims of controls.
    pub claimed: u64,
    /// Controls that were missing, incomplete, or never claimable again.
    pub controls_lost: u64,
    /// Controls that were stored or logged twice, or claimed twice with one attempt number or after their answer.
    pub controls_duplicated: u64,
}

static SUM: Mutex<Option<Figures>> = Mutex::new(None);

impl Figures {
    /// Asserts that no errors were found.
    pub fn assert_none_wrong(&self) {
        let wrong = [self.lost, self.duplicated, self.gaps, self.controls_lost, self.controls_duplicated];
        assert_eq!(wrong, [0; 5], "lost, duplicated, gaps; controls lost, controls doubled: {self:#?}");
    }

    /// Adds these figures to those of the other tests, and prints the sum as one line.
    pub fn print_sum(&self) {
        self.assert_none_wrong();
        let mut sum = SUM.lock().unwrap();
        let sum = sum.get_or_insert_default();
        sum.add(self);
        println!(
            "crash: {} kills, {} cuts; {} facts acknowledged and {} unacknowledged, {} lost, {} duplicated, {} gaps, {} envelopes followed; \
             {} controls acknowledged, claimed {} times, {} lost, {} duplicated",
            sum.kills,
            sum.cuts,
            sum.acknowledged,
            sum.unacknowledged,
            sum.lost,
            sum.duplicated,
            sum.gaps,
            sum.followed,
            sum.submitted,
            sum.claimed,
            sum.controls_lost,
            sum.controls_duplicated,
        );
    }

    pub fn add(&mut self, more: &Self) {
        self.kills += more.kills;
        self.cuts += more.cuts;
        self.acknowledged += more.acknowledged;
        self.unacknowledged += more.unacknowledged;
        self.lost += more.lost;
        self.duplicated += more.duplicated;
        self.gaps += more.gaps;
        self.followed += more.followed;
        self.submitted += more.submitted;
        self.claimed += more.claimed;
        self.controls_lost += more.controls_lost;
        self.controls_duplicated += more.controls_duplicated;
    }
}
