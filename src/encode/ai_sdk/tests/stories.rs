//! What is said, chunk by chunk.
