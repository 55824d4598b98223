//! A third party, which keeps the heads of hash chains and verifies exports with proofs.

use crate::plan::{AUDIENCES, run_name};
use crate::world::World;
use proscenium::environment::Environment;
use proscenium::record::signing::SigningKey;
use proscenium::record::verify::{Known, verify};
use serde_json::Value;

/// The server's key: the same in all its lives.
#[must_use]
pub fn signing_key() -> SigningKey {
    SigningKey::generate(Environment { random: || 7, ..Environment::SYSTEM })
}

impl World {
    /// Verifies the exports of all runs, once in a life of the node.
    pub(crate) async fn audit_all(&self) {
        for run in 0..self.plan.runs {
            while self.audit(run).await.is_none() {
                self.back_off().await;
            }
        }
    }

    /// Verifies an export of a run, and keeps the head of its chain. `None` without a whole export.
    pub(crate) async fn audit(&self, run: usize) -> Option<()> {
        let (run, audience) = (run_name(run), self.chance.borrow_mut().in_range(0..3) as usize);
        let head = self
            .heads
            .borrow()
            .get(&run)
            .filter(|heads| !heads.is_empty())
            .map(|heads| self.chance.borrow_mut().pick(heads).clone());
        if !self.model.borrow().is_written(&run) {
            return Some(());
        }
        let path = format!("/v1/runs/{run}/export?proof=true&audience={}", AUDIENCES[audience]);
        let answer = self.request("GET", &path, &[], String::new()).await?;
        if self.is_erased(&run) {
            self.heads.borrow_mut().remove(&run);
            return Some(());
        }
        match answer.status {
            200 => {}
            408 | 429 | 500..=599 => return None,
            status => {
                self.violation(format!("{run} has no export: {status} {}", answer.text));
                return Some(());
            }
        }
        for line in answer.text.lines().filter(|line| !line.starts_with("{\"proof\":")) {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            let mut model = self.model.borrow_mut();
            model.shown("an export", audience, line);
            model.seen("an export", &run, audience, &event);
        }
        let known = Known { keys: Some(vec![signing_key().public_key()]), head };
        match verify(answer.text.as_bytes(), &known) {
            Ok(verified) if verified.outside_of_chain == 0 => {
                self.heads.borrow_mut().entry(run).or_default().extend(verified.head);
            }
            Ok(verified) => self.violation(format!("the chain of {run} lacks rows: {verified:?}")),
            // The head of a chunk that a compaction has removed since.
            Err(why) if self.plan.upkeep.compacts && why.to_string().contains("a compaction removed the rows") => {
                let removed = known.head.map(|head| head.sequence);
                self.heads.borrow_mut().entry(run).or_default().retain(|kept| Some(kept.sequence) != removed);
            }
            Err(why) => self.violation(format!("the export of {run} is not verified: {why}")),
        }
        Some(())
    }
}
