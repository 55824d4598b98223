//! Stored state that cannot be read is an error with its place, and the doctor lists it.
