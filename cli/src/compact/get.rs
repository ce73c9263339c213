//! `tallystone compact get KEY ID…`

use super::session::CompactSession;
use super::set::{Row, Set, Values};
use crate::error::CliError;
use crate::table::table;
use clap::Args;
use redis::cmd;

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
}

pub(super) async fn run(args: GetArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let set = Set::read(&args.key, session).await?;
    let mut records: Vec<Vec<i64>> = Vec::with_capacity(args.ids.len());
    for ids in args.ids.chunks(set.ids_per_command()) {
        let values: Vec<Vec<i64>> = session.call(&args.key, cmd("CT.MGET").arg(&args.key).arg(ids)).await?;
        records.extend(values);
    }
    let fields = &set.fields;
    let row = |(id, values): (&u64, &'_ Vec<i64>)| (*id, values.clone());
    let rows: Vec<(u64, Vec<i64>)> = args.ids.iter().zip(&records).map(row).collect();
    let rows: Vec<Row<'_>> =
        rows.iter().map(|(id, values)| Row { id: *id, values: Values { fields, values } }).collect();
    session.output.many(&rows, |rows| {
        let numbered: Vec<String> = fields.iter().map(|field| format!("#{field}")).collect();
        let header: Vec<&str> = ["#id"].into_iter().chain(numbered.iter().map(String::as_str)).collect();
        let cells = |row: &Row<'_>| {
            let values = row.values.values.iter().map(i64::to_string);
            [row.id.to_string()].into_iter().chain(values).collect()
        };
        table(&header, rows.iter().map(cells))
    })
}
