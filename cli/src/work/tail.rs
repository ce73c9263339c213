//! The end of what a command writes to stderr: the reason of its failure.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// Kept of the end; a reason has no more.
const TAIL_BYTES: usize = 255;
/// How long to read on after the command has ended. What it wrote is there by then; a process that left its group may
/// hold the pipe open for ever.
const READ_ON: Duration = Duration::from_millis(500);

/// Copies the stderr of a command to that of the worker, and keeps its end.
pub(super) struct Tail {
    end: Arc<Mutex<Vec<u8>>>,
    copying: JoinHandle<()>,
}

impl Tail {
    /// Begins to copy.
    pub(super) fn of(mut stderr: impl AsyncRead + Unpin + Send + 'static) -> Tail {
        let end = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&end);
        let copying = tokio::spawn(async move {
            let mut buffer = vec![0; 8 * 1024];
            while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
                keep(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &buffer[..read]);
                let copy = buffer[..read].to_vec();
                // A terminal that is stopped (Ctrl-S) holds up the command, and not the worker. One that is closed holds
                // up nothing.
                let _ = tokio::task::spawn_blocking(move || std::io::stderr().write_all(&copy)).await;
            }
        });
        Tail { end, copying }
    }

    /// The end of what the command wrote, on one line, when all of it is copied; the command has ended.
    pub(super) async fn text(mut self) -> String {
        let _ = tokio::time::timeout(READ_ON, &mut self.copying).await;
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        one_line(&end)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.copying.abort();
    }
}

fn keep(end: &mut Vec<u8>, bytes: &[u8]) {
    end.extend_from_slice(bytes);
    let beyond = end.len().saturating_sub(TAIL_BYTES);
    end.drain(..beyond);
}

/// Text without control characters; what is not UTF-8, such as a character cut at the start, is left out.
fn one_line(bytes: &[u8]) -> String {
    let text: String = bytes.utf8_chunks().map(|chunk| chunk.valid()).collect();
    text.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// `status`, and after it as much of the end of `said` as a reason may have.
pub(super) fn with_end(status: &str, said: &str) -> String {
    if said.is_empty() {
        return status.to_owned();
    }
    let room = TAIL_BYTES - status.len() - 2;
    let cut = said.char_indices().map(|(at, _)| at).find(|at| said.len() - at <= room).unwrap_or(said.len());
    format!("{status}: {}", said[cut..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn q22_the_end_of_stderr_is_kept_within_bounds() {
        let said = format!("{}\nTraceback:\n\tno such flight \u{1b}[0m\n", "é".repeat(100_000));
        let text = Tail::of(std::io::Cursor::new(said)).text().await;
        assert!(text.ends_with("é Traceback: no such flight [0m"), "{text}");
        let reason = with_end("exit status 1", &text);
        assert!((250..=TAIL_BYTES).contains(&reason.len()), "{reason}");
        assert!(reason.starts_with("exit status 1: é") && reason.ends_with("flight [0m"), "{reason}");
        assert_eq!(with_end("exit status 1", ""), "exit status 1");
        assert_eq!(with_end("exit status 1", "short"), "exit status 1: short");
    }
}
