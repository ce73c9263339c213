//! The terminal of the user: its width, the colours of states, and text that fits.

use comfy_table::{Color, Table};
use owo_colors::{AnsiColors, OwoColorize, Stream};
use std::io::Write as _;
use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// The states of messages and their colours, in the words of both libraries.
const COLORS: &[(&str, Color, AnsiColors)] = &[
    ("invisible", Color::DarkGrey, AnsiColors::BrightBlack),
    ("pending", Color::DarkYellow, AnsiColors::Yellow),
    ("running", Color::DarkCyan, AnsiColors::Cyan),
    ("completed", Color::DarkGreen, AnsiColors::Green),
    ("canceled", Color::DarkMagenta, AnsiColors::Magenta),
    ("errored", Color::DarkRed, AnsiColors::Red),
];

/// The width of a terminal that reports none: some serial lines and terminals of build services have 0 columns.
const DEFAULT_WIDTH: usize = 80;

/// Writes a line to stderr. `eprintln!` would panic if nothing reads it any more.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The columns of the terminal behind stdout; `None`: stdout is not a terminal.
pub(crate) fn width() -> Option<usize> {
    Table::new().width().map(columns)
}

/// The same of stderr.
pub(crate) fn stderr_width() -> Option<usize> {
    Table::new().use_stderr().width().map(columns)
}

fn columns(reported: u16) -> usize {
    if reported == 0 { DEFAULT_WIDTH } else { reported.into() }
}

/// The colour of a cell that begins with the name of a state; `None` also where stdout shows no colours.
pub(crate) fn cell_color(cell: &str) -> Option<Color> {
    let (_, color, ansi) = color_of(cell)?;
    let has_colors = cell.if_supports_color(Stream::Stdout, |cell| cell.color(ansi)).to_string() != cell;
    has_colors.then_some(color)
}

/// The text in the colour of the state with which it begins, if stdout shows colours.
pub(crate) fn colored(text: &str) -> String {
    match color_of(text) {
        Some((_, _, ansi)) => text.if_supports_color(Stream::Stdout, |text| text.color(ansi)).to_string(),
        None => text.to_owned(),
    }
}

fn color_of(text: &str) -> Option<(&'static str, Color, AnsiColors)> {
    let word = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    COLORS.iter().find(|(state, ..)| word.eq_ignore_ascii_case(state)).copied()
}

/// Breaks the lines that are wider than `width` between words. The parts of a line begin below its value: after its name,
/// or its indentation.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    let fit = |line: &str| {
        if display_width(line) <= width {
            return line.to_owned();
        }
        let (name, value) = line.split_at(value_at(line, width));
        let indent = " ".repeat(display_width(name));
        let filled = filled(&format!("{indent}{value}"), width, indent.len());
        format!("{name}{}", filled.trim_start())
    };
    text.lines().map(fit).collect::<Vec<_>>().join("\n")
}

/// Breaks text between words; all lines but the first are indented.
pub(crate) fn filled(text: &str, width: usize, indent: usize) -> String {
    let indent = " ".repeat(indent);
    textwrap::fill(
        text,
        Options::new(width)
            .subsequent_indent(&indent)
            .break_words(false)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation)
            .wrap_algorithm(WrapAlgorithm::FirstFit),
    )
}

/// Where the value of a line begins: after the last gap of two spaces in its first half.
fn value_at(line: &str, width: usize) -> usize {
    let mut value_at = line.len() - line.trim_start().len();
    for (at, _) in line.match_indices("  ") {
        let next_at = line.len() - line[at..].trim_start().len();
        if display_width(&line[..next_at]) <= width / 2 {
            value_at = next_at;
        }
    }
    value_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_reports_no_columns_has_80() {
        assert_eq!([0, 1, 79, 200].map(columns), [80, 1, 79, 200]);
    }

    #[test]
    fn lines_break_between_words_and_continue_below_their_value() {
        let text = "message 1\n  metadata        carrier-name=United-Airlines origin=EWR destination=IAH";
        let expected =
            "message 1\n  metadata        carrier-name=United-Airlines\n                  origin=EWR destination=IAH";
        assert_eq!(fitted(text, 45), expected);
        assert_eq!(fitted("a-word-that-is-too-long b", 10), "a-word-that-is-too-long\nb");
    }
}
