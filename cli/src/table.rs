//! Tables for people: a header, columns, no frame. In a terminal no word of a table is broken:
//! 1. If the table is too wide, columns that show nothing are left out.
//! 2. Cells wrap between words.
//! 3. If the longest words do not fit next to each other, each row becomes lines of name and value.

use crate::terminal::{cell_color, colored, filled, width};
use crate::text::visible;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use textwrap::core::display_width;

/// The space between two columns.
const GAP: usize = 2;

/// A plain table. Columns whose header starts with `#` are numbers. Each cell is shown on one line ([`visible`]).
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let shown = |row: Vec<String>| row.iter().map(|cell| visible(cell)).collect();
    let names: Vec<String> = header.iter().map(|name| visible(name)).collect();
    let grid = Grid { header: names.iter().map(String::as_str).collect(), rows: rows.into_iter().map(shown).collect() };
    match width() {
        Some(width) => grid.fitted(width),
        None => grid.drawn(),
    }
}

struct Grid<'a> {
    header: Vec<&'a str>,
    rows: Vec<Vec<String>>,
}

impl Grid<'_> {
    fn fitted(mut self, width: usize) -> String {
        let room = |columns: usize| width.saturating_sub(GAP * columns.saturating_sub(1));
        if self.widths(longest_line).iter().sum::<usize>() > room(self.header.len()) {
            self.leave_out_empty_columns();
        }
        let Some(widths) = self.columns_within(room(self.header.len())) else { return self.records(width) };
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                *cell = filled(cell, *width, 0);
            }
        }
        let header: Vec<String> =
            self.header.iter().zip(&widths).map(|(name, width)| filled(name, *width, 0)).collect();
        Grid { header: header.iter().map(String::as_str).collect(), rows: self.rows }.drawn()
    }

    /// For each column, the greatest measure of its cells and its header.
    fn widths(&self, measure: fn(&str) -> usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| measure(name.trim_start_matches('#'))).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = measure(cell).max(*width);
            }
        }
        widths
    }

    /// The first column stays.
    fn leave_out_empty_columns(&mut self) {
        let rows = &self.rows;
        let shows = |column: usize| column == 0 || rows.iter().any(|row| !matches!(row[column].as_str(), "" | "0"));
        let shown: Vec<usize> = (0..self.header.len()).filter(|column| shows(*column)).collect();
        self.header = shown.iter().map(|column| self.header[*column]).collect();
        self.rows = self.rows.iter().map(|row| shown.iter().map(|column| row[*column].clone()).collect()).collect();
    }

    /// The widths of the columns, none less than its longest word; `None`: they do not fit.
    fn columns_within(&self, room: usize) -> Option<Vec<usize>> {
        let (mut widths, whole) = (self.widths(longest_word), self.widths(longest_line));
        let mut spare = room.checked_sub(widths.iter().sum())?;
        // Columns that need little get it; the others share the rest.
        let mut by_need: Vec<usize> = (0..widths.len()).collect();
        by_need.sort_by_key(|column| whole[*column] - widths[*column]);
        for (index, column) in by_need.iter().copied().enumerate() {
            let more = (whole[column] - widths[column]).min(spare / (by_need.len() - index));
            widths[column] += more;
            spare -= more;
        }
        Some(widths)
    }

    fn drawn(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let cell = |text: &str| match cell_color(text) {
            Some(color) => Cell::new(text).fg(color),
            None => Cell::new(text),
        };
        table.set_header(self.header.iter().map(|name| cell(&name.trim_start_matches('#').to_uppercase())));
        let has_state = |column: usize| matches!(self.header[column], "state" | "outcome" | "left it");
        for row in &self.rows {
            let cells = row.iter().enumerate();
            table.add_row(cells.map(|(at, text)| if has_state(at) { cell(text) } else { Cell::new(text) }));
        }
        for (name, column) in self.header.iter().zip(table.column_iter_mut()) {
            column.set_padding((0, GAP as u16));
            if name.starts_with('#') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    /// Each row as lines of name and value; values that show nothing are left out.
    fn records(&self, width: usize) -> String {
        let names: Vec<String> = self.header.iter().map(|name| name.trim_start_matches('#').to_uppercase()).collect();
        let indent = names.iter().map(|name| display_width(name)).max().unwrap_or(0) + GAP;
        let record = |row: &Vec<String>| {
            let fields = names.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            let line = |(name, cell): (&String, &String)| {
                let padding = " ".repeat(indent - display_width(name));
                let line = filled(&format!("{name}{padding}{cell}"), width, indent);
                if name == "STATE" { line.replace(cell.as_str(), &colored(cell)) } else { line }
            };
            fields.map(line).collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
    }
}

fn longest_line(text: &str) -> usize {
    text.lines().map(display_width).max().unwrap_or(0)
}

fn longest_word(text: &str) -> usize {
    text.split_ascii_whitespace().map(display_width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[[&str; 4]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect()
    }

    fn fitted(width: usize) -> String {
        let rows = rows(&[["flights", "exclusive by tail", "0", "12"], ["mails", "simple", "0", "1,000"]]);
        Grid { header: vec!["name", "type", "#canceled", "#pending"], rows }.fitted(width)
    }

    #[test]
    fn tables_align() {
        let text = table(&["name", "#pending"], [vec!["a".to_owned(), "5".to_owned()], vec!["bb".into(), "12".into()]]);
        assert_eq!(text, "NAME  PENDING\na           5\nbb         12");
    }

    #[test]
    fn s1_a_cell_is_one_line() {
        let text = table(&["id", "reason"], [vec!["a\nb".to_owned(), "\u{202e}c".to_owned()]]);
        assert_eq!(text, "ID    REASON\na\\nb  \\u{202e}c");
    }

    #[test]
    fn a_narrow_table_leaves_out_zeros_then_wraps_then_becomes_records() {
        let whole = "NAME     TYPE               CANCELED  PENDING\n\
                     flights  exclusive by tail         0       12\n\
                     mails    simple                    0    1,000";
        assert_eq!(fitted(45), whole);
        let without_zeros = "NAME     TYPE               PENDING\n\
                             flights  exclusive by tail       12\n\
                             mails    simple               1,000";
        assert_eq!(fitted(44), without_zeros);
        let wrapped = "NAME     TYPE       PENDING\n\
                       flights  exclusive       12\n         by tail\n\
                       mails    simple       1,000";
        assert_eq!(fitted(29), wrapped);
        let records = "NAME     flights\nTYPE     exclusive by tail\nPENDING  12\n\n\
                       NAME     mails\nTYPE     simple\nPENDING  1,000";
        assert_eq!(fitted(26), records);
    }
}
