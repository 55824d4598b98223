//! `proscenium restore`: a data directory from a backup.

use super::backup_manifest::Manifest;
use super::backups::{Backups, file_error, is_address};
use super::remote::Output;
use super::{CliError, is_data_dir};
use data_encoding::HEXLOWER;
use proscenium::log::StoreError;
use proscenium::log::embedded::{FORMAT, adopt, verify_restored};
use serde_json::json;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The arguments of `restore`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  proscenium restore --from /backup/proscenium --data-dir /var/lib/proscenium
  proscenium restore --from s3://bucket/backups --data-dir /var/lib/proscenium
  proscenium restore --from /backup/proscenium --backup 2026-11-29T21-10-21Z-4711 --data-dir ./old

Every file is checked, and the data directory appears at the end, complete. It gets new epochs: clients that have read
further than the backup begin again. Copy the signing key and the keys of tokens to their places before the server starts.
A cluster begins anew from the restored directory: `proscenium cluster-seed`.")]
pub struct Restore {
    /// The directory of backups, or its address in object storage, such as `s3://bucket/backups`.
    #[arg(long, value_name = "PLACE")]
    from: PathBuf,
    /// The backup; by default the newest.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// The new data directory. It does not exist, or is empty.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Restores a backup.
///
/// # Errors
/// [`CliError`] if the backup or the data directory cannot be used; then the data directory is as it was.
pub async fn run(args: Restore) -> Result<(), CliError> {
    let target = std::path::absolute(&args.data_dir).map_err(|e| file_error(&args.data_dir, &e))?;
    check_target(&target, &args.from)?;
    let backups = Backups::open(&args.from)?;
    let (name, manifest) = backups.manifest(args.backup.as_deref()).await?;
    if manifest.store_format != FORMAT {
        let reason = format!(
            "backup {name} has store format {}, written by Proscenium {}; this version restores format {FORMAT}. Restore it \
             with that version",
            manifest.store_format, manifest.server_version
        );
        return Err(file_error(&args.from, &reason));
    }
    let parent = target.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|e| file_error(parent, &e))?;
    // Beside the target, so that a rename completes it. It goes away with an error.
    let part = tempfile::Builder::new().prefix(".restoring-").tempdir_in(parent).map_err(|e| file_error(parent, &e))?;
    copy(&backups, &manifest, part.path()).await?;
    let failed = |error: StoreError| file_error(&args.from, &format!("backup {name} cannot be restored: {error}"));
    let found = adopt(part.path()).map_err(failed)?.applied;
    let (mark, heads) = verify_restored(part.path()).map_err(failed)?;
    let digest = HEXLOWER.encode(&heads.digest);
    if (found, mark.applied, heads.logs, &digest)
        != (manifest.position, manifest.position, manifest.chains.logs, &manifest.chains.digest)
    {
        let reason = format!(
            "backup {name} is not what its manifest says: it ends with commit {}, and {} hash chains have the digest {digest}; \
             the manifest says commit {}, and {} with {}",
            mark.applied, heads.logs, manifest.position, manifest.chains.logs, manifest.chains.digest
        );
        return Err(file_error(&args.from, &reason));
    }
    fs::rename(part.path(), &target).map_err(|e| file_error(&target, &e))?;
    let _ = part.keep();
    sync_dir(parent)?;
    let told = json!({
        "backup": name, "dataDir": target, "position": manifest.position, "logs": manifest.logs, "madeAt": manifest.made_at,
    });
    args.output.print(&told, |out| {
        writeln!(out, "Restored backup {name} to {}: everything up to commit {}.", target.display(), manifest.position)?;
        writeln!(out, "Clients that have read further begin again. Copy the signing key and the keys of tokens to their places.")
    })
}

/// Refuses a directory that holds anything, or that the backup lies in, or the other way round.
fn check_target(target: &Path, from: &Path) -> Result<(), CliError> {
    if !is_address(from) {
        let from = from.canonicalize().map_err(|e| file_error(from, &e))?;
        let real = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        if real.starts_with(&from) || from.starts_with(&real) {
            return Err(file_error(target, &"a backup cannot be restored onto itself; give --data-dir another directory"));
        }
    }
    match target.read_dir() {
        Ok(mut entries) => {
            if is_data_dir(target) {
                return Err(file_error(target, &"it has a store already; move it away, or give --data-dir another directory"));
            }
            match entries.next() {
                Some(_) => {
                    Err(file_error(target, &"it is not empty; give --data-dir a directory that does not exist or is empty"))
                }
                None => Ok(()),
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(file_error(target, &e)),
    }
}

/// Copies the files of a backup, and checks each.
async fn copy(backups: &Backups, manifest: &Manifest, to: &Path) -> Result<(), CliError> {
    for file in &manifest.files {
        let place = to.join(&file.path);
        let parent = place.parent().unwrap_or(to);
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|e| file_error(parent, &e))?;
        let mut copy = File::create(&place).map_err(|e| file_error(&place, &e))?;
        let write = |bytes: &[u8]| copy.write_all(bytes).map_err(|e| file_error(&place, &e));
        let (sha256, _) = backups.content(&file.sha256, write).await?.finish();
        if sha256 != file.sha256 {
            let reason = format!(
                "it is damaged: its SHA-256 is {sha256}, and the manifest says {}. It is {} of the store. Repeat `proscenium \
                 backup --check` against the running server, which replaces it, or restore another backup",
                file.sha256, file.path
            );
            return Err(backups.content_error(&file.sha256, &reason));
        }
        copy.sync_all().map_err(|e| file_error(&place, &e))?;
    }
    for tree in to.join("trees").read_dir().map_err(|e| file_error(to, &e))? {
        let tree = tree.map_err(|e| file_error(to, &e))?.path();
        for inner in ["tables", "blobs"].map(|name| tree.join(name)) {
            // The engine expects both, also without files.
            DirBuilder::new().recursive(true).mode(0o700).create(&inner).map_err(|e| file_error(&inner, &e))?;
            sync_dir(&inner)?;
        }
        sync_dir(&tree)?;
    }
    sync_dir(&to.join("trees"))
}

/// Syncs a directory, so that the names in it are durable.
fn sync_dir(dir: &Path) -> Result<(), CliError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| file_error(dir, &e))
}
