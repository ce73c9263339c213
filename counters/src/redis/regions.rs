//! What other regions have published of counters, and which counters need attention (N12): a hash and a sorted set in each
//! shard. `counter/lib/regions.lua` describes both.

use super::calls::defect;
use super::fan_out::{homes, in_order};
use super::record::read;
use super::{RedisNamespace, record};
use crate::checkpoints::Checkpoint;
use crate::names::{CounterName, RegionName};
use crate::namespace::{Placement, SHARDS};
use crate::refusal::Refusal;
use crate::regions::RegionRecord;
use futures::future::try_join_all;
use std::collections::BTreeMap;
use tallystone_link::ScanPosition;
use tallystone_lua::counter::{BEHIND, CounterScript, REGION_RECORD_BYTES, REGIONS};

/// Records or counters of one script call.
const CALL_MAX: usize = 500;
/// Counters of one step of a walk.
const WALK: usize = 500;

/// What a counter lacks of what other regions have published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The time of a clear of another region that its count does not follow yet, in Unix ms.
    pub clear_ms: Option<u64>,
    /// Its count is not exact to the latest event of another region yet.
    pub is_earlier: bool,
}

impl Lacking {
    /// Whether it lacks anything.
    pub fn is_something(&self) -> bool {
        *self != Lacking::default()
    }
}

impl RedisNamespace {
    /// The region of this process, if it is one of the namespace's.
    pub fn region(&self) -> Option<&RegionName> {
        self.region.as_ref().filter(|region| self.config.regions.contains(region))
    }

    /// The namespace's other regions, in their order.
    pub fn other_regions(&self) -> impl Iterator<Item = &RegionName> {
        self.config.regions.iter().filter(|region| Some(*region) != self.region.as_ref())
    }

    /// What this region publishes of a checkpoint.
    pub fn region_record(&self, checkpoint: &Checkpoint) -> RegionRecord {
        RegionRecord::of(checkpoint, self.record_incarnation)
    }

    /// Merges records of other regions: of each region and counter the latest one stays. A record of a later incarnation hides those
    /// of earlier ones in all shards. Returns how many were later than what stood. May be repeated, in any order.
    pub async fn merge(&self, records: &[(CounterName, RegionName, RegionRecord)]) -> Result<u64, Refusal> {
        let mut incarnations: BTreeMap<&RegionName, u64> = BTreeMap::new();
        for (_, region, record) in records.iter().filter(|(_, _, record)| record.incarnation > 0) {
            let latest = incarnations.entry(region).or_default();
            *latest = record.incarnation.max(*latest);
        }
        let mut by_home: BTreeMap<u16, Vec<usize>> = homes(records.iter().map(|(counter, _, _)| counter)).collect();
        for shard in (0..SHARDS).filter(|_| !incarnations.is_empty()) {
            by_home.entry(shard).or_default();
        }
        let mut merged = 0;
        let no_records: &[usize] = &[];
        for (shard, numbers) in by_home {
            let only_incarnations = numbers.is_empty().then_some(no_records);
            for numbers in numbers.chunks(CALL_MAX).chain(only_incarnations) {
                let mut command = self.log_call(CounterScript::Merge, shard, &self.keys(shard).regions());
                command.arg(incarnations.len());
                for (region, incarnation) in &incarnations {
                    command.arg(region.as_str()).arg(*incarnation);
                }
                for (counter, region, record) in numbers.iter().map(|number| &records[*number]) {
                    command.arg(counter.as_str()).arg(region.as_str()).arg(encode(record));
                }
                merged += self.run(shard, &command).await?.number()?;
            }
        }
        Ok(merged)
    }

