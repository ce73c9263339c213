//! Queues whose history is kept for the same time.

use super::options::EmbeddedOptions;

/// The queues whose names begin with a prefix, except those with a longer one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueuesKept {
    pub(super) retention_ms: u64,
    /// Empty: all queues.
    prefix: String,
    except: Vec<String>,
}

impl QueuesKept {
    /// All queues, by their retention.
    pub(super) fn of(options: &EmbeddedOptions) -> Vec<QueuesKept> {
        let others = (String::new(), options.retention_ms);
        let all = std::iter::once(&others).chain(&options.retentions);
        let kept = all.map(|(prefix, retention_ms)| {
            let longer = options.retentions.iter().map(|(other, _)| other);
            let except = longer.filter(|other| other.len() > prefix.len() && other.starts_with(prefix.as_str()));
            QueuesKept { retention_ms: *retention_ms, prefix: prefix.clone(), except: except.cloned().collect() }
        });
        kept.collect()
    }

    /// The condition on a row of `queues`, with one parameter for each of the prefixes.
    pub(super) fn condition(&self) -> String {
        let begins = |number: usize| format!("substr(name, 1, length(?{number})) = ?{number}");
        let but = (0..self.except.len()).map(|other| format!(" AND NOT {}", begins(other + 2)));
        but.fold(begins(1), |condition, but| condition + &but)
    }

    pub(super) fn prefixes(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.prefix.as_str()).chain(self.except.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_the_longest_prefix_applies() {
        let retentions = vec![("a/".to_owned(), 2), ("a/b/".to_owned(), 3)];
        let options = EmbeddedOptions { retention_ms: 1, retentions, ..EmbeddedOptions::new("h.db") };
        let kept = QueuesKept::of(&options);
        let of = |kept: &QueuesKept| (kept.retention_ms, kept.prefixes().collect::<Vec<_>>().join(" but "));
        let expected = [(1, " but a/ but a/b/"), (2, "a/ but a/b/"), (3, "a/b/")];
        assert_eq!(kept.iter().map(of).collect::<Vec<_>>(), expected.map(|(ms, prefixes)| (ms, prefixes.to_owned())));
        assert_eq!(kept[1].condition(), "substr(name, 1, length(?1)) = ?1 AND NOT substr(name, 1, length(?2)) = ?2");
    }
}
