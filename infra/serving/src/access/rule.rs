//! Rules: `RIGHT:PATTERN` grants a right, `deny:RIGHT:PATTERN` denies it.

use super::right::Right;
use std::fmt;
use std::str::FromStr;

/// The queues behind the rollups of counters. A pattern grants rights on them only if it begins so.
const INTERNAL: &str = "rollup/";

/// One rule of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    is_denial: bool,
    right: Right,
    pattern: Pattern,
}

/// A name, or the begin of names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(String),
    Prefix(String),
}

impl Pattern {
    fn text(&self) -> &str {
        match self {
            Pattern::Exact(text) | Pattern::Prefix(text) => text,
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Exact(exact) => name == exact,
            Pattern::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }

    /// Whether it matches every name that begins so.
    fn matches_all_of(&self, prefix: &str) -> bool {
        matches!(self, Pattern::Prefix(own) if prefix.starts_with(own.as_str()))
    }

    /// Whether it matches a name that begins so.
    fn matches_any_of(&self, prefix: &str) -> bool {
        self.text().starts_with(prefix) || self.matches_all_of(prefix)
    }
}

impl Rule {
    fn concerns(&self, right: Right) -> bool {
        self.right == right || self.right == Right::Admin
    }

    /// Whether the rule may grant rights on a name. Internal queues belong to the counters alone (S4).
    fn may_grant(&self, name: &str) -> bool {
        !name.starts_with(INTERNAL) || self.pattern.text().starts_with(INTERNAL)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (is_denial, rule) = match text.strip_prefix("deny:") {
            Some(rule) => (true, rule),
            None => (false, text),
        };
        let (right, pattern) = rule
            .split_once(':')
            .ok_or_else(|| format!("{text:?} is not a rule; write RIGHT:PATTERN, such as consume:orders/*"))?;
        let right = right.parse()?;
        let pattern = match pattern.strip_suffix('*') {
            Some(prefix) => Pattern::Prefix(prefix.to_owned()),
            None => Pattern::Exact(pattern.to_owned()),
        };
        if pattern.text().contains('*') || pattern == Pattern::Exact(String::new()) {
            return Err(format!("the pattern of {text:?} must be a name, or the begin of names and one * at its end"));
        }
        Ok(Rule { is_denial, right, pattern })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let denial = if self.is_denial { "deny:" } else { "" };
        write!(f, "{denial}{}:{}", self.right, self.pattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if matches!(self, Pattern::Prefix(_)) { "*" } else { "" };
        write!(f, "{}{star}", self.text())
    }
}

/// All rules of a principal. A denial wins; what no rule grants is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// Patterns of rules, as they are written: names, and begins of names with `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Those that grant.
    pub granted: Vec<String>,
    /// Those that deny; also that of internal queues, if none of the others can grant them.
    pub denied: Vec<String>,
}

/// Whether a right is granted, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// This rule grants it.
    Granted(&'a Rule),
    /// This rule denies it.
    Denied(&'a Rule),
    /// No rule grants it.
    NotGranted,
}

impl Verdict<'_> {
    /// Whether the right is granted.
    pub fn is_granted(self) -> bool {
        matches!(self, Verdict::Granted(_))
    }
}

impl Rules {
    /// The right on a queue or a namespace.
    pub fn on(&self, right: Right, name: &str) -> Verdict<'_> {
        self.decide(right, |rule| match rule.is_denial {
            true => rule.pattern.matches(name),
            false => rule.pattern.matches(name) && rule.may_grant(name),
        })
    }

