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
    ("listen", "`listen` in [server], [indexer], [counters], [views] or [ingest] (TALLYSTONE_SERVER_LISTEN and so on)"),
    ("metrics_listen", "`metrics_listen` in [server], [indexer], [counters], [rollup_worker], [views] or [ingest]"),
    ("outbox_events_max", "`events_max` in [outbox]"),
    ("outbox_full", "`full` in [outbox]"),
    ("redis_url", "`url` in [redis]"),
    ("relay_lead_ms", "`relay_leader_lease_ms` in [outbox]"),
    ("replica_wait_ms", "`replica_wait_ms` in [redis]"),
    ("replicas_min", "`replicas_min` in [redis]"),
    ("server", "`queue_url` in [counters] or [rollup_worker]"),
    ("sweep_lead_ms", "`sweeper_leader_lease_ms` in [server]"),
];

/// Sections of the file, and their names now.
const SECTIONS: &[(&str, &str)] = &[("worker", "rollup_worker")];

/// Flags and verbs, and their names now.
const ARGUMENTS: &[(&str, &str)] =
    &[("--kafka", "--kafka-brokers"), ("--elasticsearch", "--elasticsearch-url"), ("worker", "rollup-worker")];

/// Where a key of an earlier version is now.
pub(super) fn renamed_key(key: &str) -> Option<&'static str> {
    new_name(KEYS, key)
}

/// The name of a section of an earlier version now.
pub(super) fn renamed_section(section: &str) -> Option<&'static str> {
    new_name(SECTIONS, section)
}

fn new_name(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

/// What to say about a flag or verb of an earlier version, as it was given. The value of `--flag=value` is left out, because it may be
/// a password.
pub(crate) fn renamed_argument(given: &str) -> Option<String> {
    let given = given.split_once('=').map_or(given, |(name, _)| name);
    let (old, new) = ARGUMENTS.iter().find(|(old, _)| *old == given)?;
    let kind = if old.starts_with("--") { "flag" } else { "command" };
    Some(format!("the {kind} `{old}` is now `{new}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sections::sections;

    #[test]
    fn a_renamed_argument_is_shown_without_its_value() {
        assert_eq!(renamed_argument("worker").unwrap(), "the command `worker` is now `rollup-worker`");
        let flag = renamed_argument("--elasticsearch=http://user:secret@e").unwrap();
        assert_eq!(flag, "the flag `--elasticsearch` is now `--elasticsearch-url`");
        assert_eq!(renamed_argument("--elasticsearch-url"), None);
    }

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
        for (old, new) in SECTIONS {
            assert!(sections.contains_key(*new) && !sections.contains_key(*old), "{old}: [{new}]");
        }
    }
}
