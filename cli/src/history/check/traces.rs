//! `--traces`: each message has every version once.

use crate::connection::{Session, cli_error};
use crate::error::CliError;
use crate::history::compare::{AT_ONCE, PAGE, Progress, Suspect, caught_up};
use futures::{StreamExt, TryStreamExt};

/// Returns the messages with an incomplete trace, and what is wrong with it. A message can be ahead of its transitions for
/// a moment, so those with a difference are checked twice. They wait for the watermark together.
pub(super) async fn check(
    queues: &[(String, u64)],
    messages: Vec<Suspect>,
    session: &Session,
    progress: &mut Progress,
) -> Result<Vec<(Suspect, String)>, CliError> {
    let first = incomplete_of(queues, messages, session, progress).await?;
    if first.is_empty() {
        return Ok(first);
    }
    caught_up(session).await?;
    let suspects = first.into_iter().map(|(suspect, _)| suspect).collect();
    incomplete_of(queues, suspects, session, progress).await
}

async fn incomplete_of(
    queues: &[(String, u64)],
    messages: Vec<Suspect>,
    session: &Session,
    progress: &mut Progress,
) -> Result<Vec<(Suspect, String)>, CliError> {
    progress.add_to_trace(messages.len());
    let mut found = Vec::new();
    let traced = futures::stream::iter(messages).map(|(at, id)| async move {
        let difference = incomplete(&queues[at].0, &id, session).await?;
        Ok::<_, CliError>(((at, id), difference))
    });
    let mut traced = traced.buffer_unordered(AT_ONCE);
    while let Some((message, difference)) = traced.try_next().await? {
        progress.traced();
        found.extend(difference.map(|difference| (message, difference)));
    }
    Ok(found)
}

/// What is wrong with the trace of a message.
async fn incomplete(queue: &str, id: &str, session: &Session) -> Result<Option<String>, CliError> {
    let (mut page_token, mut last, mut state) = (String::new(), (0, 0), None);
    loop {
        let trace = session.client.trace_message(queue, id, 0, PAGE, &page_token).await;
        let trace = trace.map_err(|error| cli_error(&error))?;
        if let Some(gap) = trace.gaps.first() {
            let why = if gap.first_version == 1 { ": older than the retention, or lost" } else { "" };
            let (first, last) = (gap.first_version, gap.last_version);
            return Ok(Some(format!("versions {first} to {last} are not in its trace{why}")));
        }
        for transition in &trace.transitions {
            let expected = if transition.sequence == last.0 { last.1 + 1 } else { 1 };
            if transition.version != expected {
                return Ok(Some(format!("its trace has version {} where {expected} should be", transition.version)));
            }
            if transition.version > 1 && transition.from != state {
                return Ok(Some(format!(
                    "its trace does not follow from the previous version at version {}",
                    transition.version
                )));
            }
            last = (transition.sequence, transition.version);
            state = transition.to;
        }
        page_token = trace.next_page_token;
        if page_token.is_empty() {
            let version = trace.message.filter(|message| message.sequence == last.0 || last.0 == 0);
            let version = version.map_or(last.1, |message| message.version);
            return Ok((version > last.1).then(|| format!("its trace ends with version {} of {version}", last.1)));
        }
    }
}