    /// The right on every name that begins so. Where internal queues are among others, this says nothing of them: an answer leaves them
    /// out, unless the caller has the right on all internal queues.
    pub fn on_all_of(&self, right: Right, prefix: &str) -> Verdict<'_> {
        self.decide(right, |rule| match rule.is_denial {
            true => rule.pattern.matches_any_of(prefix),
            false => rule.pattern.matches_all_of(prefix) && rule.may_grant(prefix),
        })
    }

    /// The patterns of the rules for a right.
    pub fn patterns(&self, right: Right) -> Patterns {
        let mut patterns = Patterns::default();
        for rule in self.0.iter().filter(|rule| rule.concerns(right)) {
            let of = if rule.is_denial { &mut patterns.denied } else { &mut patterns.granted };
            of.push(rule.pattern.to_string());
        }
        if !patterns.granted.iter().any(|pattern| pattern.starts_with(INTERNAL)) {
            patterns.denied.push(format!("{INTERNAL}*"));
        }
        patterns
    }

    fn decide(&self, right: Right, matches: impl Fn(&Rule) -> bool) -> Verdict<'_> {
        let mut matching = self.0.iter().filter(|rule| rule.concerns(right) && matches(rule));
        match (matching.clone().find(|rule| rule.is_denial), matching.next()) {
            (Some(denial), _) => Verdict::Denied(denial),
            (None, Some(grant)) => Verdict::Granted(grant),
            (None, None) => Verdict::NotGranted,
        }
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Rules {
        Rules(rules.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[&str]) -> Rules {
        rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect()
    }

    #[test]
    fn s4_a_rule_is_written_as_it_is_read() {
        for text in ["produce:orders/*", "deny:purge:billing/ledger", "admin:*", "count-read:views"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for bad in ["", "produce", "produce:", "write:*", "produce:a*b", "produce:**", "deny:a", "deny:deny:read:*"] {
            assert!(bad.parse::<Rule>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn s4_a_denial_wins_in_any_order() {
        for order in
            [["consume:orders/*", "deny:consume:orders/vip/*"], ["deny:consume:orders/vip/*", "consume:orders/*"]]
        {
            let rules = rules(&order);
            let may = |right, name| rules.on(right, name).is_granted();
            assert!(may(Right::Consume, "orders/a"));
            assert!(!may(Right::Consume, "orders/vip/a"));
            assert!(!may(Right::Produce, "orders/a") && !may(Right::Consume, "order"));
        }
        assert!(rules(&["admin:a/*"]).on(Right::Purge, "a/b").is_granted());
        assert!(!rules(&["admin:a/*", "deny:purge:a/b"]).on(Right::Purge, "a/b").is_granted());
        assert!(!rules(&["purge:*", "deny:admin:a*"]).on(Right::Purge, "a/b").is_granted());
        assert_eq!(rules(&[]).on(Right::Read, "a"), Verdict::NotGranted);
    }

    #[test]
    fn s4_only_a_pattern_for_internal_queues_grants_rights_on_them() {
        let may = |rule, name| rules(&[rule]).on(Right::Produce, name).is_granted();
        assert!(!may("admin:*", "rollup/views/3") && !may("produce:r*", "rollup/views/3"));
        assert!(may("admin:rollup/*", "rollup/views/3") && may("produce:rollup/views/3", "rollup/views/3"));
        assert!(!rules(&["admin:rollup/*", "deny:produce:*"]).on(Right::Produce, "rollup/a").is_granted());
    }

    #[test]
    fn s4_a_right_on_all_of_a_prefix_needs_a_pattern_that_is_as_wide() {
        let may = |list: &[&str], prefix| rules(list).on_all_of(Right::Read, prefix).is_granted();
        assert!(may(&["read:*"], "") && may(&["read:a/*"], "a/") && may(&["read:a/*"], "a/b"));
        assert!(!may(&["read:a/*"], "a") && !may(&["read:a/*"], "") && !may(&["read:a"], "a"));
        for denial in ["deny:read:a/secret", "deny:read:a/*", "deny:read:*", "deny:admin:a/b/c*"] {
            assert!(!may(&["read:*", denial], "a/"), "{denial}");
        }
        assert!(may(&["read:*", "deny:read:b"], "a/"));
        // Internal queues are left out of the first, and alone in the second.
        assert!(may(&["read:*"], "rollup") && !may(&["read:*"], "rollup/") && may(&["read:rollup/*"], "rollup/"));
    }
}
