//! Copies the records of damaged ranges from a replica.

use super::super::session::CompactSession;
use super::super::set::Set;
use super::range::Range;
use crate::compact::progress::bar;
use crate::error::CliError;
use redis::{Value, cmd, from_redis_value};
use std::collections::BTreeMap;

/// Ids of a range that are read one by one; of a range with more, a scan of the replica finds those that exist.
const EACH_MAX: u64 = 8 << 20;
const SCAN_COUNT: usize = 1_000;

/// Ids with the values of all fields.
type Records = BTreeMap<u64, Vec<i64>>;

/// Repairs the ranges. Returns the number of ids that were taken over.
pub(super) async fn copy(
    set: &Set,
    ranges: &[Range],
    primary: &mut CompactSession,
    replica: &mut CompactSession,
) -> Result<u64, CliError> {
    let is_narrow = |range: &&Range| range.last - range.first < EACH_MAX;
    let (narrow, wide): (Vec<&Range>, Vec<&Range>) = ranges.iter().partition(is_narrow);
    let progress = bar(ranges.len() as u64, primary.output.json);
    let mut copied = 0;
    for range in narrow {
        let records = each(set, range, replica).await?;
        copied += repair(set, range, &records, primary).await?;
        progress.inc(1);
    }
    if !wide.is_empty() {
        let records = scan(set, &wide, replica).await?;
        for range in wide {
            let records: Records =
                records.range(range.first..=range.last).map(|(id, values)| (*id, values.clone())).collect();
            copied += repair(set, range, &records, primary).await?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(copied)
}

/// The records of a range that are not 0, each id read.
async fn each(set: &Set, range: &Range, replica: &mut CompactSession) -> Result<Records, CliError> {
    let (mut records, step) = (Records::new(), set.ids_per_command() as u64);
    let mut from = range.first;
    loop {
        let to = range.last.min(from.saturating_add(step - 1));
        let packed: Vec<u8> = (from..=to).flat_map(u64::to_le_bytes).collect();
        let reply: Vec<u8> = replica.call(&set.key, cmd("CT.PGET").arg(&set.key).arg(packed)).await?;
        let (words, _) = reply.as_chunks::<8>();
        let values: Vec<i64> = words.iter().map(|word| i64::from_le_bytes(*word)).collect();
        if values.len() as u64 != (to - from + 1) * set.fields.len() as u64 {
            return Err(CliError::unavailable("CT.PGET replied with another number of values"));
        }
        for (id, values) in (from..=to).zip(values.chunks(set.fields.len())) {
            if values.iter().any(|value| *value != 0) {
                records.insert(id, values.to_vec());
            }
        }
        if to == range.last {
            return Ok(records);
        }
        from = to + 1;
    }
}

/// The records of all these ranges, found by a scan.
async fn scan(set: &Set, ranges: &[&Range], replica: &mut CompactSession) -> Result<Records, CliError> {
    let (mut records, mut cursor) = (Records::new(), 0_u128);
    loop {
        let command = cmd("CT.SCAN").arg(&set.key).arg(cursor).arg("COUNT").arg(SCAN_COUNT).to_owned();
        let reply: Vec<Value> = replica.call(&set.key, &command).await?;
        let broken = || CliError::unavailable("CT.SCAN replied with something else than ids and values");
        let mut parts = reply.into_iter();
        cursor = parts.next().and_then(|next| from_redis_value(next).ok()).ok_or_else(broken)?;
        for row in parts {
            let Value::Array(row) = row else { return Err(broken()) };
            let mut row = row.into_iter();
            let id: u64 = row.next().and_then(|id| from_redis_value(id).ok()).ok_or_else(broken)?;
            if ranges.iter().any(|range| (range.first..=range.last).contains(&id)) {
                let values: Result<Vec<i64>, _> = row.map(from_redis_value).collect();
                records.insert(id, values.map_err(|_| broken())?);
            }
        }
        if cursor == 0 {
            return Ok(records);
        }
    }
}

/// Gives a range these records, and 0 to its other ids, in parts that one command has room for.
async fn repair(set: &Set, range: &Range, records: &Records, primary: &mut CompactSession) -> Result<u64, CliError> {
    let most = set.ids_per_command();
    let (mut parts, mut copied) = (vec![(range.first, range.last)], 0);
    while let Some((first, last)) = parts.pop() {
        let within: Vec<_> = records.range(first..=last).take(most + 1).collect();
        if let Some((next, _)) = within.get(most) {
            // This part ends before the first id of the next one.
            parts.extend([(**next, last), (first, **next - 1)]);
            continue;
        }
        let mut packed = Vec::with_capacity(within.len() * (8 + 8 * set.fields.len()));
        for (id, values) in within {
            packed.extend_from_slice(&id.to_le_bytes());
            packed.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let command = cmd("CT.REPAIR").arg(&set.key).arg(first).arg(last).arg(packed).to_owned();
        match primary.attempt::<u64>(&command).await {
            Ok(taken) => copied += taken,
            Err(error) if error.code() == Some("TOOLARGE") && first < last => {
                let middle = first + (last - first) / 2;
                parts.extend([(middle + 1, last), (first, middle)]);
            }
            Err(error) => return Err(primary.explained(&set.key, &error)),
        }
    }
    Ok(copied)
}