    /// Up to `count` counters of a shard that need attention now, those that need it for longest first.
    pub async fn behind(&self, shard: u16, count: usize) -> Result<Vec<CounterName>, Refusal> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys(shard).key(BEHIND)).arg("-inf").arg(self.now_ms()).arg("BYSCORE");
        command.arg("LIMIT").arg(0).arg(count.min(CALL_MAX));
        let names: Vec<String> = self.query(shard, &command).await?;
        names.into_iter().map(CounterName::parse).collect()
    }

    /// These checkpoints of counters of a shard were published; the default one: there is none. Returns what each counter lacks,
    /// in their order. Those that have another checkpoint meanwhile need attention at once. Of the others, those that lack something
    /// need it again after `again_ms`; if they only wait for their own rollup, not before they are `behind_ms` behind.
    pub async fn attend(
        &self,
        shard: u16,
        published: &[(CounterName, Checkpoint)],
        again_ms: u64,
        behind_ms: u64,
    ) -> Result<Vec<Lacking>, Refusal> {
        if published.is_empty() {
            return Ok(Vec::new());
        }
        let others: Vec<&str> = self.other_regions().map(RegionName::as_str).collect();
        let mut command = self.log_call(CounterScript::Attend, shard, &self.keys(shard).regions());
        command.arg(again_ms).arg(behind_ms).arg(others.len()).arg(others);
        for (counter, checkpoint) in published {
            command.arg(counter.as_str()).arg(published_of(checkpoint));
        }
        let mut reply = self.run(shard, &command).await?;
        let mut lacking = Vec::with_capacity(published.len());
        for _ in published {
            let clear_ms = Some(reply.number()?).filter(|clear_ms| *clear_ms > 0);
            lacking.push(Lacking { clear_ms, is_earlier: reply.number()? == 1 });
        }
        Ok(lacking)
    }

    /// The latest records of counters: of each counter, in their order, one for each other region, or none.
    pub async fn known(&self, counters: &[CounterName]) -> Result<Vec<Vec<Option<RegionRecord>>>, Refusal> {
        let others: Vec<&RegionName> = self.other_regions().collect();
        if others.is_empty() {
            return Ok(vec![Vec::new(); counters.len()]);
        }
        let known = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.keys(shard).key(REGIONS));
            command.arg(others.iter().map(|region| region.as_str()).collect::<Vec<&str>>());
            for number in &numbers {
                command.arg(others.iter().map(|region| format!("{region}/{}", counters[*number])).collect::<Vec<_>>());
            }
            let raws: Vec<Option<Vec<u8>>> = self.query(shard, &command).await?;
            let (latest, records) = raws.split_at_checked(others.len()).ok_or_else(|| defect("too few records"))?;
            let latest = latest.iter().map(incarnation).collect::<Result<Vec<u64>, Refusal>>()?;
            let records = records.chunks_exact(others.len()).map(|raws| latest_of(raws, &latest));
            Ok::<_, Refusal>((numbers, records.collect::<Result<Vec<_>, Refusal>>()?))
        };
        in_order(counters.len(), try_join_all(homes(counters.iter()).map(known)).await?)
    }

    /// A counter that needs attention does so again after `after_ms`, unless another checkpoint of it is committed before.
    pub async fn attend_later(&self, counter: &CounterName, after_ms: u64) -> Result<(), Refusal> {
        let shard = Placement::of(counter).home();
        let mut command = redis::cmd("ZADD");
        command
            .arg(self.keys(shard).key(BEHIND))
            .arg("XX")
            .arg("GT")
            .arg(self.now_ms() + after_ms)
            .arg(counter.as_str());
        self.query::<u64>(shard, &command).await.map(drop)
    }

    /// Every counter with a checkpoint needs attention: the namespace has regions from now on, or others than before.
    pub async fn put_all_behind(&self) -> Result<(), Refusal> {
        try_join_all((0..SHARDS).map(|shard| self.put_shard_behind(shard))).await.map(drop)
    }

    async fn put_shard_behind(&self, shard: u16) -> Result<(), Refusal> {
        let (counts, behind) = (self.keys(shard).counts(), self.keys(shard).key(BEHIND));
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            // A checkpoint that cannot be read does not keep the others from being published.
            let (pairs, next) = self.scan::<Vec<(String, Vec<u8>)>>(shard, "HSCAN", &counts, from, WALK).await?;
            for pairs in pairs.chunks(CALL_MAX) {
                let mut command = redis::cmd("ZADD");
                command.arg(&behind).arg("NX");
                for (name, _) in pairs {
                    command.arg(0).arg(name);
                }
                self.query::<u64>(shard, &command).await?;
            }
            position = next;
        }
        self.verify_shards([shard]).await
    }

    /// How many counters need attention, now or later.
    pub async fn num_behind(&self) -> Result<u64, Refusal> {
        let count = async |shard| {
            let mut command = redis::cmd("ZCARD");
            self.query::<u64>(shard, command.arg(self.keys(shard).key(BEHIND))).await
        };
        Ok(try_join_all((0..SHARDS).map(count)).await?.into_iter().sum())
    }
}

/// What was published, as `counter/attend.lua` compares it.
fn published_of(checkpoint: &Checkpoint) -> String {
    match *checkpoint == Checkpoint::default() {
        true => "0".to_owned(),
        false => record::stand_of(checkpoint),
    }
}

/// The records of a counter. One of an earlier incarnation is of a counter that is no more.
fn latest_of(raws: &[Option<Vec<u8>>], latest: &[u64]) -> Result<Vec<Option<RegionRecord>>, Refusal> {
    let of_region = |(raw, latest): (&Option<Vec<u8>>, &u64)| -> Result<Option<RegionRecord>, Refusal> {
        let record = raw.as_deref().map(decode).transpose()?;
        Ok(record.filter(|record| record.incarnation >= *latest))
    };
    raws.iter().zip(latest).map(of_region).collect()
}

fn encode(record: &RegionRecord) -> Vec<u8> {
    let mut out = Vec::with_capacity(REGION_RECORD_BYTES);
    let mut put = |number: u64, bytes: usize| out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
    put(record.incarnation, 6);
    put(record.cleared_ms, 6);
    put(record.epoch.into(), 4);
    put(record.exact_to_ms, 6);
    put(record.last_write_ms, 6);
    put(record.count as u64, 8);
    out
}

fn decode(raw: &[u8]) -> Result<RegionRecord, Refusal> {
    if raw.len() != REGION_RECORD_BYTES {
        return Err(defect("an unreadable record of a region"));
    }
    Ok(RegionRecord {
        incarnation: read(&raw[..6]),
        cleared_ms: read(&raw[6..12]),
        epoch: read(&raw[12..16]) as u32,
        exact_to_ms: read(&raw[16..22]),
        last_write_ms: read(&raw[22..28]),
        count: read(&raw[28..]) as i64,
    })
}

/// The latest incarnation of a region, as its field has it.
fn incarnation(raw: &Option<Vec<u8>>) -> Result<u64, Refusal> {
    let Some(raw) = raw else { return Ok(0) };
    let digits = std::str::from_utf8(raw).ok().and_then(|text| text.parse().ok());
    digits.ok_or_else(|| defect("an unreadable incarnation of a region"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_record_of_a_region_reads_back() {
        let largest = (1 << 48) - 1;
        for count in [0, -1, i64::MIN, i64::MAX] {
            let record = RegionRecord {
                incarnation: 7,
                cleared_ms: largest,
                epoch: u32::MAX,
                exact_to_ms: 1_795_176_000_000,
                last_write_ms: 3,
                count,
            };
            let raw = encode(&record);
            assert_eq!(decode(&raw), Ok(record));
            assert!(decode(&raw[1..]).is_err());
        }
    }
}
