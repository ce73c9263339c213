//! Refusals name fields of the protocol; a person at the command line knows flags, and a file of messages has its own
//! fields.

use crate::duration::format_ms;
use tallystone_client::Refused;

/// The end of a field's path, and what sets the field here. The first that matches counts.
const FLAGS: &[(&str, &str)] = &[
    ("accept_limit_ms", "--accept-limit"),
    ("adds_per_s", "--adds-per-s"),
    ("retry_backoff.base_ms", "--backoff-base"),
    ("retry_backoff.jitter_percent", "--backoff-jitter"),
    ("retry_backoff.kind", "--backoff"),
    ("retry_backoff.max_ms", "--backoff-max"),
    ("after", "--after"),
    ("archived", "--archived"),
    ("buckets_per_id", "--buckets-per-id"),
    ("capacity_bytes", "--capacity-bytes"),
    ("changed_from_ms", "--since"),
    ("changed_to_ms", "--until"),
    ("close_after_ms", "--close-after"),
    ("coalesce_ms", "--coalesce"),
    ("counter", "COUNTER"),
    ("counter_type", "--type"),
    ("delete_after_ms", "--delete-after"),
    ("delta", "DELTA"),
    ("enqueued_from_ms", "--since"),
    ("enqueued_to_ms", "--until"),
    ("entered_from_ms", "--since"),
    ("entered_to_ms", "--until"),
    ("errored_retention_ms", "--errored-retention"),
    ("exclusivity_key", "--exclusive"),
    ("expire_after_ms", "--expire-after"),
    ("queue_type.exclusive.key", "--exclusive"),
    ("filters", "--filter"),
    ("selection.filter", "--where"),
    ("selection.reason", "--reason-equals"),
    ("selection.reason_contains", "--reason-contains"),
    ("selection.states", "--state"),
    ("filter", "--filter"),
    ("from_ms", "--since"),
    ("generation_time_ms", "--at"),
    ("group_by_key", "--group-by"),
    ("id", "the id"),
    ("id_window_ms", "--id-window"),
    ("indexes", "--index"),
    ("interval_ms", "--interval"),
    ("invisibility_ms", "--invisibility"),
    ("lease_ms", "--lease"),
    ("machine_cores", "--machine-cores"),
    ("machine_memory", "--machine-memory-gib"),
    ("max_attempts", "--max-attempts"),
    ("max_depth", "--max-depth"),
    ("max_errored", "--max-errored"),
    ("max_errored_bytes", "--max-errored-bytes"),
    ("messages.metadata", "--meta"),
    ("metadata", "--where"),
    ("min_exact_to_ms", "--exact-to"),
    ("name", "NAME"),
    ("name_bytes", "--name-bytes"),
    ("namespace", "--namespace"),
    ("num_counters", "--num-counters"),
    ("num_queues", "--num-queues"),
    ("payload", "--payload"),
    ("persistence_configuration", "--file"),
    ("priority", "--priority"),
    ("priority_class", "--priority-class"),
    ("priority_classes.offsets_ms", "--priority-class"),
    ("priority_classes.override_key", "--priority-class-key"),
    ("priority_max", "--priority-max"),
    ("priority_min", "--priority-min"),
    ("published_to", "--publish-to"),
    ("published_to.field", "--publish-to"),
    ("published_to.key", "--publish-to"),
    ("queue", "QUEUE"),
    ("queue_prefix", "--prefix"),
    ("reason", "--reason"),
    ("reason_contains", "--reason"),
    ("retention_ms", "--retention"),
    ("rollup_batch_count", "--rollup-batch-count"),
    ("seconds_per_bucket", "--seconds-per-bucket"),
    ("seconds_per_slice", "--seconds-per-slice"),
    ("terminal_retention_ms", "--retention"),
    ("to_ms", "--until"),
    ("token.token", "--token"),
    ("thresholds", "--threshold"),
    ("thresholds.count", "--threshold"),
    ("thresholds.prefix", "--threshold"),
    ("ttl_ms", "--ttl"),
    ("visible_at_ms", "--visible-at"),
    ("wait_ms", "--wait"),
    ("worker", "--name"),
];

