//! The entries of an outbox stream.

use super::reply::defect;
use redis::{Value, from_redis_value};
use tallystone_link::LinkError;
use tallystone_lua::record;
use tallystone_model::{Event, Recorded, Refusal, Shard};

/// One entry of an outbox.
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) at_ms: u64,
    /// The offset of its first event.
    pub(super) offset: u64,
    pub(super) count: u64,
    /// Without events, and with a count: the entry cannot be decoded.
    pub(super) events: Vec<Recorded>,
    /// A new timeline begins with this entry: the offset that the next event of the earlier one would have had.
    pub(super) continues: Option<u64>,
}

/// Decodes the reply of XRANGE or XREAD for one stream.
pub(super) fn decode(shard: &Shard, entries: Value) -> Result<Vec<Entry>, Refusal> {
    /// Its id, then the fields `t` (Unix ms) and `e` (packed events).
    type Raw = (String, (String, u64, String, Vec<u8>));
    let raw: Vec<Raw> = read(entries)?;
    let entry = |(id, (_, at_ms, _, packed)): Raw| {
        let numbers = id.split_once('-').and_then(|(offset, count)| Some((offset.parse().ok()?, count.parse().ok()?)));
        let (offset, count) = numbers.ok_or_else(|| defect("an entry without offset"))?;
        let continues = record::decode_timeline_mark(&packed);
        if continues.is_some() {
            return Ok(Entry { id, at_ms, offset, count, events: Vec::new(), continues });
        }
        let events = record::decode_events(at_ms, &packed).unwrap_or_else(|error| {
            // A retry would fail again, and later entries must not wait for this one.
            tracing::error!(shard = shard.tag(), id, %error, "an outbox entry cannot be decoded; its events are lost");
            Vec::new()
        });
        let numbered = events.into_iter().zip(offset..);
        let recorded = |(mut event, offset): (Event, u64)| {
            event.fencing_token = shard.token(event.fencing_token);
            Recorded { shard: shard.clone(), offset, event }
        };
        let events = numbered.map(recorded).collect();
        Ok(Entry { id, at_ms, offset, count, events, continues })
    };
    raw.into_iter().map(entry).collect()
}

/// Converts a reply of Redis, which may be the error of one command of a pipeline ([`tallystone_link::Link::calls`]).
pub(super) fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Refusal> {
    match value {
        Value::ServerError(error) => Err(LinkError::from(error).into()),
        value => from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::parse_redis_value;
    use tallystone_model::Applied;

    #[test]
    fn x3_the_error_of_one_command_of_a_pipeline_says_what_it_says_alone() {
        for error in [
            "MOVED 3999 127.0.0.1:6381",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "LOADING Redis is loading the dataset in memory",
        ] {
            let answer = || parse_redis_value(format!("-{error}\r\n").as_bytes()).unwrap();
            let refused: [Refusal; 2] =
                [read::<bool>(answer()).unwrap_err(), read::<Option<u64>>(answer()).unwrap_err()];
            for refusal in refused {
                assert!(matches!(refusal, Refusal::Unavailable { applied: Applied::No, .. }), "{error}: {refusal:?}");
            }
        }
        let defect = parse_redis_value(b"-WRONGTYPE Operation against a key\r\n").unwrap();
        assert!(matches!(read::<bool>(defect), Err(Refusal::Internal(_))));
        assert_eq!(read::<bool>(Value::Int(1)), Ok(true));
    }
}
