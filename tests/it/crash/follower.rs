//! A reader that is cut off with every kill, and comes back with its cursor.

use super::figures::Figures;
use crate::harness::{Client, soon};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One reader, and all that it has seen.
pub struct Follower {
    run: String,
    /// Of activities, or else of events.
    activities: bool,
    cursor: Option<String>,
    /// The last event's sequence.
    pub last: u64,
    /// Numbered facts that came.
    numbers: u64,
    /// What the activities come to.
    contents: HashMap<(String, String), Value>,
    /// What it found wrong.
    found: Figures,
}

impl Follower {
    pub fn new(run: String, activities: bool) -> Self {
        let (cursor, contents, found) = (None, HashMap::new(), Figures::default());
        Self { run, activities, cursor, last: 0, numbers: 0, contents, found }
    }

    /// Reads until the server is gone, or there is nothing more up to this sequence.
    pub async fn follow(&mut self, at: SocketAddr, until: Option<u64>) {
        let Ok(mut socket) = TcpStream::connect(at).await else { return };
        let frames = if self.activities { "activities" } else { "events" };
        let resume = self.cursor.as_ref().map(|cursor| format!("last-event-id: {cursor}\r\n")).unwrap_or_default();
        let path = format!("/v1/runs/{}/stream?audience=internal&frames={frames}", self.run);
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{resume}\r\n");
        if socket.write_all(request.as_bytes()).await.is_err() {
            return;
        }
        let mut read: Vec<u8> = Vec::new();
        while until.is_none_or(|until| self.last < until) {
            while let Some(end) = memchr::memmem::find(&read, b"\n\n") {
                let block = String::from_utf8(read.drain(..end + 2).collect()).unwrap();
                self.take(&block);
            }
            if until.is_some_and(|until| self.last >= until) {
                return;
            }
            match socket.read_buf(&mut read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Takes one frame, which the head of the answer may stand before.
    fn take(&mut self, block: &str) {
        let line = |start: &str| block.lines().find_map(|line| line.strip_prefix(start));
        let Some(data) = line("data: ") else { return };
        let frame: Value = serde_json::from_str(data).unwrap();
        let sequence = frame["sequence"].as_u64().unwrap();
        let key = || (frame["activityType"].as_str().unwrap().to_owned(), frame["activityId"].as_str().unwrap().to_owned());
        match frame["frame"].as_str().unwrap() {
            "Event" => {
                self.found.duplicated += u64::from(sequence <= self.last);
                self.found.gaps += u64::from(sequence > self.last + 1 || frame["prev"].as_u64() != Some(self.last));
                self.last = sequence;
                if frame["event"]["type"] != "control.changed" {
                    let n = &frame["event"]["payload"]["n"];
                    assert_eq!(*n, self.numbers, "{}: each fact once and in order", self.run);
                    self.numbers += 1;
                }
            }
            "ActivitySnapshot" => drop(self.contents.insert(key(), frame["content"].clone())),
            "ActivityDelta" => {
                let patch: json_patch::Patch = serde_json::from_value(frame["patch"].clone()).unwrap();
                json_patch::patch(self.contents.get_mut(&key()).expect("a snapshot comes first"), &patch).unwrap();
            }
            "Hydrated" => {}
            other => panic!("{}: no crash is a reason for {other}: {frame}", self.run),
        }
        if let Some(cursor) = line("id: ") {
            self.cursor = Some(cursor.to_owned());
            self.last = self.last.max(sequence);
        }
    }

    /// Reads what there still is, holds it against what the server has, and says what was wrong with all that it has seen.
    pub async fn check(&mut self, client: &Client) -> Figures {
        let answer = client.get(&format!("/v1/runs/{}/activities?audience=internal", self.run)).await;
        if answer.status == 404 {
            assert_eq!(self.last, 0, "{}: what was shown is gone", self.run);
            return Figures::default();
        }
        let there = answer.ok();
        let activities = there["activities"].as_array().unwrap();
        let last = there["sequence"].as_u64().unwrap();
        assert!(self.last <= last, "{}: {} was shown, {last} is there", self.run, self.last);
        // What a control comes to is an event, and changes nothing that is shown.
        let shown = activities.iter().map(|activity| activity["sequence"].as_u64().unwrap()).max().unwrap_or(0);
        let until = if self.activities { shown } else { last };
        soon("a reader to have all", self.follow(client.at, Some(until))).await;
        assert!((until..=last).contains(&self.last), "{}: {} of {until} to {last}", self.run, self.last);
        if self.activities {
            assert_eq!(self.contents.len(), activities.len());
            for activity in activities {
                let key = ["activityType", "activityId"].map(|member| activity[member].as_str().unwrap().to_owned());
                assert_eq!(self.contents.get(&key.into()), Some(&activity["content"]), "{}", self.run);
            }
        }
        Figures { followed: self.last, ..self.found }
    }
}
