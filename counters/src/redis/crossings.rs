//! The lists of crossings (N16): a stream in each shard, to which `counter/lib/crossings.lua` appends.

use super::calls::defect;
use super::{RedisNamespace, record};
use crate::crossings::{CrossingEntry, CrossingLists};
use crate::names::CounterName;
use crate::refusal::Refusal;
use redis::Cmd;
use std::collections::HashMap;
use tallystone_link::StreamId;
use tallystone_lua::counter::CROSSINGS;

/// An entry as Redis gives it: its id, and its fields with their values.
type Raw = (String, HashMap<String, Vec<u8>>);

impl CrossingLists for RedisNamespace {
    async fn shard_ms(&self, shard: u16) -> Result<u64, Refusal> {
        let (s, us): (u64, u64) = self.query(shard, &redis::cmd("TIME")).await?;
        Ok(s * 1_000 + us / 1_000)
    }

    async fn entries(&self, shard: u16, from: StreamId, count: usize) -> Result<Vec<CrossingEntry>, Refusal> {
        let mut command = self.of_stream("XRANGE", shard);
        command.arg(from.to_string()).arg("+").arg("COUNT").arg(count);
        let found: Vec<Raw> = self.query(shard, &command).await?;
        found.into_iter().map(|raw| entry(raw).ok_or_else(|| defect("an unreadable crossing"))).collect()
    }

    async fn last_before(&self, shard: u16, id: StreamId) -> Result<StreamId, Refusal> {
        if id == StreamId::default() {
            return Ok(id);
        }
        let mut command = self.of_stream("XREVRANGE", shard);
        command.arg(format!("({id}")).arg("-").arg("COUNT").arg(1);
        let found: Vec<Raw> = self.query(shard, &command).await?;
        match found.first() {
            None => Ok(StreamId::default()),
            Some((id, _)) => StreamId::parse(id).ok_or_else(|| defect("an unreadable crossing")),
        }
    }
}

impl RedisNamespace {
    fn of_stream(&self, command: &str, shard: u16) -> Cmd {
        let mut command = redis::cmd(command);
        command.arg(self.keys(shard).key(CROSSINGS));
        command
    }
}

fn entry((id, mut fields): Raw) -> Option<CrossingEntry> {
    let mut text = |field: &str| String::from_utf8(fields.remove(field)?).ok();
    let (counter, before) = (CounterName::parse(text("c")?).ok()?, StreamId::parse(&text("p")?)?);
    let (count, exact_to_ms, thresholds) = record::decode_crossing(fields.get("r")?)?;
    Some(CrossingEntry { id: StreamId::parse(&id)?, before, counter, count, exact_to_ms, thresholds })
}
