//! The manifest of a backup.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Component, Path};
use xxhash_rust::xxh3::Xxh3;

/// The form of a manifest.
const FORM: u32 = 1;

/// A complete backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The form of this manifest.
    pub backup: u32,
    pub server_version: String,
    pub store_format: u32,
    pub store_epoch: Option<String>,
    /// The last commit that the backup has.
    pub position: u64,
    /// The numbers of appends and of logs up to that commit.
    pub appends: u64,
    pub logs: u64,
    pub made_at: String,
    pub chains: Chains,
    pub files: Vec<BackupFile>,
}

/// The ends of all hash chains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chains {
    pub logs: u64,
    /// The BLAKE3 of the heads of all of them.
    pub digest: String,
}

/// A file of a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupFile {
    /// Where it belongs in the data directory.
    pub path: String,
    pub bytes: u64,
    /// The XXH3 of its content, by which the server knows it.
    pub checksum: String,
    /// The SHA-256 of its content.
    #[serde(default)]
    pub sha256: String,
    /// Whether the server sends it.
    #[serde(default, skip_serializing)]
    pub sent: bool,
}

impl BackupFile {
    /// How the server names its content.
    pub fn content(&self) -> String {
        format!("{}-{}", self.checksum, self.bytes)
    }

    /// Whether the path lies within the trees of a data directory.
    pub fn has_safe_path(&self) -> bool {
        let mut parts = Path::new(&self.path).components();
        parts.next() == Some(Component::Normal("trees".as_ref())) && parts.all(|part| matches!(part, Component::Normal(_)))
    }
}

/// The hashes of a content.
pub struct Hashes {
    sha256: Sha256,
    xxh3: Xxh3,
    pub bytes: u64,
}

impl Hashes {
    pub fn new() -> Self {
        Self { sha256: Sha256::new(), xxh3: Xxh3::new(), bytes: 0 }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        self.xxh3.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The SHA-256, and the content as the server names it.
    pub fn finish(self) -> (String, String) {
        let content = format!("{:032x}-{}", self.xxh3.digest128(), self.bytes);
        (HEXLOWER.encode(&self.sha256.finalize()), content)
    }
}

impl Manifest {
    /// Its text: a line, and its SHA-256 in a second one.
    pub fn text(&self) -> String {
        let line = serde_json::to_string(self).expect("a manifest is plain data");
        let sum = HEXLOWER.encode(&Sha256::digest(&line));
        format!("{line}\n{sum}\n")
    }

    /// Reads its text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let (json, sum) = text.split_once('\n').unwrap_or((text, ""));
        let found = HEXLOWER.encode(&Sha256::digest(json));
        if found != sum.trim() {
            return Err(format!("the manifest is damaged: its SHA-256 is {found}, and its second line says {:?}", sum.trim()));
        }
        Self::plan(json.as_bytes())
    }

    /// Reads the plan of a backup, which the server sends.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn plan(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            backup: u32,
        }
        let form: Form = serde_json::from_slice(json).map_err(|error| format!("it is no backup: {error}"))?;
        if form.backup != FORM {
            return Err(format!("the manifest has form {}; this version reads form {FORM}. Use a newer version", form.backup));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(|error| format!("it is no backup: {error}"))?;
        match manifest.files.iter().find(|file| !file.has_safe_path()) {
            Some(file) => Err(format!("{:?} is not a path of a store", file.path)),
            None => Ok(manifest),
        }
    }

    /// The name of this backup in a place of backups.
    pub fn name(&self) -> String {
        // It comes from the server, and must name a file.
        let stamp: String = self.made_at.chars().take(19).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{stamp}Z-{}", self.position)
    }
}

/// What orders the names of backups from old to new: the second, and the position within it, which is a number.
pub fn age(name: &str) -> (&str, u64) {
    let (second, position) = name.rsplit_once('-').unwrap_or((name, ""));
    (second, position.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn of_two_backups_of_one_second_the_one_with_the_higher_position_is_newer() {
        let names = ["2026-11-29T21-10-21Z-4711", "2026-11-30T09-12-06Z-99", "2026-11-30T09-12-06Z-103"];
        assert!(names.is_sorted_by_key(|name| age(name)));
    }
}
