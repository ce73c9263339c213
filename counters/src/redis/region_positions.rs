//! How far the topics of other regions are merged, and the process that merges them (N12). Both are in the first partition.

use super::RedisNamespaces;
use super::calls::{call, defect, of_link};
use crate::refusal::Refusal;
use redis::from_redis_value;
use std::collections::BTreeMap;
use tallystone_link::ScriptReply;
use tallystone_lua::counter::{CounterAnswer, CounterScript, REGION_LEASE, REGION_POSITIONS};

/// Up to where a partition of a topic is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPosition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset of the first record that is not merged.
    pub next_offset: i64,
}

/// How far the topics are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedTopics {
    /// The partitions of which something is merged.
    pub positions: Vec<TopicPosition>,
    /// The namespaces into which everything up to there is merged, by tag, each with its regions, or [`SKIPPED`]. Records of other
    /// namespaces, or of other regions, may have been skipped.
    pub namespaces: BTreeMap<String, String>,
}

/// Instead of the regions of a namespace: records of it were skipped, but its own counters were all published, or will be.
pub const SKIPPED: &str = "!";

/// What is to stand for a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedNamespace {
    /// What [`MergedTopics::namespaces`] had. If that has changed meanwhile, it stays as it is.
    pub stood: Option<String>,
    /// Its regions, or [`SKIPPED`].
    pub regions: String,
}

impl RedisNamespaces {
    /// Begins a term of the one process that publishes and merges, for `lease_ms` from now on. May be repeated. Each term has
    /// another name. Returns whether it has begun.
    pub async fn begin_term(&self, term: &str, lease_ms: u64) -> Result<bool, Refusal> {
        self.hold_term(term, lease_ms, true).await
    }

    /// Renews the lease of a term, for `lease_ms` from now on. False: its lease is over.
    pub async fn renew_term(&self, term: &str, lease_ms: u64) -> Result<bool, Refusal> {
        self.hold_term(term, lease_ms, false).await
    }

    async fn hold_term(&self, term: &str, lease_ms: u64, begins: bool) -> Result<bool, Refusal> {
        let mut command = call(CounterScript::RegionTerm, &[self.first_key(REGION_LEASE)]);
        command.arg(term).arg(lease_ms).arg(u8::from(begins));
        self.is_ok(&command).await
    }

    /// How far the topics are merged.
    pub async fn merged_topics(&self) -> Result<MergedTopics, Refusal> {
        let command = redis::cmd("HGETALL").arg(self.region_positions()).to_owned();
        let value = self.link().call(&command).await.map_err(of_link)?;
        let entries: Vec<(String, String)> =
            from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string()))?;
        if entries.is_empty() {
            // Otherwise the topics would be merged from their beginning into an emptied store.
            self.verify_registry().await?;
        }
        let mut merged = MergedTopics::default();
        for (field, value) in entries {
            let Some((topic, partition)) = field.rsplit_once('/') else {
                merged.namespaces.insert(field, value);
                continue;
            };
            let unreadable = || defect("an unreadable position of a topic");
            let partition = partition.parse().map_err(|_| unreadable())?;
            let next_offset = value.parse().map_err(|_| unreadable())?;
            merged.positions.push(TopicPosition { topic: topic.to_owned(), partition, next_offset });
        }
        Ok(merged)
    }

    /// Everything before these positions is merged. False: the term's lease is over, and nothing has changed.
    pub async fn store_positions(&self, term: &str, positions: &[TopicPosition]) -> Result<bool, Refusal> {
        let fields = positions.iter().map(|position| {
            let TopicPosition { topic, partition, next_offset } = position;
            (format!("{topic}/{partition}"), "*".to_owned(), next_offset.to_string())
        });
        self.change_merged(term, false, &[], fields).await
    }

    /// Records of these namespaces, given by tag with what stood, are skipped from now on: the topics must be merged from their
    /// beginning before one of them is complete again. False: the term's lease is over, and nothing has changed.
    pub async fn skip_namespaces(&self, term: &str, stood: &BTreeMap<String, String>) -> Result<bool, Refusal> {
        let fields = stood.iter().map(|(tag, stood)| (tag.clone(), stood.clone(), SKIPPED.to_owned()));
        self.change_merged(term, false, &[], fields).await
    }

    /// These namespaces, given by tag, have no regions any more. False: the term's lease is over, and nothing has changed.
    pub async fn forget_namespaces(&self, term: &str, tags: &[String]) -> Result<bool, Refusal> {
        self.change_merged(term, false, tags, std::iter::empty()).await
    }

    /// The topics are merged from their beginning, into these namespaces, given by tag. False: the term's lease is over, and nothing
    /// has changed.
    pub async fn merge_from_beginning(
        &self,
        term: &str,
        namespaces: &BTreeMap<String, MergedNamespace>,
    ) -> Result<bool, Refusal> {
        let fields = namespaces.iter().map(|(tag, MergedNamespace { stood, regions })| {
            (tag.clone(), stood.clone().unwrap_or_default(), regions.clone())
        });
        self.change_merged(term, true, &[], fields).await
    }

    /// `fields`: each with what stood there.
    async fn change_merged(
        &self,
        term: &str,
        is_beginning: bool,
        forgotten: &[String],
        fields: impl Iterator<Item = (String, String, String)>,
    ) -> Result<bool, Refusal> {
        let keys = [self.region_positions(), self.first_key(REGION_LEASE)];
        let mut command = call(CounterScript::Merged, &keys);
        command.arg(term).arg(u8::from(is_beginning)).arg(forgotten.len()).arg(forgotten);
        for (field, stood, value) in fields {
            command.arg(field).arg(stood).arg(value);
        }
        self.is_ok(&command).await
    }

    async fn is_ok(&self, command: &redis::Cmd) -> Result<bool, Refusal> {
        let value = self.clock().eval(self.link(), command, true).await?;
        Ok(ScriptReply::read(value, CounterAnswer::from_code)?.answer == CounterAnswer::Ok)
    }

    /// The key of the positions.
    pub(super) fn region_positions(&self) -> String {
        self.first_key(REGION_POSITIONS)
    }

    fn first_key(&self, name: &str) -> String {
        self.partitions().first().keyspace.key(name)
    }
}
