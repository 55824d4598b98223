//! A reader that every kill cuts off, and that resumes with its cursor.

use super::figures::Figures;
use crate::harness::{Client, with_timeout};
use serde_json::Value;
use std::collections::HashMap;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One reader, and everything it has read.
pub struct Follower {
    run: String,
    /// Whether it reads activities; otherwise events.
    activities: bool,
    cursor: Option<String>,
    /// The last event's sequence.
    pub last: u64,
    /// The number of numbered facts received.
    numbers: u64,
    /// The contents of the activities.
    contents: HashMap<(String, String), Value>,
    /// The errors it found.
    found: Figures,
}

impl Follower {
    pub fn new(run: String, activities: bool) -> Self {
        let (cursor, contents, found) = (None, HashMap::new(), Figures::default());
        Self { run, activities, cursor, last: 0, numbers: 0, contents, found }
    }

    /// Reads until the server is gone, or until this sequence.
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
                self.apply(&block);
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

    /// Applies one frame; the response's head may precede it.
    fn apply(&mut self, block: &str) {
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
                    assert_eq!(*n, self.numbers, "{}: not each fact once and in order", self.run);
                    self.numbers += 1;
                }
            }
            "ActivitySnapshot" => drop(self.contents.insert(key(), frame["content"].clone())),
            "ActivityDelta" => {
                let patch: json_patch::Patch = serde_json::from_value(frame["patch"].clone()).unwrap();
                json_patch::patch(self.contents.get_mut(&key()).expect("a snapshot precedes its deltas"), &patch).unwrap();
            }
            "Hydrated" => {}
            other => panic!("{}: unexpected {other} after a crash: {frame}", self.run),
        }
        if let Some(cursor) = line("id: ") {
            self.cursor = Some(cursor.to_owned());
            self.last = self.last.max(sequence);
        }
    }

    /// Reads the rest, compares it with the server's state, and returns the errors of everything it has read.
    pub async fn check(&mut self, client: &Client) -> Figures {
        let answer = client.get(&format!("/v1/runs/{}/activities?audience=internal", self.run)).await;
        if answer.status == 404 {
            assert_eq!(self.last, 0, "{}: the run is gone although the reader has seen it", self.run);
            return Figures::default();
        }
        let there = answer.ok();
        let activities = there["activities"].as_array().unwrap();
        let last = there["sequence"].as_u64().unwrap();
        assert!(self.last <= last, "{}: the reader has seen {}, the log ends at {last}", self.run, self.last);
        // A settled control is an event that changes no activity of the run.
        let shown = activities.iter().map(|activity| activity["sequence"].as_u64().unwrap()).max().unwrap_or(0);
        let until = if self.activities { shown } else { last };
        with_timeout("a reader's last event", self.follow(client.at, Some(until))).await;
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
