//! Records of a worker's rollups, which prove that no two of one counter overlapped: one line of JSON before each rollup
//! and one after it.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The stage of a rollup that a record notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollupStage {
    /// It begins.
    Begin,
    /// It has committed a checkpoint.
    Committed,
    /// No window was sealed since the last rollup.
    Nothing,
    /// Another rollup has committed first, or a later lease has written.
    Lost,
    /// The store was unavailable, or the namespace was changed.
    Failed,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Unix µs, by the worker's own clock.
    pub at_us: u64,
    /// The worker's name, unique within its process.
    pub worker: String,
    /// The counter's namespace.
    pub namespace: String,
    /// The counter.
    pub counter: String,
    /// The fencing token of the job's lease.
    pub fencing_token: u64,
    /// When the job was leased, in Unix ms by the queue's clock.
    pub leased_at_ms: u64,
    /// The stage.
    pub stage: RollupStage,
}

/// A file of records.
#[derive(Debug)]
pub struct Records(Mutex<File>);

impl Records {
    /// Opens a file to append to; creates it if need be.
    pub fn open(path: &Path) -> io::Result<Records> {
        Ok(Records(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    /// Reads a file. A last line that a killed worker did not finish is left out.
    pub fn read(path: &Path) -> io::Result<Vec<Record>> {
        let text = std::fs::read_to_string(path)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
    }

    pub(crate) fn write(&self, records: &[Record]) {
        let mut lines = Vec::new();
        for record in records {
            if serde_json::to_writer(&mut lines, record).is_ok() {
                lines.push(b'\n');
            }
        }
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&lines) {
            tracing::warn!(%error, "cannot write the records of rollups");
        }
    }
}

pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_but_for_a_line_that_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let record = |stage| Record {
            at_us: 1,
            worker: "w".into(),
            namespace: "n".into(),
            counter: "c".into(),
            fencing_token: 2,
            leased_at_ms: 1,
            stage,
        };
        Records::open(&path).unwrap().write(&[record(RollupStage::Begin), record(RollupStage::Committed)]);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at_us\":3,\"wor").unwrap();
        assert_eq!(Records::read(&path).unwrap(), [record(RollupStage::Begin), record(RollupStage::Committed)]);
    }
}
