//! Hostile input to the real binary, while a second client measures that the server goes on answering.
