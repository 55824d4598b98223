//! A long-lived task that ends unasked ends the process, with its name and reason.
