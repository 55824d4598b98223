//! Redaction costs time linear in its input, and a held text stays with its audience.
