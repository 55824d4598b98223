//! The AI SDK dialect: a run as one assistant's message, in the UI message stream of the Vercel AI SDK (`ai` 5, 6 and 7).
//!
//! ```text
//! start{messageId}  start-step  message-metadata{runId, usage …}
//!   text-start -delta -end           what the assistant says, part by part; a teammate's under its name (providerMetadata)
//!   reasoning-start -delta -end      what it thinks
//!   tool-input-start -delta -available, tool-output-available{preliminary} … tool-output-available | -error | -denied
//!   data-tool-call-progress          what the author of a call reports of it
//!   tool-approval-request, -response an action about a call, from version 6 and 7 on
//!   data-action, data-plan, data-state, data-task, data-<what a source calls it> …   any other activity, by its id
//! finish-step  finish | abort | error  [DONE]
//! ```
//! **One message a run.** Parts of all its assistant messages stand in it in the order in which they appeared, however many
//! turns, segments and pauses the run has. What users and systems say is in [`messages`], and not in the stream: it is the
//! client's own. There is one step: runs have no others, and versions 5 and 6 close every open text with a step.
//!
//! **Whole, late or slow, it comes to the same.** A client that resumes is told the run from its `start` on, by what it has come
//! to: these clients ask for a replay, and rebuild the message by it. Each part follows from the activity alone, so the messages
//! of those who saw it live, of those who came late, and [`messages`] are equal.
//!
//! **What cannot be unsaid.** No chunk takes back text. Version 7 is told to drop the step (`reset-step`) and everything anew.
//! Versions 5 and 6 are told the right text as a further part, and `data-correction {parts, replacedBy?}` by the parts' indices:
//! which parts are not to be shown any more. Whoever does not know that part shows both, the right one last; a replay has only the
//! right one.
//!
//! **Until when.** A pause ends the answer of a request ([`Until::Pause`]): `finishReason` is `tool-calls` where somebody has to
//! decide something, else `other`. The client's next request goes on with the same message: that answer is
//! [resumed](Dialect::resume) from the pause, begins with the same `start`, and says only what follows. A view ([`Until::End`])
//! keeps its message open over pauses, for these clients know no second run in one stream.

mod call;
mod kept;
mod page;
#[cfg(test)]
mod tests;
mod text;
mod told;
mod whole;

pub use kept::{COPIES_BYTES_MAX, COPY_BYTES_MAX};
pub use whole::messages;

use super::frames::{Frame, Shown};
use super::{Dialect, Flow, Until};
use kept::apply;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::collections::HashMap;
use told::Told;

/// What a stream is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// The id of the assistant's message: the same at every replay.
    pub message: String,
    /// The client's major version: 5, 6 or 7. What an older one does not know is not said; 5 is understood by all.
    pub version: u8,
    pub until: Until,
}

/// One run as one assistant's message.
#[derive(Debug)]
pub struct AiSdk {
    options: Options,
    told: Told,
    /// What is shown as a whole: of one envelope, or to bring the reader forward. Once that is complete it is told, in the order in
    /// which its parts appeared.
    gathered: Gathered,
    /// Whether the reader has what there was when it came.
    is_hydrated: bool,
    has_started: bool,
    /// Whether the reader had some of the message before this stream.
    is_resumed: bool,
    /// Whether the reader is to forget what it was told, and be told anew.
    begins_anew: bool,
    /// The pause that the reader comes from, by what waited then, until the run has left it.
    passed: Option<BTreeSet<Box<str>>>,
}

/// What is shown, until it is complete. A replay shows it delta by delta: what it comes to is what counts.
#[derive(Debug, Default)]
struct Gathered {
    shown: Vec<Shown>,
    /// Places, by type and id.
    places: HashMap<(Box<str>, Box<str>), usize>,
}

impl Gathered {
    fn show(&mut self, shown: Shown) {
        let place = *self.places.entry((shown.kind.clone(), shown.id.clone())).or_insert(self.shown.len());
        match self.shown.get_mut(place) {
            Some(known) => *known = shown,
            None => self.shown.push(shown),
        }
    }

    /// Applies a delta to what was gathered; false where that is not among it.
    fn follow(&mut self, kind: &str, id: &str, patch: &[Value]) -> bool {
        if self.shown.is_empty() {
            return false;
        }
        let place = self.places.get(&(kind.into(), id.into()));
        let shown = place.and_then(|place| self.shown.get_mut(*place));
        shown.is_some_and(|shown| apply(&mut shown.content, patch))
    }
}

impl AiSdk {
    #[must_use]
    pub fn new(options: Options) -> Self {
        let told = Told::new(options.version);
        let gathered = Gathered::default();
        let (has_started, is_hydrated, is_resumed, begins_anew) = (false, false, false, false);
        Self { options, told, gathered, has_started, is_hydrated, is_resumed, begins_anew, passed: None }
    }

