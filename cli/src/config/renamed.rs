//! Names of earlier versions, and what they are called now: an error can say so.

/// Keys that stood at the top of the file, and where they are now.
const KEYS: &[(&str, &str)] = &[
    ("allow_volatile", "`allow_volatile` in [redis]"),
    ("elasticsearch", "`url` in [elasticsearch]"),
    ("elasticsearch_prefix", "`index_prefix` in [elasticsearch]"),
    ("elasticsearch_replicas", "`replicas` in [elasticsearch]"),
    ("elasticsearch_shards", "`shards` in [elasticsearch]"),
    ("history_bytes_max", "`bytes_max` in [history]"),
    ("history_file", "`file` in [history]"),
    ("history_payload_bytes", "`payload_bytes_kept` in [outbox]"),
    ("history_retention_ms", "`retention_ms` in [history]"),
    ("indexer_batch_bytes", "`batch_bytes` in [indexer]"),
    ("indexer_batch_events", "`batch_events` in [indexer]"),
    ("indexer_group", "`group` in [indexer]"),
    ("kafka", "`brokers` in [kafka]"),
    ("kafka_partitions", "`partitions` in [kafka]"),
    ("kafka_properties", "`properties` in [kafka]"),
    ("kafka_replicas", "`replicas` in [kafka]"),
    ("kafka_retention_ms", "`retention_ms` in [kafka]"),
    ("kafka_topic", "`topic` in [kafka]"),
    ("listen", "`listen` in [server], [indexer] or [counters] (TALLYSTONE_SERVER_LISTEN and so on)"),
    ("metrics_listen", "`metrics_listen` in [server], [indexer], [counters] or [rollup_worker]"),
    ("outbox_events_max", "`events_max` in [outbox]"),
    ("outbox_full", "`full` in [outbox]"),
    ("redis_url", "`url` in [redis]"),
    ("relay_lead_ms", "`relay_leader_lease_ms` in [outbox]"),
    ("replica_wait_ms", "`replica_wait_ms` in [redis]"),
    ("replicas_min", "`replicas_min` in [redis]"),
    ("server", "`queue_url` in [counters] or [rollup_worker]"),
    ("sweep_lead_ms", "`sweeper_leader_lease_ms` in [server]"),
];

/// Flags and verbs, and their names now.
const ARGUMENTS: &[(&str, &str)] =
    &[("--kafka", "--kafka-brokers"), ("--elasticsearch", "--elasticsearch-url"), ("worker", "rollup-worker")];

/// Where a key of an earlier version is now.
pub(super) fn renamed_key(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(old, _)| *old == key).map(|(_, new)| *new)
}

/// The name of a flag or verb of an earlier version now.
pub(crate) fn renamed_argument(argument: &str) -> Option<&'static str> {
    let argument = argument.split_once('=').map_or(argument, |(name, _)| name);
    ARGUMENTS.iter().find(|(old, _)| *old == argument).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sections::sections;

    #[test]
    fn every_new_name_exists() {
        let sections = sections();
        for (old, new) in KEYS {
            let (key, rest) = new.trim_start_matches('`').split_once('`').unwrap();
            for section in rest.split('[').skip(1).map(|part| part.split(']').next().unwrap()) {
                let keys = sections[section].as_ref().unwrap_or_else(|| panic!("[{section}] has no keys"));
                assert!(keys.iter().any(|known| known == key), "{old}: {section}.{key}");
            }
        }
    }
}
