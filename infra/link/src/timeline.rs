//! The timeline of a Redis: which history of writes it continues (Q17). The term is PostgreSQL's.
//!
//! Redis chooses a new replication id whenever its data may not be what its callers last saw: at each start, and when a
//! replica becomes the primary. Scripts compare the timeline of a call with that of the shard, and leave a gap in every
//! number that they hand out when it differs: what was handed out and then lost is never handed out again (decision 0076).

use redis::InfoDict;

/// A timeline, as four bytes of its replication id. They differ between two timelines, and have no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline(pub(crate) u32);

/// A primary's timeline, and the one that it continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(crate) current: Timeline,
    /// The primary that this node replicated before it became one itself; `None`: it was none's replica since its start.
    pub(crate) before: Option<Timeline>,
}

impl Timeline {
    /// Of a Redis that does not say which it is. Scripts do not compare it.
    pub(crate) const UNKNOWN: Timeline = Timeline(0);

    fn of(replication_id: &str) -> Timeline {
        let number = replication_id.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        // 0 stands for unknown: one id in four billion begins with it.
        number.map_or(Timeline::UNKNOWN, |number| Timeline(number.max(1)))
    }
}

impl Lineage {
    /// Reads it from `INFO replication`.
    pub(crate) fn of(info: &InfoDict) -> Lineage {
        let id = |name| info.get::<String>(name).unwrap_or_default();
        let (current, before) = (id("master_replid"), id("master_replid2"));
        let had_primary = before.bytes().any(|digit| digit != b'0');
        Lineage { current: Timeline::of(&current), before: had_primary.then(|| Timeline::of(&before)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_a_lineage_is_read_from_both_replication_ids() {
        let zeros = "0".repeat(40);
        let lineage = |current: &str, before: &str| {
            let info = format!("role:master\r\nmaster_replid:{current}\r\nmaster_replid2:{before}\r\n");
            Lineage::of(&redis::from_redis_value(redis::Value::BulkString(info.into_bytes())).expect("an INFO"))
        };
        let first = lineage("8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb", &zeros);
        assert_eq!(first, Lineage { current: Timeline(0x8371_b4fb), before: None });
        let promoted = lineage("00000000ffffffff4a04d3e1bc3e18c4a990aeeb", "8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb");
        assert_eq!(promoted, Lineage { current: Timeline(1), before: Some(first.current) });
        assert_eq!(lineage("", ""), Lineage::default());
    }
}
