//! `[[history.groups]]`: queues whose history has its own indices and retention, and may have its own topic.

use crate::elastic::check_prefix;
use serde::{Deserialize, Serialize};
use tallystone_model::{ConfigError, QueueName};

/// The most groups: a search over all queues names the indices of each in one line.
const GROUPS_MAX: usize = 10;
const NAME_BYTES_MAX: usize = 24;
/// The kinds of indices. A group with such a name would have indices of the other queues.
const KINDS: [&str; 6] = ["current", "historic", "payload", "progress", "losses", "hours"];

/// The history of the queues whose names begin with a prefix, unless a longer prefix of another group fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryGroup {
    /// The word in the names of its indices.
    pub name: String,
    /// The beginning of the names of its queues.
    pub prefix: String,
    /// The topic of its events; `None`: `kafka.topic`.
    #[serde(default)]
    pub topic: Option<String>,
    /// How long its history is kept, ms; `None`: `history.retention_ms`.
    #[serde(default)]
    pub retention_ms: Option<u64>,
}

impl HistoryGroup {
    /// The prefix of its indices.
    pub(crate) fn index_prefix(&self, all: &str) -> String {
        format!("{all}-{}", self.name)
    }

    fn check(&self, field: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let is_word = self.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !is_word || KINDS.contains(&self.name.as_str()) {
            let why = format!("is {:?}; must be 1 to {NAME_BYTES_MAX} of a-z 0-9 _, and none of {KINDS:?}", self.name);
            return Err(ConfigError::new(field("name"), why));
        }
        QueueName::parse("prefix", &self.prefix)
            .map_err(|refusal| ConfigError::new(field("prefix"), refusal.to_string()))?;
        let Some(retention_ms) = self.retention_ms else { return Ok(()) };
        ConfigError::unless_within(&field("retention_ms"), retention_ms, 60_000..=3_650 * 86_400_000)
    }
}

/// The one whose prefix is the longest of those with which the name of a queue begins. The first one has the empty prefix.
pub(crate) fn longest_prefix<'a, T>(all: &'a [T], prefix: impl Fn(&T) -> &str, queue: &str) -> &'a T {
    let matching = all.iter().filter(|one| queue.starts_with(prefix(one)));
    matching.max_by_key(|one| prefix(one).len()).unwrap_or(&all[0])
}

/// Checks every group; the error names the first bad field.
pub(crate) fn check(groups: &[HistoryGroup]) -> Result<(), ConfigError> {
    if groups.len() > GROUPS_MAX {
        return Err(ConfigError::new("history.groups", format!("has {} groups; at most {GROUPS_MAX}", groups.len())));
    }
    for (number, group) in groups.iter().enumerate() {
        let field = |key: &str| format!("history.groups[{number}].{key}");
        group.check(field)?;
        let earlier = &groups[..number];
        let twice = |key: &str, value: &str| Err(ConfigError::new(field(key), format!("{value:?} occurs twice")));
        if earlier.iter().any(|other| other.name == group.name) {
            return twice("name", &group.name);
        }
        if earlier.iter().any(|other| other.prefix == group.prefix) {
            return twice("prefix", &group.prefix);
        }
        if let Some(topic) = &group.topic
            && earlier.iter().any(|other| other.topic == group.topic)
        {
            return twice("topic", topic);
        }
    }
    Ok(())
}

/// Checks the names that the groups give to indices.
pub(crate) fn check_index_prefixes(groups: &[HistoryGroup], all: &str) -> Result<(), ConfigError> {
    for (number, group) in groups.iter().enumerate() {
        check_prefix(&group.index_prefix(all))
            .map_err(|why| ConfigError::new(format!("history.groups[{number}].name"), why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, prefix: &str) -> HistoryGroup {
        HistoryGroup { name: name.to_owned(), prefix: prefix.to_owned(), topic: None, retention_ms: None }
    }

    #[test]
    fn q19_each_bad_field_of_a_group_is_named() {
        let good = [group("billing", "billing/"), group("b_2", "billing/eu/")];
        assert_eq!(check(&good), Ok(()));
        let of_topic = |name: &str| HistoryGroup { topic: Some("t".to_owned()), ..group(name, &format!("{name}/")) };
        let many: Vec<HistoryGroup> = (0..11).map(|n| group(&format!("g{n}"), &format!("g{n}/"))).collect();
        for (field, bad) in [
            ("history.groups[0].name", vec![group("", "a")]),
            ("history.groups[0].name", vec![group("Billing", "a")]),
            ("history.groups[0].name", vec![group("historic", "a")]),
            ("history.groups[1].name", vec![group("a", "a"), group("a", "b")]),
            ("history.groups[0].prefix", vec![group("a", "")]),
            ("history.groups[1].prefix", vec![group("a", "a"), group("b", "a")]),
            ("history.groups[1].topic", vec![of_topic("a"), of_topic("b")]),
            ("history.groups[0].retention_ms", vec![HistoryGroup { retention_ms: Some(1), ..group("a", "a") }]),
            ("history.groups", many),
        ] {
            assert_eq!(check(&bad).unwrap_err().field, field);
        }
        assert!(check_index_prefixes(&good, &"x".repeat(60)).is_err());
        assert_eq!(check_index_prefixes(&good, "tallystone"), Ok(()));
    }
}
