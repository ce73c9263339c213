//! Text that users type and that messages carry: `key=value` pairs, and characters that a terminal may show.

use std::collections::BTreeMap;

/// For clap: `key=value`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as origin=JFK")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `a=1 b=2`, on one line.
pub(crate) fn pairs_text(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(key, value)| format!("{}={}", visible(key), visible(value))).collect::<Vec<_>>().join(" ")
}

/// The text on one line, each character shown: the sender of a message must not write to the terminal of the person who
/// reads it, nor make one line look like two or its words stand in another order. Line breaks, other control characters,
/// and characters that are not seen are escaped, such as `\n`, `\u{1b}` or `\u{202e}`.
pub(crate) fn visible(text: &str) -> String {
    escaped(text, is_unseen)
}

/// The same for text that may have several lines. All but the first begin after `indent` spaces, so that none can be
/// taken for one of ours.
pub(crate) fn visible_lines(text: &str, indent: usize) -> String {
    let lines = text.split('\n').map(|line| escaped(line, |c| c != '\t' && is_unseen(c)));
    lines.collect::<Vec<_>>().join(&format!("\n{:indent$}", ""))
}

/// Bytes that are often a text, such as a payload or a result, as [`visible_lines`].
pub(crate) fn visible_byte_lines(bytes: &[u8], indent: usize) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => visible_lines(text, indent),
        Err(_) => format!("{} bytes of binary data; --json shows them", bytes.len()),
    }
}

/// The same on one line.
pub(crate) fn visible_bytes(bytes: &[u8]) -> String {
    visible(&visible_byte_lines(bytes, 0))
}

/// Lines that this program has put together, with its colours. What its parts have left is escaped; line breaks stay.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, escape) = rest.split_at(at);
        shown += &escaped(before, is_harmful);
        let color = color_len(escape);
        // What is no colour is escaped.
        shown += &if color > 0 { escape[..color].to_owned() } else { escaped(&escape[..1], is_harmful) };
        rest = &escape[color.max(1)..];
    }
    shown + &escaped(rest, is_harmful)
}

/// The length of the colour with which the text begins: `ESC [ 31 m`. 0: it begins with none.
fn color_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').len();
    if rest[digits..].starts_with('m') { 2 + digits + 1 } else { 0 }
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

fn is_harmful(c: char) -> bool {
    !matches!(c, '\n' | '\t') && is_unseen(c)
}

/// Whether a character is not drawn, but changes how others are: control characters, line and paragraph separators,
/// marks of direction, and joiners (the invisible ones of Unicode's category Cf).
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
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
    fn s1_what_is_not_seen_is_escaped() {
        assert_eq!(visible("a\u{1b}[2J\tb\r\n"), "a\\u{1b}[2J\\tb\\r\\n");
        assert_eq!(visible("a\u{202e}b\u{2028}c\u{2066}\u{200f}"), "a\\u{202e}b\\u{2028}c\\u{2066}\\u{200f}");
        assert_eq!(visible("Zoë → 東京 a\\n"), "Zoë → 東京 a\\n");
        assert_eq!(visible(&visible("a\n")), "a\\n");
        assert_eq!(visible_lines("a\n\tb\r\nstate", 2), "a\n  \tb\\r\n  state");
        assert_eq!(visible_bytes(b"a\x1b\nb"), "a\\u{1b}\\nb");
        assert_eq!(visible_bytes(b"\xff\xfe"), "2 bytes of binary data; --json shows them");
        assert_eq!(pairs_text(&[("k".to_owned(), "a\nb".to_owned())].into()), "k=a\\nb");
    }

    #[test]
    fn s1_colors_and_line_breaks_of_composed_lines_stay() {
        let colored = "a\n\u{1b}[1;31mred\u{1b}[0m";
        assert_eq!(harmless(colored), colored);
        assert_eq!(harmless("\u{1b}[2J\u{1b}[3\r\u{202e}"), "\\u{1b}[2J\\u{1b}[3\\r\\u{202e}");
        assert_eq!(harmless("\u{1b}"), "\\u{1b}");
    }
}
