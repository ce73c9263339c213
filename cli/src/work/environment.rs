//! The environment of a command: what it knows of its message, and what it does not get of the worker's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use tallystone_client::Lease;
use tallystone_proto::{TRACEPARENT, TRACESTATE, TraceContext};

/// The variables of this program that a command keeps: where the servers are, what a verb in a command needs, and paths.
/// All others with the prefix are withheld: they configure servers, and may have the password of a Redis or a Kafka
/// (decision 0059).
const KEPT: &[&str] = &[
    "TALLYSTONE_CONFIG",
    "TALLYSTONE_COUNTERS",
    "TALLYSTONE_DATA_DIR",
    "TALLYSTONE_LOG_FORMAT",
    "TALLYSTONE_NAMESPACE",
    "TALLYSTONE_PROGRAM",
    "TALLYSTONE_REDIS_SERVER",
    "TALLYSTONE_SERVER",
    "TALLYSTONE_SERVICES_DIR",
];

/// The names of the worker's variables that a command does not get.
pub(super) fn withheld() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| is_withheld(&name.to_string_lossy()))
}

/// The trace of a command is that of its message, never that of the worker.
fn is_withheld(name: &str) -> bool {
    let is_of_trace = [TRACEPARENT, TRACESTATE].iter().any(|of_trace| name == of_trace.to_uppercase());
    is_of_trace || (name.starts_with("TALLYSTONE_") && !KEPT.contains(&name))
}

/// The variables of a message, and of the span in which its command runs. `key` is the queue's exclusivity key.
pub(super) fn environment(queue: &str, key: Option<&str>, lease: &Lease) -> BTreeMap<String, String> {
    let mut environment = metadata(&lease.metadata);
    let mut set = |name: &str, value: String| environment.insert(format!("TALLYSTONE_{name}"), value);
    set("QUEUE", queue.to_owned());
    set("ID", lease.id.clone());
    set("PRIORITY", lease.priority.to_string());
    set("ATTEMPT", lease.attempt.to_string());
    set("MAX_ATTEMPTS", lease.max_attempts.to_string());
    set("DEADLINE_MS", lease.lease_expires_at_ms.to_string());
    set("FENCING_TOKEN", lease.fencing_token.to_string());
    set("METADATA", serde_json::to_string(&lease.metadata).unwrap_or_default());
    if let Some(value) = key.and_then(|key| lease.metadata.get(key)) {
        set("KEY", value.clone());
    }
    if let Some(context) = TraceContext::current() {
        environment.insert(TRACEPARENT.to_uppercase(), context.traceparent);
        environment.extend(context.tracestate.map(|tracestate| (TRACESTATE.to_uppercase(), tracestate)));
    }
    environment
}

/// A variable for each metadata key. Names of variables have fewer characters than keys: if `a-b` and `a_b` would share
/// one, neither is set, because a command would take one value for the other.
fn metadata(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let mut variables: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for (key, value) in metadata {
        let name = format!("TALLYSTONE_META_{}", key.chars().map(plain).collect::<String>());
        variables.entry(name).or_default().push(value);
    }
    let only = |(name, values): (String, Vec<&String>)| match values.as_slice() {
        [value] => Some((name, (*value).clone())),
        _ => None,
    };
    variables.into_iter().filter_map(only).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(metadata: &[(&str, &str)]) -> Lease {
        Lease {
            id: "2013-01-01T10:15:00Z/UA1545/EWR".to_owned(),
            payload: "".into(),
            priority: i64::MIN,
            metadata: metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            fencing_token: 7,
            attempt: 2,
            max_attempts: 5,
            enqueued_at_ms: 1,
            leased_at_ms: 2,
            lease_expires_at_ms: 3,
            left_ms: 1,
            version: 4,
        }
    }

    #[test]
    fn the_environment_has_every_field_of_the_lease() {
        let lease = lease(&[("tailnum", "N14228"), ("de-st", "IAH")]);
        let expected = [
            ("ATTEMPT", "2"),
            ("DEADLINE_MS", "3"),
            ("FENCING_TOKEN", "7"),
            ("ID", "2013-01-01T10:15:00Z/UA1545/EWR"),
            ("KEY", "N14228"),
            ("MAX_ATTEMPTS", "5"),
            ("METADATA", r#"{"de-st":"IAH","tailnum":"N14228"}"#),
            ("META_DE_ST", "IAH"),
            ("META_TAILNUM", "N14228"),
            ("PRIORITY", "-9223372036854775808"),
            ("QUEUE", "flights"),
        ];
        let expected = expected.map(|(name, value)| (format!("TALLYSTONE_{name}"), value.to_owned()));
        assert_eq!(environment("flights", Some("tailnum"), &lease), BTreeMap::from(expected));
    }

    #[test]
    fn s6_what_configures_a_server_is_withheld() {
        for name in ["TALLYSTONE_REDIS_URL", "TALLYSTONE_KAFKA_PROPERTIES", "TALLYSTONE_META_A", "TRACEPARENT"] {
            assert!(is_withheld(name), "{name}");
        }
        for name in ["TALLYSTONE_SERVER", "PATH", "HOME", "AWS_PROFILE", "MY_TALLYSTONE_REDIS_URL"] {
            assert!(!is_withheld(name), "{name}");
        }
    }

    #[test]
    fn o2_a_command_gets_the_trace_context_in_which_it_runs() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let _current = TraceContext::parse(parent, Some("a=1")).unwrap().remote().attach();
        let environment = environment("q", None, &lease(&[]));
        assert_eq!((environment["TRACEPARENT"].as_str(), environment["TRACESTATE"].as_str()), (parent, "a=1"));
    }

    #[test]
    fn keys_that_share_a_variable_are_only_in_the_json() {
        let environment = environment("q", None, &lease(&[("a-b", "1"), ("a_b", "2"), ("c", "3")]));
        let of_metadata = |(name, _): &(&String, &String)| name.starts_with("TALLYSTONE_META_");
        let shown: Vec<_> = environment.iter().filter(of_metadata).collect();
        assert_eq!(shown, [(&"TALLYSTONE_META_C".to_owned(), &"3".to_owned())]);
        assert_eq!(environment["TALLYSTONE_METADATA"], r#"{"a-b":"1","a_b":"2","c":"3"}"#);
    }
}
