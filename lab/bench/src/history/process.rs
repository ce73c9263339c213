//! CPU of processes, read from /proc.

use crate::profile::{TICKS_PER_S, threads_cpu_s};
use anyhow::{Context, Result};
use std::fs;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_from_proc() {
        assert_eq!(group_and_cpu_s("7 (a (b) c) S 1 42 3 4 5 6 7 8 9 10 150 50 0 0 20 0"), Some((42, 2.0)));
        assert!(load_average().unwrap() >= 0.0 && process_cpu_s().unwrap() >= librdkafka_cpu_s().unwrap());
    }
}
