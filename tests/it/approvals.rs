//! Approvals: each source's request for a decision keeps what the approver needs, in every view of the run.
