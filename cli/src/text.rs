//! Text that users type and that messages carry: `key=value` pairs, and characters that a terminal may show.

use std::collections::BTreeMap;

/// For clap: `key=value`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as origin=JFK")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `a=1 b=2`
pub(crate) fn pairs_text(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// The text without characters that control the terminal: the sender of a message must not write to the terminal of the
/// person who reads it. Line breaks and tabs stay.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Bytes that are often a text, such as a payload or a result.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => printable(text),
        Err(_) => format!("{} bytes of binary data; --json shows them", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_may_hold_equals_signs() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(parse_pair("a").is_err());
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[2J\tb\n"), "a\\u{1b}[2J\tb\n");
        assert_eq!(printable_bytes(b"a\x1b"), "a\\u{1b}");
        assert_eq!(printable_bytes(b"\xff\xfe"), "2 bytes of binary data; --json shows them");
    }
}