/// Flags whose value is a duration; the protocol has milliseconds.
const DURATIONS: &[&str] = &[
    "--accept-limit",
    "--backoff-base",
    "--backoff-max",
    "--close-after",
    "--coalesce",
    "--delete-after",
    "--errored-retention",
    "--id-window",
    "--interval",
    "--invisibility",
    "--lease",
    "--retention",
    "--ttl",
    "--wait",
];

/// Why a call or its only item was refused, in terms of the command line.
pub(crate) fn in_flags(refused: &Refused) -> String {
    let in_flags = parts(refused).and_then(|(field, why)| with_flag(&field, why));
    in_flags.unwrap_or_else(|| refused.to_string())
}

/// What is wrong with a field, in terms of the command line. `None`: no flag sets it.
pub(crate) fn with_flag(field: &str, why: &str) -> Option<String> {
    let set_by = FLAGS
        .iter()
        .find(|(end, _)| field.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.')));
    let (_, flag) = set_by?;
    let why = if DURATIONS.contains(flag) { with_units(why) } else { why.to_owned() };
    let is_sentence = ["is ", "has ", "needs "].iter().any(|verb| why.starts_with(verb));
    let gap = if is_sentence { " " } else { ": " };
    Some(format!("{flag}{gap}{why}"))
}

/// Why a line of a file was refused: its own fields are those of the protocol.
pub(crate) fn in_line(refused: &Refused) -> String {
    match parts(refused) {
        Some((field, why)) => match field.split_once('.') {
            Some((_, field)) => format!("{field}: {why}"),
            None => refused.to_string(),
        },
        None => refused.to_string(),
    }
}

/// The field without the places in lists, and what is wrong with it.
fn parts(refused: &Refused) -> Option<(String, &str)> {
    let field = refused.field.as_ref()?;
    let why = refused.message.strip_prefix(field.as_str())?.strip_prefix(": ")?;
    let names: Vec<&str> = field.split('.').map(|name| name.split('[').next().unwrap_or_default()).collect();
    Some((names.join("."), why))
}

/// Numbers of milliseconds as durations: `is 1ms; must be from 100ms to 12h`.
fn with_units(why: &str) -> String {
    let word = |word: &str| {
        let number = word.trim_end_matches([';', ',', '.']);
        match number.parse() {
            Ok(ms) => format!("{}{}", format_ms(ms), &word[number.len()..]),
            Err(_) => word.to_owned(),
        }
    };
    why.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeSet;
    use tallystone_client::{Applied, Code};

    fn refused(field: &str, why: &str) -> Refused {
        Refused {
            code: Code::InvalidArgument,
            reason: "INVALID_ARGUMENT".to_owned(),
            message: format!("{field}: {why}"),
            field: Some(field.to_owned()),
            metadata: [].into(),
            applied: Applied::No,
            retry_after: None,
        }
    }

    #[test]
    fn fields_are_named_as_they_are_typed() {
        for (field, why, text) in [
            ("config.lease_ms", "is 1; must be from 1000 to 43200000", "--lease is 1ms; must be from 1s to 12h"),
            ("messages[0].metadata", "pair \"a\": is empty", "--meta: pair \"a\": is empty"),
            ("config.retry_backoff.max_ms", "is 5; must be", "--backoff-max is 5ms; must be"),
            ("config.max_attempts", "is 0; must be from 1", "--max-attempts is 0; must be from 1"),
            ("page_token", "is not one of ours", "page_token: is not one of ours"),
        ] {
            assert_eq!(in_flags(&refused(field, why)), text);
        }
        assert_eq!(in_line(&refused("messages[7].metadata", "has 5 pairs")), "metadata: has 5 pairs");
    }

    #[test]
    fn every_flag_exists() {
        fn collect(command: &clap::Command, flags: &mut BTreeSet<String>) {
            flags.extend(command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
            command.get_subcommands().for_each(|verb| collect(verb, flags));
        }
        let mut flags = BTreeSet::new();
        collect(&Cli::command(), &mut flags);
        let named = FLAGS.iter().map(|(_, flag)| *flag).chain(DURATIONS.iter().copied());
        let unknown: Vec<&str> = named.filter(|flag| flag.starts_with("--") && !flags.contains(*flag)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
