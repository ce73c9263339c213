//! `tallystone compact import KEY FILE`

use super::file::{Header, Reader, Record};
use super::session::CompactSession;
use super::set::Set;
use crate::error::CliError;
use crate::ndjson::open;
use crate::output::grouped;
use crate::text::visible;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use redis::{cmd, pipe};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Commands that are sent together.
const BATCH: usize = 1_000;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// A file that `export` has written, or a file of lines such as {"id":5,"values":{"likes":3}}; `-`: stdin
    file: PathBuf,
}

#[derive(Serialize)]
struct Imported<'a> {
    key: &'a str,
    created: bool,
    ids: u64,
}

pub(super) async fn run(args: ImportArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let ImportArgs { key, file } = args;
    if file.is_file() {
        check(&file)?;
    }
    let mut reader = Reader::new(open(&file)?).map_err(|error| error.in_file(&file))?;
    let created = match reader.header() {
        Some(header) => create(&key, header, session).await?,
        None => false,
    };
    // A key that is not there is an error.
    let set = Set::read(&key, session).await?;
    let progress = progress(session.output.json);
    let (mut ids, mut batch) = (0, pipe());
    loop {
        let record = reader.next().map_err(|error| error.in_file(&file))?;
        let is_end = record.is_none();
        if let Some(Record { id, values }) = record.filter(|record| !record.values.is_empty()) {
            let command = batch.cmd("CT.SET").arg(&key).arg(id);
            for (field, value) in values {
                if !set.fields.contains(&field) {
                    let known = set.fields.join(", ");
                    return Err(CliError::usage(format!(
                        "id {id}: {} has no field '{}'",
                        visible(&key),
                        visible(&field)
                    ))
                    .hint(format!("the fields are {}", visible(&known))));
                }
                command.arg(field).arg(value);
            }
            ids += 1;
        }
        if batch.len() >= BATCH || (is_end && !batch.is_empty()) {
            session.call_all(&key, &batch).await.map_err(|error| {
                error.hint(format!("{} ids were sent; the same import again sets all of them", grouped(ids)))
            })?;
            batch.clear();
            progress.set_message(format!("{} ids", grouped(ids)));
        }
        if is_end {
            break;
        }
    }
    progress.finish_and_clear();
    session.output.one(&Imported { key: &key, created, ids }, |imported| {
        let what = if imported.created { "Created" } else { "Changed" };
        format!("{what} {}: set the fields of {} ids.", visible(imported.key), grouped(imported.ids))
    })
}

/// Reads a file to its end before anything is changed: only its end shows whether it is damaged or was cut.
fn check(file: &Path) -> Result<(), CliError> {
    let mut reader = Reader::new(open(file)?).map_err(|error| error.in_file(file))?;
    while reader.next().map_err(|error| error.in_file(file))?.is_some() {}
    Ok(())
}

/// Creates the key, with the schema and the options of the file, if it does not exist. Returns whether it did.
async fn create(key: &str, header: &Header, session: &mut CompactSession) -> Result<bool, CliError> {
    let mut command = cmd("CT.CREATE");
    command.arg(key);
    for (name, value) in &header.options {
        command.arg(name).arg(value);
    }
    command.arg("SCHEMA").arg(header.schema.split(' ').collect::<Vec<_>>());
    match session.attempt::<()>(&command).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some("BUSYKEY") => Ok(false),
        Err(error) => Err(session.explained(key, &error)),
    }
}

fn progress(json: bool) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if json {
        spinner.set_draw_target(ProgressDrawTarget::hidden());
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
