//! What a repair writes: messages as they should be, and that losses are settled.

use super::report::Report;
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use crate::history::compare::{AT_ONCE, caught_up, of_id};
use futures::{StreamExt, TryStreamExt};
use tallystone_client::{IndexedMessage, Loss};

/// Messages or losses of one call.
const ITEMS: usize = 500;

/// Writes messages, each with the number of its report.
pub(super) async fn write(
    mut messages: Vec<(usize, IndexedMessage)>,
    reports: &mut [Report],
    session: &Session,
) -> Result<(), CliError> {
    let mut unwritten = Vec::new();
    while !messages.is_empty() {
        let rest = messages.split_off(messages.len().min(ITEMS));
        let batch = std::mem::replace(&mut messages, rest);
        let written = batch.iter().map(|(_, message)| message.clone()).collect();
        let repaired = session.client.repair_messages(written, Vec::new()).await.map_err(|error| cli_error(&error))?;
        for ((at, message), is_repaired) in batch.into_iter().zip(repaired) {
            match is_repaired {
                true => reports[at].repaired(),
                false => unwritten.push((at, message)),
            }
        }
    }
    if unwritten.is_empty() {
        return Ok(());
    }
    // Most have changed meanwhile, and their own events were indexed. What is gone since is not an old version.
    caught_up(session).await?;
    let searched = futures::stream::iter(unwritten).map(|(at, message)| async move {
        let found = of_id(&message.queue, &message.id, session).await?;
        Ok::<_, CliError>((at, is_refused(&message, &found.messages)))
    });
    let mut searched = searched.buffer_unordered(AT_ONCE);
    while let Some((at, is_refused)) = searched.try_next().await? {
        if is_refused {
            reports[at].refused();
        }
    }
    Ok(())
}

/// Whether history has kept an earlier version of a message that was written; `found`: what it has of the id.
fn is_refused(written: &IndexedMessage, found: &[IndexedMessage]) -> bool {
    let same = |found: &&IndexedMessage| found.sequence == written.sequence && found.shard == written.shard;
    found.iter().find(same).is_some_and(|found| found.version < written.version)
}

/// Settles losses once queries find the repaired messages: no answer may show an old message as certain.
pub(super) async fn settle(losses: Vec<Loss>, session: &Session) -> Result<(), CliError> {
    if losses.is_empty() {
        return Ok(());
    }
    caught_up(session).await?;
    for batch in losses.chunks(ITEMS) {
        session.client.repair_messages(Vec::new(), batch.to_vec()).await.map_err(|error| cli_error(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::compare::in_index;

    #[test]
    fn q19_a_repair_is_refused_if_the_earlier_version_stays() {
        let message = |sequence, version| in_index(sequence, version, 1);
        let written = message(7, 3);
        assert!(is_refused(&written, &[message(9, 4), message(7, 2)]));
        assert!(!is_refused(&written, &[message(9, 1), message(7, 4)]), "its own event came");
        assert!(!is_refused(&written, &[message(9, 1)]), "gone, or past its retention");
        assert!(!is_refused(&written, &[]));
    }
}
