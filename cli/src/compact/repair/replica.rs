//! Waits until a replica has every write of its primary.

use super::super::session::CompactSession;
use crate::error::CliError;
use redis::{InfoDict, cmd};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);
/// How long the replica may make no progress.
const STALLED: Duration = Duration::from_secs(30);

/// Checks that these are a primary and its replica.
pub(super) async fn check(primary: &mut CompactSession, replica: &mut CompactSession) -> Result<(), CliError> {
    let (info, there) = (replication(primary).await?, replication(replica).await?);
    if info.get::<String>("role").as_deref() != Some("master") {
        return Err(CliError::usage(format!("the Redis at {} is a replica", primary.shown))
            .hint("--redis-url is the address of the primary, --from that of its replica"));
    }
    if there.get::<String>("role").as_deref() != Some("slave") {
        return Err(CliError::usage(format!("the Redis at {} is no replica", replica.shown)));
    }
    Ok(())
}

/// Returns once the replica has all that the primary had when this began.
pub(super) async fn catch_up(primary: &mut CompactSession, replica: &mut CompactSession) -> Result<(), CliError> {
    let info = replication(primary).await?;
    let (id, goal) = (info.get::<String>("master_replid"), info.get::<u64>("master_repl_offset").unwrap_or(0));
    let (mut best, mut advanced_at) = (0, Instant::now());
    loop {
        let info = replication(replica).await?;
        let is_up = info.get::<String>("master_link_status").as_deref() == Some("up");
        if is_up && info.get::<String>("master_replid") != id {
            let (replica, primary) = (&replica.shown, &primary.shown);
            return Err(CliError::usage(format!(
                "the Redis at {replica} is the replica of another primary than {primary}"
            )));
        }
        let offset = info.get::<u64>("slave_repl_offset").unwrap_or(0);
        if is_up && offset >= goal {
            return Ok(());
        }
        if offset > best {
            (best, advanced_at) = (offset, Instant::now());
        }
        if advanced_at.elapsed() > STALLED {
            let error = format!("the replica at {} does not catch up with its primary", replica.shown);
            return Err(CliError::unavailable(error));
        }
        sleep(POLL).await;
    }
}

async fn replication(session: &mut CompactSession) -> Result<InfoDict, CliError> {
    session.attempt(cmd("INFO").arg("replication")).await.map_err(|error| session.explained("", &error))
}
