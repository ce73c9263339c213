//! Refreshes: they make writes visible to searches.
//!
//! The server shows a write a second later, or at the next refresh. A watermark may be written only after a refresh
//! that began after the watermark was reached. The refresh covers all indices, because another program may have written
//! a part of the partition before this one took it over; indices without changes cost next to nothing. Watermarks that
//! advance together share one refresh.

use super::client::ElasticClient;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use std::time::Instant;
use tokio::sync::Mutex;
use tokio::task::yield_now;

/// When the last refresh began. The lock is held during a refresh.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<Option<Instant>>);

impl Refreshes {
    /// Returns after a refresh that began no earlier than this call.
    pub(super) async fn refreshed(&self, client: &ElasticClient, indices: &str) -> Result<(), HistoryError> {
        let called = Instant::now();
        // Lets calls that were started together all take their time first, so that they share the refresh.
        yield_now().await;
        let mut last_begun = self.0.lock().await;
        if last_begun.is_none_or(|begun| begun < called) {
            let begun = Instant::now();
            refresh(client, indices).await?;
            *last_begun = Some(begun);
        }
        Ok(())
    }
}

/// Makes the writes of every program to these indices visible, those that exist. Fails unless every shard has refreshed.
pub(super) async fn refresh(client: &ElasticClient, indices: &str) -> Result<(), HistoryError> {
    let path = format!("{indices}/_refresh");
    let query = [("ignore_unavailable", "true"), ("allow_no_indices", "true"), ("filter_path", "_shards.failed")];
    let response: RefreshResponse = client.send(Method::Post, &path, &query, None).await?.read()?;
    match response.shards.failed {
        0 => Ok(()),
        failed => Err(HistoryError::Unavailable(format!("{failed} shards did not refresh"))),
    }
}

#[derive(Deserialize)]
struct RefreshResponse {
    #[serde(rename = "_shards")]
    shards: RefreshedShards,
}

#[derive(Deserialize)]
struct RefreshedShards {
    failed: u64,
}
