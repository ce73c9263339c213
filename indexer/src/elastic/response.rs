//! The parts of a search response that several searches read.

use serde::Deserialize;

/// Documents that a search found.
#[derive(Deserialize)]
pub(super) struct SearchResponse<T> {
    hits: SearchHits<T>,
}

#[derive(Deserialize)]
struct SearchHits<T> {
    hits: Vec<Hit<T>>,
}

/// One document.
#[derive(Deserialize)]
pub(super) struct Hit<T> {
    #[serde(rename = "_index")]
    pub(super) index: String,
    #[serde(rename = "_id")]
    pub(super) id: String,
    #[serde(rename = "_source")]
    pub(super) source: T,
}

impl<T> SearchResponse<T> {
    pub(super) fn hits(self) -> Vec<Hit<T>> {
        self.hits.hits
    }

    pub(super) fn len(&self) -> usize {
        self.hits.hits.len()
    }

    pub(super) fn into_sources(self) -> impl Iterator<Item = T> {
        self.hits.hits.into_iter().map(|hit| hit.source)
    }
}

/// A `terms` aggregation: counts by value, each with its sub-aggregations `S`.
#[derive(Deserialize)]
pub(super) struct TermsAggregation<K, S = NoSubAggregations> {
    pub(super) buckets: Vec<TermsBucket<K, S>>,
}

impl<K, S> Default for TermsAggregation<K, S> {
    fn default() -> Self {
        TermsAggregation { buckets: Vec::new() }
    }
}

/// One value of a `terms` aggregation.
#[derive(Deserialize)]
pub(super) struct TermsBucket<K, S> {
    pub(super) key: K,
    pub(super) doc_count: u64,
    #[serde(flatten)]
    pub(super) sub: S,
}

/// Only the count.
#[derive(Deserialize)]
pub(super) struct NoSubAggregations {}
