//! How far the sources are, and that what they say is so: everything up to there can be found.
//!
//! The server shows what it was given a second later, or at once where it is told to refresh. So a source's progress
//! is written after a refresh that began when the source said it: of all indices, because part of the source may have
//! been written by another program, which had it before us. To those that have not changed it is nothing. Sources that
//! advance together share one.

use super::Elastic;
use super::get::get;
use crate::store::{HistoryError, Source};
use elasticsearch::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::Range;
use std::time::Instant;
use tokio::sync::Mutex;
use tokio::task::yield_now;

/// When the last refresh began; held by whoever refreshes.
#[derive(Default)]
pub(super) struct Shown(Mutex<Option<Instant>>);

#[derive(Serialize, Deserialize)]
struct Progress {
    source: u32,
    of: u32,
    up_to_ms: u64,
}

pub(super) async fn advance(elastic: &Elastic, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
    if source.number >= source.of || i64::try_from(up_to_ms).is_err() {
        return Err(HistoryError::Failed(format!("{source:?} cannot be at {up_to_ms}")));
    }
    elastic.templates.ensure(elastic).await?;
    let advanced = show_and_say(elastic, source, up_to_ms).await;
    if let Err(HistoryError::Unavailable(_)) = &advanced {
        elastic.templates.doubt().await;
    }
    advanced
}

async fn show_and_say(elastic: &Elastic, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
    let said = Instant::now();
    // Those that are called together all come to here before the first of them goes on.
    yield_now().await;
    let mut shown = elastic.shown.0.lock().await;
    if shown.is_none_or(|begun| begun < said) {
        let begun = Instant::now();
        refresh(elastic).await?;
        *shown = Some(begun);
    }
    drop(shown);
    say(elastic, source, up_to_ms).await
}

/// Shows all that anyone has written.
async fn refresh(elastic: &Elastic) -> Result<(), HistoryError> {
    let path = format!("{},{}/_refresh", elastic.names.current, elastic.names.historic);
    let query = [("ignore_unavailable", "true"), ("allow_no_indices", "true"), ("filter_path", "_shards.failed")];
    let answer: Refreshed = elastic.link.send(Method::Post, &path, &query, None).await?.read()?;
    match answer.shards.failed {
        0 => Ok(()),
        failed => Err(HistoryError::Unavailable(format!("{failed} shards did not refresh"))),
    }
}

#[derive(Deserialize)]
struct Refreshed {
    #[serde(rename = "_shards")]
    shards: RefreshedShards,
}

#[derive(Deserialize)]
struct RefreshedShards {
    failed: u64,
}

/// The time is the document's version, so that it never goes back, whoever writes it.
async fn say(elastic: &Elastic, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
    let path = format!("{}/_doc/{}", elastic.names.progress, source.number);
    let version = up_to_ms.to_string();
    let query = [("version", version.as_str()), ("version_type", "external_gte")];
    let progress = json!(Progress { source: source.number, of: source.of, up_to_ms });
    let reply = elastic.link.send(Method::Put, &path, &query, Some(&progress)).await?;
    if reply.status == 409 { Ok(()) } else { reply.done() }
}

pub(super) async fn watermark(elastic: &Elastic) -> Result<Option<u64>, HistoryError> {
    let mut found: Vec<Progress> = Vec::new();
    let mut of = 1;
    // The first source says how many there are; or a later one, if it knows of more.
    while found.len() < of {
        let Some(more) = progress(elastic, found.len()..of).await? else { return Ok(None) };
        of = more.iter().map(|progress| progress.of as usize).fold(of, usize::max);
        found.extend(more);
    }
    Ok(found.iter().map(|progress| progress.up_to_ms).min())
}

/// What these sources have said; `None`: one has not.
async fn progress(elastic: &Elastic, sources: Range<usize>) -> Result<Option<Vec<Progress>>, HistoryError> {
    let ids: Vec<String> = sources.map(|number| number.to_string()).collect();
    let found = get(&elastic.link, &elastic.names.progress, &ids).await?;
    Ok(found.into_iter().collect())
}
