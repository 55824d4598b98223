//! Writers under pressure: pending appends, conflicts, panics and bounds of one append.
