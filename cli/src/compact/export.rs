//! `tallystone compact export KEY`
//!
//! `CT.SCAN` visits table after table, in each in the order of its slots. Tables by ranges are written one by one, each in the order of
//! its ids: an import then fills tables as the ids did when they were new.

use super::file::{Header, Writer};
use super::progress::bar;
use super::session::CompactSession;
use super::set::{Set, tables};
use crate::error::CliError;
use crate::output::grouped;
use crate::text::visible;
use clap::Args;
use indicatif::ProgressBar;
use redis::{Value, cmd, from_redis_value};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Ids of one command; the module lowers it where they have many fields.
const SCAN_COUNT: u64 = 1_000;
/// The maximum of ids that are sorted in memory. A larger table is written in parts of this size, each in order.
const SORTED_MAX: usize = 4_000_000;

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// The file to write; `-`: stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Write a binary file instead of lines of JSON; it is smaller and faster
    #[arg(long)]
    packed: bool,
}

#[derive(Serialize)]
struct Exported<'a> {
    key: &'a str,
    file: &'a Path,
    ids: u64,
}

pub(super) async fn run(args: ExportArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let set = Set::read(&args.key, session).await?;
    let to_stdout = args.out.as_os_str() == "-";
    if to_stdout && args.packed && io::stdout().is_terminal() {
        return Err(CliError::usage("packed bytes are not for a terminal").hint("--out FILE sets a file"));
    }
    let failed = |error: io::Error| cannot_write(&args.out, &error);
    let out: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(&args.out).map_err(failed)?),
    };
    let writer = Writer::new(BufWriter::with_capacity(1 << 20, out), &Header::of(&set.info), args.packed);
    let mut export = Export {
        writer: writer.map_err(failed)?,
        ends: ends(&args.key, session).await?,
        ids: Vec::new(),
        values: Vec::new(),
        progress: bar(set.info.number("ids"), session.output.json),
        path: &args.out,
    };
    let mut cursor = 0_u128;
    loop {
        let command = cmd("CT.SCAN").arg(&args.key).arg(cursor).arg("COUNT").arg(SCAN_COUNT).to_owned();
        let reply: Vec<Value> = session.call(&args.key, &command).await?;
        let mut parts = reply.into_iter();
        let next = parts.next().and_then(|next| from_redis_value::<u128>(next).ok());
        let Some(next) = next else { return Err(CliError::unavailable("CT.SCAN replied without a cursor")) };
        for row in parts {
            let Value::Array(row) = row else { continue };
            export.take(row, set.fields.len())?;
        }
        if next == 0 {
            break;
        }
        cursor = next;
    }
    let ids = export.finish()?;
    if to_stdout {
        return Ok(());
    }
    let done = Exported { key: &args.key, file: &args.out, ids };
    session.output.one(&done, |done| {
        format!("Exported {} ids of {} to {}.", grouped(done.ids), visible(done.key), done.file.display())
    })
}

/// The first id of each table but the first one: in this order the scan comes to them. None if tables are by hash.
async fn ends(key: &str, session: &mut CompactSession) -> Result<Vec<u64>, CliError> {
    let firsts: Vec<u64> = tables(key, session).await?.iter().map(|table| table.number("first_id")).collect();
    Ok(firsts.into_iter().skip(1).filter(|first| *first > 0).collect())
}

struct Export<'a, W: Write> {
    writer: Writer<W>,
    /// Where the tables that are not written yet end, but for the last one.
    ends: Vec<u64>,
    /// The ids of the current table, each with the place of its values.
    ids: Vec<(u64, usize)>,
    values: Vec<i64>,
    progress: ProgressBar,
    path: &'a Path,
}

impl<W: Write> Export<'_, W> {
    /// Takes an id with its values.
    fn take(&mut self, row: Vec<Value>, fields: usize) -> Result<(), CliError> {
        let broken = || CliError::unavailable("CT.SCAN replied with something else than ids and values");
        let mut row = row.into_iter();
        let id: u64 = row.next().and_then(|id| from_redis_value(id).ok()).ok_or_else(broken)?;
        if row.len() != fields {
            return Err(CliError::unavailable("the schema has changed during the export").hint("run it again"));
        }
        while self.ends.first().is_some_and(|end| id >= *end) {
            self.ends.remove(0);
            self.flush(fields)?;
        }
        if self.ids.len() >= SORTED_MAX {
            self.flush(fields)?;
        }
        self.ids.push((id, self.values.len()));
        for value in row {
            self.values.push(from_redis_value(value).map_err(|_| broken())?);
        }
        Ok(())
    }

    /// Writes the ids that were taken, in their order.
    fn flush(&mut self, fields: usize) -> Result<(), CliError> {
        self.ids.sort_unstable();
        for (id, at) in self.ids.drain(..) {
            let written = self.writer.write(id, &self.values[at..at + fields]);
            written.map_err(|error| cannot_write(self.path, &error))?;
            self.progress.inc(1);
        }
        self.values.clear();
        self.progress.set_message(format!("{} ids", grouped(self.progress.position())));
        Ok(())
    }

    fn finish(mut self) -> Result<u64, CliError> {
        let fields = self.values.len().checked_div(self.ids.len()).unwrap_or(0);
        self.flush(fields)?;
        self.progress.finish_and_clear();
        self.writer.finish().map_err(|error| cannot_write(self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    // The reader has seen enough: `tallystone compact export … | head`.
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    CliError::usage(format!("cannot write {}: {error}", path.display()))
}
