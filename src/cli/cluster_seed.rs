//! `proscenium cluster-seed`: the data of a single server becomes the beginning of a cluster.

use clap::Args;
use proscenium::cluster;
use proscenium::log::StoreError;
use proscenium::log::journal::jetstream::StreamConnection;
use std::path::PathBuf;

/// The arguments of `proscenium cluster-seed`.
#[derive(Args)]
pub struct ClusterSeed {
    /// Data directory of the stopped server. It stays as it is.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data_dir: PathBuf,
    /// URLs of the NATS servers, comma-separated.
    #[arg(long, value_name = "URLS")]
    cluster: String,
    /// Name of the new cluster.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// Credentials of a NATS user.
    #[arg(long, value_name = "FILE")]
    cluster_creds: Option<PathBuf>,
    /// Accept a stream with a single replica.
    #[arg(long)]
    cluster_allow_r1: bool,
}

/// Writes the snapshot, and says what to do next.
///
/// # Errors
/// [`StoreError`] from the store and from NATS.
pub fn run(args: &ClusterSeed) -> Result<(), StoreError> {
    let connection = StreamConnection { urls: args.cluster.clone(), credentials: args.cluster_creds.clone() };
    let position = cluster::seed(&args.data_dir, &connection, &args.cluster_name, args.cluster_allow_r1)?;
    println!("The cluster {} begins with the commit {position}. Start its nodes with empty data directories.", args.cluster_name);
    Ok(())
}
