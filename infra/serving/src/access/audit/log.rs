//! The file of the audit log.

use super::super::refusal::not_applied;
use super::super::right::Right;
use super::config::{AuditConfig, OnAuditFailure};
use super::line::Line;
use ::metrics::{counter, describe_counter};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tallystone_model::ConfigError;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

/// The name of standard error.
const STDERR: &str = "-";
const LOST: &str = "tallystone_audit_lost_total";
const OMITTED: &str = "tallystone_audit_omitted_total";
/// Lines about refused callers within [`WINDOW`]: a caller without rights does not fill the disk.
const DENIALS_MAX: usize = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// The audit log of a process.
pub(crate) struct AuditLog {
    config: AuditConfig,
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// The last line could not be written, or only a part of it.
    is_broken: bool,
    window_began: Instant,
    /// Lines about refused callers in this window.
    denials: usize,
    /// Refusals and lines that no line has reported yet.
    omitted: usize,
    lost: usize,
}

impl AuditLog {
    /// Opens the file of the configuration, if it has one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(config: &AuditConfig) -> Result<Option<AuditLog>, ConfigError> {
        let Some(path) = config.file.clone() else { return Ok(None) };
        let file =
            open(&path).map_err(|error| ConfigError::new("audit.file", format!("{}: {error}", path.display())))?;
        let (denials, omitted, lost) = (0, 0, 0);
        let state = State { file, is_broken: false, window_began: Instant::now(), denials, omitted, lost };
        Ok(Some(AuditLog { config: config.clone(), path, state: Mutex::new(state) }))
    }

    /// Begins its metrics at 0. The log is open before the process has a recorder.
    pub(crate) fn begin_metrics(&self) {
        describe_counter!(LOST, "lines of the audit log that could not be written");
        describe_counter!(
            OMITTED,
            "refused calls without a line in the audit log: there were too many within a second"
        );
        counter!(LOST).increment(0);
        counter!(OMITTED).increment(0);
    }

    /// Whether calls that need this right are recorded.
    pub(in crate::access) fn records(&self, right: Right) -> bool {
        self.config.all_calls || right.is_for_operators()
    }

    /// Refuses a call that could not be recorded.
    ///
    /// # Errors
    /// UNAVAILABLE with the reason AUDIT_FAILED, and a retry delay.
    pub(in crate::access) fn ready(&self) -> Result<(), Status> {
        if self.config.on_failure == OnAuditFailure::Count {
            return Ok(());
        }
        let mut state = self.state();
        if !state.is_broken {
            return Ok(());
        }
        // An empty line, which also ends a line that is there in part.
        state.write(&self.path, "").map_err(|error| {
            let message = format!("the audit log of this server cannot be written: {}", error.kind());
            let status = rpc_status(Code::Unavailable, message, "AUDIT_FAILED", not_applied(), None);
            to_call(with_retry_delay(status, WINDOW))
        })
    }

    /// Appends a line. Blocks for as long as the write takes, since the answer must not be there before the line.
    pub(in crate::access) fn write(&self, mut line: Line) {
        let mut state = self.state();
        if line.is_denial() && !state.admits_denial() {
            state.omitted += 1;
            counter!(OMITTED).increment(1);
            return;
        }
        (line.omitted, line.lost) = (state.omitted, state.lost);
        match state.write(&self.path, &line.text()) {
            Ok(()) => (state.omitted, state.lost) = (0, 0),
            Err(error) => {
                if state.lost == 0 {
                    tracing::error!(%error, path = %self.path.display(), "the audit log cannot be written");
                }
                state.lost += 1;
                counter!(LOST).increment(1);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits_denial(&mut self) -> bool {
        if self.window_began.elapsed() >= WINDOW {
            (self.window_began, self.denials) = (Instant::now(), 0);
        }
        self.denials += 1;
        self.denials <= DENIALS_MAX
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let written = self.try_write(path, text);
        self.is_broken = written.is_err();
        written
    }

    fn try_write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // Log rotation moves the file away.
        let is_there = path == Path::new(STDERR)
            || std::fs::metadata(path).is_ok_and(|there| {
                self.file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
            });
        if !is_there {
            self.file = open(path)?;
        }
        if self.is_broken {
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(text.as_bytes())
    }
}

fn open(path: &Path) -> io::Result<File> {
    if path == Path::new(STDERR) {
        return io::stderr().as_fd().try_clone_to_owned().map(File::from);
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    fn log(path: &Path, on_failure: OnAuditFailure) -> AuditLog {
        let config = AuditConfig { file: Some(path.to_owned()), all_calls: false, on_failure };
        AuditLog::open(&config).unwrap().unwrap()
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn s5_a_line_says_who_did_what_and_a_name_forges_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = log(&path, OnAuditFailure::Refuse);
        let names = (0..25).map(|n| format!("q{n}\n{{}}"));
        let line = Line::new(Some("ops".to_owned()), None, None).on(Right::Purge, names);
        log.write(line.ended(Code::NotFound, "QUEUE_NOT_FOUND".to_owned()));
        let lines = lines(&path);
        assert_eq!(lines.len(), 1);
        let [principal, right, code] = ["principal", "right", "code"].map(|key| lines[0][key].as_str().unwrap());
        assert_eq!([principal, right, code], ["ops", "purge", "NOT_FOUND"]);
        assert_eq!((lines[0]["names"].as_array().unwrap().len(), lines[0]["more_names"].as_u64()), (20, Some(5)));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn s5_a_flood_of_refusals_is_counted_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = log(&path, OnAuditFailure::Refuse);
        // As UNAVAILABLE a token is refused while its provider does not answer.
        let code = |n| if n % 2 == 0 { Code::Unauthenticated } else { Code::Unavailable };
        let denial = |n| Line::new(None, None, None).ended(code(n), String::new());
        log.state().window_began = Instant::now() + Duration::from_secs(60);
        (0..1_000).for_each(|n| log.write(denial(n)));
        log.write(Line::new(None, None, None).on(Right::Purge, []).ended(Code::Ok, String::new()));
        let lines = lines(&path);
        assert_eq!(lines.len(), DENIALS_MAX + 1);
        assert_eq!(lines[DENIALS_MAX]["omitted"].as_u64(), Some(1_000 - DENIALS_MAX as u64));
    }

    #[test]
    fn s5_calls_are_refused_while_the_file_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let [refusing, counting] = [OnAuditFailure::Refuse, OnAuditFailure::Count].map(|then| log(&path, then));
        for log in [&refusing, &counting] {
            // The file is opened again, and that fails.
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            log.write(Line::new(None, None, None));
            assert_eq!(log.ready().is_err(), log.config.on_failure == OnAuditFailure::Refuse);
            std::fs::remove_dir(&path).unwrap();
            assert!(log.ready().is_ok());
            log.write(Line::new(None, None, None));
            let lines = lines(&path);
            assert_eq!((lines.len(), lines[0]["lost"].as_u64()), (1, Some(1)));
        }
    }

    #[test]
    fn s5_a_file_that_is_moved_away_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = log(&path, OnAuditFailure::Refuse);
        log.write(Line::new(None, None, None));
        std::fs::rename(&path, dir.path().join("audit.log.1")).unwrap();
        log.write(Line::new(None, None, None));
        assert_eq!((lines(&path).len(), lines(&dir.path().join("audit.log.1")).len()), (1, 1));
    }
}
