//! The refill of a counter set from the checkpoints: after the set was lost or bound, or counts were dropped.
//!
//! It may run while rollups publish, and may be repeated: the set keeps the later count.

use super::count::PublishedCount;
use super::sets::{CounterSets, Unpublished};
use crate::redis::RedisNamespace;
use crate::refusal::Refusal;

/// Counters of one page, and counts of one command.
const PAGE: usize = 1_000;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Republished {
    /// Checkpoints that were read. A counter may be read twice.
    pub counters: u64,
    /// Counts that the set has now.
    pub published: u64,
    /// Counts that are no later than those that the set had.
    pub older: u64,
    /// Counters whose names are no numbers.
    pub not_decimal: u64,
    /// Counts below 0 for an unsigned field.
    pub negative: u64,
}

/// Why a refill has ended before the last counter.
#[derive(Debug, thiserror::Error)]
pub enum RepublishError {
    /// The namespace publishes nothing.
    #[error("the namespace '{0}' is published nowhere")]
    NotBound(String),
    /// The counters cannot be read.
    #[error(transparent)]
    Counters(#[from] Refusal),
    /// The set does not take the counts.
    #[error(transparent)]
    Sets(#[from] Unpublished),
}

/// Publishes the checkpoints of all counters of a namespace, page by page. `create`: first creates the counter set or
/// its fields where they are missing, with this width of the count. `progress` is called after each page.
///
/// # Errors
/// [`RepublishError`]. What was published stays; another call begins at the first counter.
pub async fn republish(
    namespace: &RedisNamespace,
    sets: &CounterSets,
    create: Option<&str>,
    mut progress: impl FnMut(&Republished),
) -> Result<Republished, RepublishError> {
    let not_bound = || RepublishError::NotBound(namespace.name().to_string());
    let to = namespace.config().published_to.as_ref().ok_or_else(not_bound)?;
    if let Some(width) = create {
        sets.create(to, width).await?;
    }
    let (mut all, mut token) = (Republished::default(), String::new());
    loop {
        let page = namespace.rolled_up(&token, PAGE).await?;
        let counts: Vec<PublishedCount> =
            page.counters.iter().filter_map(|listed| PublishedCount::of(&listed.counter, &listed.checkpoint)).collect();
        all.counters += page.counters.len() as u64;
        all.not_decimal += (page.counters.len() - counts.len()) as u64;
        for counts in counts.chunks(PAGE) {
            let published = sets.publish(to, counts).await?;
            all.published += published.set as u64;
            all.older += published.older as u64;
            all.negative += published.negative as u64;
            if let Some(why) = published.why {
                return Err(Unpublished::Some(why).into());
            }
        }
        progress(&all);
        match page.next {
            Some(next) => token = next,
            None => return Ok(all),
        }
    }
}
