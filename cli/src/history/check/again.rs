//! Messages that differed are compared again: one that was at work may have changed between the two lists.

use super::progress::Progress;
use super::requests::{AT_ONCE, Suspect, caught_up};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use crate::history::message_view::MessageView;
use futures::{StreamExt, TryStreamExt};
use tallystone_client::{IndexedMessage, Message, Search};

/// How often a message that keeps changing is compared.
const TRIES: usize = 5;

/// Compares these messages until the queue returns the same before and after the index was read. A message that changed
/// in between is compared again in the next round.
pub(super) async fn compare(
    queues: &[String],
    mut suspects: Vec<Suspect>,
    session: &Session,
    progress: &mut Progress,
) -> Result<Vec<(Suspect, String)>, CliError> {
    let mut differences = Vec::new();
    for _ in 0..TRIES {
        if suspects.is_empty() {
            break;
        }
        progress.suspected(suspects.len());
        let before = futures::stream::iter(std::mem::take(&mut suspects)).map(|(at, id)| async move {
            let view = message(&queues[at], &id, session).await?.as_ref().map(MessageView::by_queue);
            Ok::<_, CliError>(((at, id), view))
        });
        let before: Vec<(Suspect, Option<MessageView>)> = before.buffer_unordered(AT_ONCE).try_collect().await?;
        caught_up(session).await?;
        let compared = futures::stream::iter(before).map(|((at, id), before)| async move {
            let verdict = verdict(&queues[at], &id, before, session).await?;
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
    Ok(differences)
}

/// The result of one comparison.
enum Verdict {
    /// The message changed meanwhile.
    Changed,
    Same,
    Differs(String),
}

async fn verdict(queue: &str, id: &str, before: Option<MessageView>, session: &Session) -> Result<Verdict, CliError> {
    // Two: an earlier message of the id should be gone.
    let search = Search { queue: queue.to_owned(), id: id.to_owned(), page_size: 2, ..Search::default() };
    let found = session.client.search_messages(search).await.map_err(|error| cli_error(&error))?;
    let after = message(queue, id, session).await?.as_ref().map(MessageView::by_queue);
    if before != after {
        return Ok(Verdict::Changed);
    }
    Ok(difference(before, &found.messages).map_or(Verdict::Same, Verdict::Differs))
}

fn difference(queue: Option<MessageView>, index: &[IndexedMessage]) -> Option<String> {
    match (queue, index) {
        (None, []) => None,
        (Some(_), []) => Some("is in the queue, not in the index".to_owned()),
        (None, _) => Some("is in the index, not in the queue".to_owned()),
        (Some(queue), [only]) => queue.difference(&MessageView::by_index(only)),
        (Some(_), _) => {
            Some("is in the index more than once: an earlier message with this id was not removed there".to_owned())
        }
    }
}

/// A message as the queue has it; `None`: it is not there.
async fn message(queue: &str, id: &str, session: &Session) -> Result<Option<Message>, CliError> {
    match session.client.get_message(queue, id).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.refused().is_some_and(|refused| refused.reason == "MESSAGE_NOT_FOUND") => Ok(None),
        Err(error) => Err(cli_error(&error)),
    }
}
