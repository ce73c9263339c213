//! Addresses and text that may have a password, fit to be shown.

/// An address without what may be a password: `redis://***@db:6379/1`. Everything before the last `@` may belong to one,
/// and everything after a `?`.
pub fn without_password(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    match (rest.rsplit_once('@'), rest.find('?')) {
        // A password with a question mark, or a parameter with an @.
        (Some((before, _)), Some(query)) if query < before.len() => format!("{scheme}***"),
        (Some((_, host)), _) => format!("{scheme}***@{}", without_query(host)),
        // The host is missing: `redis://:PASSWORD`.
        (None, _) if !scheme.is_empty() && !has_plain_port(rest) => format!("{scheme}***"),
        (None, _) => format!("{scheme}{}", without_query(rest)),
    }
}

/// Whether what follows a colon in `HOST:PORT`, or in each of `HOST:PORT,HOST:PORT`, is a number, if there is one; an IPv6
/// host is in brackets.
fn has_plain_port(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.split(',').all(|host| {
        let after_host = host.rsplit_once(']').map_or(host, |(_, port)| port);
        after_host.split(':').skip(1).all(|port| port.chars().all(|c| c.is_ascii_digit()))
    })
}

fn without_query(text: &str) -> String {
    match text.split_once('?') {
        Some((path, _)) => format!("{path}?***"),
        None => text.to_owned(),
    }
}

/// A text with its addresses [`without_password`], such as the message of a library that quotes its input.
pub fn without_passwords(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>');
    let shown = |word: &str| {
        let (word, end) = word.split_at(word.trim_end_matches(is_end).len());
        if word.contains("://") { without_password(word) + end } else { format!("{word}{end}") }
    };
    text.split_inclusive(is_end).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_passwords_are_not_shown() {
        for (address, shown) in [
            ("redis://:s3cret@db:6379/1", "redis://***@db:6379/1"),
            ("redis://me:p@ss@db", "redis://***@db"),
            ("redis://me:p/ss@db", "redis://***@db"),
            ("redis://me:p?ss@db", "redis://***"),
            ("me:pass@db:6379", "***@db:6379"),
            ("redis+unix:///r.sock?user=me&pass=p@ss", "redis+unix://***"),
            ("redis+unix:///r.sock?user=me&pass=pass", "redis+unix:///r.sock?***"),
            ("redis://:pass", "redis://***"),
            ("redis://me:pass/1", "redis://***"),
            ("redis://db:6379/1", "redis://db:6379/1"),
            ("redis-sentinel://a:1,b:2/0#main", "redis-sentinel://a:1,b:2/0#main"),
            ("redis-sentinel://me:p,ss@a:1,b:2#main", "redis-sentinel://***@a:1,b:2#main"),
            ("redis-sentinel://me:p,ss", "redis-sentinel://***"),
            ("http://[::1]:7600", "http://[::1]:7600"),
            ("tcp://10.0.0.1:7600:", "tcp://10.0.0.1:7600:"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_password(address), shown);
        }
        let text = "unexpected argument 'redis://me:pass@db' found, see \"http://docs/\" or a@b";
        let shown = "unexpected argument 'redis://***@db' found, see \"http://docs/\" or a@b";
        assert_eq!(without_passwords(text), shown);
    }
}
