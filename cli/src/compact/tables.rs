//! `tallystone compact tables KEY`

use super::session::CompactSession;
use super::set::{Figure, Figures, tables};
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use clap::Args;

/// The columns: the figures that fill each, the first that there is. A table in memory has slots, a cold one records in a file.
const COLUMNS: [(&str, &[&str]); 10] = [
    ("#table", &["serial"]),
    ("#first id", &["first_id"]),
    ("state", &["state"]),
    ("#slots", &["slots"]),
    ("#ids", &["used", "records"]),
    ("#aux", &["aux_ids"]),
    ("#extend", &["extend_ids"]),
    ("#overlay", &["overlay_ids"]),
    ("#damaged", &["damaged_ranges"]),
    ("#memory", &["memory_bytes"]),
];

#[derive(Args, Debug)]
pub(crate) struct TablesArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
}

pub(super) async fn run(args: TablesArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let found = tables(&args.key, session).await?;
    if found.is_empty() && !session.output.json {
        return session.output.line("No tables: nothing was written yet.");
    }
    session.output.many(&found, text)
}

fn text(tables: &[Figures]) -> String {
    let header: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).chain(["file"]).collect();
    let cell = |figures: &Figures, names: &[&str]| match names.iter().find_map(|name| figures.get(name)) {
        Some(Figure::Number(number)) if !matches!(names, ["serial" | "first_id"]) => {
            u64::try_from(*number).map_or_else(|_| number.to_string(), grouped)
        }
        Some(Figure::Number(number)) => number.to_string(),
        Some(Figure::Text(text)) => text.clone(),
        None => String::new(),
    };
    let row = |figures: &Figures| {
        let cells = COLUMNS.iter().map(|(_, names)| cell(figures, names));
        cells.chain([figures.text("file").to_owned()]).collect()
    };
    table(&header, tables.iter().map(row))
}
