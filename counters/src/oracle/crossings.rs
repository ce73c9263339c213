//! The lists of crossings (N16). Nothing is removed from them.

use super::OracleNamespace;
use crate::crossings::{CrossingEntry, CrossingLists};
use crate::refusal::Refusal;
use tallystone_link::StreamId;

impl CrossingLists for OracleNamespace {
    async fn shard_ms(&self, _: u16) -> Result<u64, Refusal> {
        Ok(self.now_ms())
    }

    async fn entries(&self, shard: u16, from: StreamId, count: usize) -> Result<Vec<CrossingEntry>, Refusal> {
        let world = self.world();
        Ok(world.crossings_of(shard).filter(|entry| entry.id >= from).take(count).cloned().collect())
    }

    async fn last_before(&self, shard: u16, id: StreamId) -> Result<StreamId, Refusal> {
        let world = self.world();
        Ok(world.crossings_of(shard).map(|entry| entry.id).filter(|found| *found < id).last().unwrap_or_default())
    }
}
