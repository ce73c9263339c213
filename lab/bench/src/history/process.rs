//! CPU and memory of processes, read from /proc, and our own program as a child process.

use crate::child;
use crate::profile::{TICKS_PER_S, threads_cpu_s};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Child;

/// CPU of all processes of a group so far: a service may consist of several.
pub(super) fn group_cpu_s(leader: u32) -> Result<f64> {
    let mut seconds = 0.0;
    for process in fs::read_dir("/proc")? {
        // A process that has just ended has no file.
        let Ok(stat) = fs::read_to_string(process?.path().join("stat")) else { continue };
        let of_group = group_and_cpu_s(&stat).filter(|(group, _)| *group == leader);
        seconds += of_group.map_or(0.0, |(_, cpu_s)| cpu_s);
    }
    Ok(seconds)
}

/// `17 (name) S …`: the name may hold spaces and parentheses; the group is field 5, user and system ticks 14 and 15.
fn group_and_cpu_s(stat: &str) -> Option<(u32, f64)> {
    let (_, tail) = stat.rsplit_once(')')?;
    let field = |number: usize| tail.split_whitespace().nth(number - 3);
    let ticks = |number| field(number)?.parse::<f64>().ok();
    Some((field(5)?.parse().ok()?, (ticks(14)? + ticks(15)?) / TICKS_PER_S))
}

/// CPU of this process so far.
pub(super) fn process_cpu_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, cpu_s) = group_and_cpu_s(&stat).context("/proc/self/stat has an unknown format")?;
    Ok(cpu_s)
}

/// CPU of librdkafka's threads in this process so far.
pub(super) fn librdkafka_cpu_s() -> Result<f64> {
    let is_kafka = |name: &str| name.starts_with("rdk:") || name.starts_with("producer poll");
    Ok(threads_cpu_s()?.iter().filter(|(name, _)| is_kafka(name)).map(|(_, seconds)| seconds).sum())
}

/// Processes that ran or waited to run, on average over the last minute.
pub(super) fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let first = text.split_whitespace().next().context("/proc/loadavg is empty")?;
    Ok(first.parse()?)
}

/// Resident memory of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Resident {
    pub(super) now_mib: f64,
    /// Its maximum so far.
    pub(super) peak_mib: f64,
}

/// Our program as users run it. Dropping this ends it.
pub(super) struct Program {
    process: Child,
    pid: u32,
}

impl Program {
    /// Starts the running program again with other arguments and environment.
    pub(super) fn start(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Program> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = child::command(program, dir);
        command.args(arguments).envs(environment.iter().copied()).env("RUST_LOG", "warn");
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start another process of this program")?;
        let pid = process.id().context("the process ended at once")?;
        Ok(Program { process, pid })
    }

    pub(super) fn resident(&mut self) -> Result<Resident> {
        ensure!(self.process.try_wait()?.is_none(), "the process has ended");
        resident(&fs::read_to_string(format!("/proc/{}/status", self.pid))?)
            .context("its /proc status has no memory fields")
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

fn resident(status: &str) -> Option<Resident> {
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1_024.0)
    };
    Some(Resident { now_mib: mib("VmRSS")?, peak_mib: mib("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_and_memory_are_read_from_proc() {
        assert_eq!(group_and_cpu_s("7 (a (b) c) S 1 42 3 4 5 6 7 8 9 10 150 50 0 0 20 0"), Some((42, 2.0)));
        let status = "Name:\tx\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n";
        assert_eq!(resident(status), Some(Resident { now_mib: 100.0, peak_mib: 200.0 }));
        assert!(load_average().unwrap() >= 0.0 && process_cpu_s().unwrap() >= librdkafka_cpu_s().unwrap());
    }
}