    fn hear(&mut self, frame: Frame) -> Flow {
        match frame {
            Frame::ActivitySnapshot(shown) => {
                self.start();
                self.gathered.show(shown);
            }
            Frame::ActivityDelta { activity_type, activity_id, patch } => {
                self.start();
                if !self.gathered.follow(&activity_type, &activity_id, &patch) {
                    self.told.follow(&activity_type, &activity_id, &patch);
                }
            }
            Frame::Hydrated {} => {
                self.start();
                self.is_hydrated = true;
                return self.look();
            }
            Frame::Reset { .. } if self.told.is_empty() => (self.gathered, self.is_hydrated) = (Gathered::default(), false),
            Frame::Reset { .. } => return self.fail("the run was erased or written anew; load it again"),
            Frame::Error { problem } => {
                let why = ["detail", "title", "code"].iter().find_map(|member| problem.get(member)?.as_str().map(str::to_owned));
                return self.fail(&why.unwrap_or_else(|| "the stream ended".into()));
            }
            Frame::End { status } => {
                self.start();
                self.tell_gathered();
                return match self.is_to_begin_again(true) {
                    true => Flow::Again,
                    false => self.end(&status),
                };
            }
        }
        Flow::On
    }

    /// Looks how the stream goes on, now that an envelope was told, or all that there is.
    fn look(&mut self) -> Flow {
        if !self.is_hydrated {
            return Flow::On;
        }
        self.tell_gathered();
        let pauses = self.pauses();
        if self.is_to_begin_again(pauses) {
            return Flow::Again;
        }
        if pauses {
            let reason = if self.told.pending.is_empty() { "other" } else { "tool-calls" };
            return self.finish(&json!({ "type": "finish", "finishReason": reason }));
        }
        Flow::On
    }

    /// Says the beginning, once.
    fn start(&mut self) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.told.page.say(json!({ "type": "start", "messageId": self.options.message }));
            if !self.is_resumed {
                self.told.page.add(json!({ "type": "start-step" }));
            }
        }
    }

    fn tell_gathered(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        if std::mem::take(&mut self.begins_anew) {
            self.told.forget();
            self.told.page.parts = 1;
            self.told.page.say(json!({ "type": "reset-step" }));
        }
        self.told.tell(&gathered.shown);
    }

    /// Whether the run's activities are to come once more: what was said has to be taken back, or, where the stream is about to
    /// end, something was not followed.
    fn is_to_begin_again(&mut self, is_ending: bool) -> bool {
        let told = &mut self.told;
        let is_behind = told.is_behind && (is_ending || told.is_urgent);
        if !told.page.is_spoilt && !is_behind {
            return false;
        }
        self.begins_anew |= told.page.is_spoilt;
        (told.is_behind, told.is_urgent, told.page.is_spoilt) = (false, false, false);
        (self.gathered, self.is_hydrated) = (Gathered::default(), false);
        true
    }

    /// Whether the run waits, where that ends the stream.
    fn pauses(&mut self) -> bool {
        if self.options.until == Until::End {
            return false;
        }
        if &*self.told.status != "waiting" {
            self.passed = None;
            return false;
        }
        // Of the pause that the reader answered, only what is still open, or was asked since, is another one.
        self.passed.as_ref().is_none_or(|passed| !self.told.pending.is_empty() && self.told.pending != *passed)
    }

    fn end(&mut self, status: &str) -> Flow {
        let last = match status {
            "completed" => json!({ "type": "finish", "finishReason": "stop" }),
            "cancelled" => json!({ "type": "abort", "reason": "the run was cancelled" }),
            "failed" => return self.fail(&self.told.error().unwrap_or_else(|| "the run failed".into())),
            "interrupted" if self.options.version >= 7 => json!({ "type": "finish", "finishReason": "interrupted" }),
            _ => json!({ "type": "finish", "finishReason": "other" }),
        };
        self.finish(&last)
    }

    fn fail(&mut self, why: &str) -> Flow {
        self.finish(&json!({ "type": "error", "errorText": why }))
    }

    /// Closes what is open, and says the last chunk.
    fn finish(&mut self, last: &Value) -> Flow {
        self.told.flush();
        self.told.close();
        if self.has_started {
            self.told.page.say(json!({ "type": "finish-step" }));
        }
        self.told.page.say(last.clone());
        Flow::Over
    }
}

impl Dialect for AiSdk {
    /// Nothing comes of it: these clients keep what was before.
    fn recall(&mut self, _: Vec<Shown>) {}

    fn resume(&mut self, known: Vec<Shown>) {
        self.is_resumed = true;
        self.told.page.parts = 1;
        self.told.tell(&known);
        self.told.page.chunks.clear();
        if self.options.until == Until::Pause && &*self.told.status == "waiting" {
            // The answer before this one ended there, and closed what was open.
            self.told.is_cut();
            self.passed = Some(self.told.pending.clone());
        } else {
            self.told.doubt();
        }
    }

    fn frame(&mut self, frame: Frame, events: &mut Vec<Value>) -> Flow {
        // What comes of one envelope is said at once, with the cursor behind it: whoever comes back with that has all of it.
        let has_more = matches!(frame, Frame::ActivitySnapshot(_) | Frame::ActivityDelta { .. });
        let flow = self.hear(frame);
        if !has_more {
            events.append(&mut self.told.page.chunks);
        }
        flow
    }

    fn settle(&mut self, events: &mut Vec<Value>) -> Flow {
        let flow = self.look();
        events.append(&mut self.told.page.chunks);
        flow
    }

    fn farewell(&self) -> Option<&'static str> {
        Some("[DONE]")
    }
}
