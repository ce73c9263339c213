//! The machine that the figures were measured on.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// The machine, as far as the figures depend on it.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    /// Median time of write + fdatasync of 4 KiB where Redis keeps its file.
    pub(crate) fsync_us: u64,
}

impl Machine {
    /// In one line, for people.
    pub(crate) fn line(&self) -> String {
        let Machine { cores, cpu, memory_gib, kernel, fsync_us } = self;
        format!("{cores} cores of {cpu}, {memory_gib} GiB, Linux {kernel}, fsync {fsync_us} µs")
    }

    /// Reads it from /proc; `dir` is where Redis will keep its file.
    pub(crate) fn read(dir: &Path) -> Result<Machine> {
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or("unknown".to_owned(), |rest| rest.trim_matches([' ', '\t', ':']).to_owned())
        };
        let memory_kib: f64 = field("/proc/meminfo", "MemTotal:").trim_end_matches(" kB").parse().unwrap_or(0.0);
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            cpu: field("/proc/cpuinfo", "model name"),
            memory_gib: (memory_kib / 1_048_576.0 * 10.0).round() / 10.0,
            kernel: field("/proc/sys/kernel/osrelease", ""),
            fsync_us: fsync_us(dir).with_context(|| format!("cannot write to {}", dir.display()))?,
        })
    }
}

fn fsync_us(dir: &Path) -> Result<u64> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut times = Vec::new();
    for _ in 0..101 {
        let began = Instant::now();
        file.write_all(&[7; 4_096])?;
        file.sync_data()?;
        times.push(began.elapsed().as_micros() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
