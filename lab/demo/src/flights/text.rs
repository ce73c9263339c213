//! Small pieces of the printed report.

use indicatif::HumanCount;
use owo_colors::{OwoColorize, Stream::Stdout};

/// Lines of a report.
pub(super) type Lines = Vec<String>;

/// The longest bar.
const BAR_CELLS: f64 = 36.0;

/// 1234567 as `1,234,567`.
pub(super) fn grouped(n: u64) -> String {
    HumanCount(n).to_string()
}

/// A blank line and a title.
pub(super) fn heading(lines: &mut Lines, title: &str) {
    lines.push(String::new());
    lines.push(bold(title));
}

pub(super) fn bold(text: &str) -> String {
    text.if_supports_color(Stdout, |text| text.bold()).to_string()
}

/// The mark of a check.
pub(super) fn mark(passed: bool) -> String {
    match passed {
        true => "✓".if_supports_color(Stdout, |mark| mark.green()).to_string(),
        false => "✗".if_supports_color(Stdout, |mark| mark.red()).to_string(),
    }
}

/// A bar of a length from 0 to 1, drawn to an eighth of a cell.
pub(super) fn bar(length: f64) -> String {
    eighths(length).if_supports_color(Stdout, |bar| bar.cyan()).to_string()
}

fn eighths(length: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // At least the thinnest bar, which shows that there is something.
    let eighths = (length.clamp(0.0, 1.0) * BAR_CELLS * 8.0).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(eighths(1.0), "█".repeat(36));
        assert_eq!(eighths(0.5), "█".repeat(18));
        assert_eq!(eighths(0.0), "▏");
        assert_eq!(eighths(1.5 / 36.0), "█▌");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 27_004, 1_234_567].map(grouped), ["0", "999", "27,004", "1,234,567"]);
    }
}
