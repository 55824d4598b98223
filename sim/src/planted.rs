//! The planted faults, and the seeds within which the simulator has to find each.

/// A fault that the simulator plants: `environment::sabotage` of the server asks for its number.
pub struct Fault {
    pub number: u32,
    /// What is wrong with it.
    pub what: &'static str,
    /// The most seeds, from 1 on, until one of them finds it.
    pub within: u64,
}

const fn fault(number: u32, what: &'static str, within: u64) -> Fault {
    Fault { number, what, within }
}

/// All planted faults.
pub const FAULTS: &[Fault] = &[
    fault(1, "the journal answers half of the appends without a sync", 30),
    fault(2, "the committer acknowledges facts before their commit", 20),
    fault(3, "a commit does not wake the readers of its log", 20),
    fault(4, "the visible position stays behind the commits", 20),
    fault(5, "a log is announced to its readers once only", 20),
    fault(6, "a commit does not wake the readers of several logs", 20),
    fault(7, "the newest rows of a log lack the append in which a reader stands", 20),
    fault(8, "a repeated body counts as new", 20),
    fault(9, "a gap in the numbers of a producer is accepted", 20),
    fault(10, "the server expects the number after the next", 20),
    fault(11, "a producer's number is not saved", 20),
    fault(13, "a stream resumes one envelope too late", 20),
    fault(14, "a stream resumes one envelope too early", 20),
    fault(15, "the views of two audiences are swapped", 20),
    fault(16, "streams of events show what is internal", 20),
    fault(17, "a resumed reader lacks the activities that changed first", 20),
    fault(19, "an erasure is not ordered", 30),
    fault(20, "an erased run is still there, without envelopes", 40),
    fault(21, "activities show what is internal", 20),
    fault(22, "the answer to a control is not stored", 20),
    fault(23, "a decision is accepted and not stored", 20),
    fault(24, "a decision reaches its owner without its value", 20),
    fault(25, "the queue of an agent lacks the first control of a log", 20),
    fault(26, "a second decision of one question is accepted", 20),
    fault(28, "each fifth envelope has the sequence of the one before", 20),
    fault(30, "a reader does not get the end of a run", 20),
    fault(31, "the snapshots are said to be complete as of the envelope before", 20),
    fault(34, "a change of a control is not saved", 20),
    fault(35, "a reader of a session does not get the ends of its runs", 20),
    fault(36, "a stream of a session resumes one envelope too late", 20),
    fault(37, "the cursor of a session's stream names the first envelope of an append", 20),
    fault(38, "a receipt names the sequence before its first fact", 20),
    fault(40, "a page of envelopes begins one envelope too late", 20),
    fault(41, "a client of AG-UI that resumes counts as new", 20),
    fault(42, "a client that counts its chunks gets one of them again", 20),
    fault(43, "a client of AG-UI gets the events of a half-sent envelope again", 60),
    fault(44, "a client that is cut within a state does not get the rest of it", 60),
    fault(45, "streams of dialects show what is internal", 20),
    fault(46, "a dialect knows what its client has as of the envelope before", 20),
    fault(47, "a page of envelopes is said to be the last one", 20),
    fault(48, "each fourth head of a hash chain is not saved", 20),
    fault(49, "two approvals of one person count as two", 60),
    fault(50, "a rule that has decided is not counted as done", 60),
    fault(51, "the deadlines of a run are forgotten in a restart", 60),
    fault(52, "a compaction removes what an activity needs", 20),
    fault(53, "the chain goes on after removed rows from the first of them", 20),
    fault(54, "a stream outlives its token", 20),
    fault(55, "facts that came while a run was archived leave the store", 60),
    fault(56, "a run names an object that was not stored", 60),
    fault(57, "the object of an erased run stays", 60),
    fault(58, "a body that moves loses its place", 60),
    fault(59, "an erasure that a crash interrupts does not go on", 60),
    fault(60, "a rule of retention acts in half of its time", 60),
];
