//! Messages that differed are compared again: one that was at work may have changed between the two lists.

use super::difference::{Difference, difference};
use super::message_view::MessageView;
use super::progress::Progress;
use super::requests::{AT_ONCE, Suspect, caught_up, of_id};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use futures::{StreamExt, TryStreamExt};
use tallystone_client::Message;

/// How often a message that keeps changing is compared.
const TRIES: usize = 5;
/// The message is not in the queue, or the queue is deleted.
const NOT_THERE: [&str; 2] = ["MESSAGE_NOT_FOUND", "QUEUE_NOT_FOUND"];

/// The messages that differ, and those that changed during each comparison: whether they differ is not known.
pub(super) struct Again {
    pub(super) differences: Vec<(Suspect, Difference)>,
    pub(super) undecided: Vec<Suspect>,
}

/// Compares these messages until the queue returns the same before and after the index was read. A message that changed
/// in between is compared again in the next round.
pub(super) async fn compare(
    queues: &[(String, u64)],
    mut suspects: Vec<Suspect>,
    session: &Session,
    progress: &mut Progress,
) -> Result<Again, CliError> {
    let mut differences = Vec::new();
    for _ in 0..TRIES {
        if suspects.is_empty() {
            break;
        }
        progress.suspected(suspects.len());
        let before = futures::stream::iter(std::mem::take(&mut suspects)).map(|(at, id)| async move {
            let view = message(&queues[at].0, &id, session).await?.as_ref().map(MessageView::by_queue);
            Ok::<_, CliError>(((at, id), view))
        });
        let before: Vec<(Suspect, Option<MessageView>)> = before.buffer_unordered(AT_ONCE).try_collect().await?;
        caught_up(session).await?;
        let compared = futures::stream::iter(before).map(|((at, id), before)| async move {
            let verdict = verdict(&queues[at].0, &id, before, session).await?;
            Ok::<_, CliError>(((at, id), verdict))
        });
        let mut compared = compared.buffer_unordered(AT_ONCE);
        while let Some((suspect, verdict)) = compared.try_next().await? {
            progress.compared_again();
            match verdict {
                Verdict::Changed => suspects.push(suspect),
                Verdict::Same => {}
                Verdict::Differs(difference) => differences.push((suspect, difference)),
            }
        }
    }
    Ok(Again { differences, undecided: suspects })
}

/// The result of one comparison.
enum Verdict {
    /// The message changed meanwhile.
    Changed,
    Same,
    Differs(Difference),
}

async fn verdict(queue: &str, id: &str, before: Option<MessageView>, session: &Session) -> Result<Verdict, CliError> {
    let found = of_id(queue, id, session).await?;
    let after = message(queue, id, session).await?;
    if before != after.as_ref().map(MessageView::by_queue) {
        return Ok(Verdict::Changed);
    }
    let now_ms = found.watermark.answered_at_ms().unwrap_or(0);
    Ok(difference(after.as_ref(), &found.messages, now_ms).map_or(Verdict::Same, Verdict::Differs))
}

/// A message as the queue has it; `None`: it is not there.
async fn message(queue: &str, id: &str, session: &Session) -> Result<Option<Message>, CliError> {
    match session.client.get_message(queue, id).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.refused().is_some_and(|refused| NOT_THERE.contains(&refused.reason.as_str())) => Ok(None),
        Err(error) => Err(cli_error(&error)),
    }
}
