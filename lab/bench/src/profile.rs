//! Where a sample spent its time: CPU per process and per kind of thread, commands of Redis.

use crate::rig::{CommandCost, Rig};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Clock ticks per second in /proc; fixed by the kernel's interface to programs.
pub(crate) const TICKS_PER_S: f64 = 100.0;

/// The state of the counters at one moment.
struct Reading {
    at: Instant,
    redis_cpu_s: f64,
    threads_cpu_s: BTreeMap<String, f64>,
    commands: BTreeMap<String, CommandCost>,
}

impl Reading {
    async fn take(rig: &Rig) -> Result<Reading> {
        let cpu = rig.info("cpu").await?;
        let seconds = |field: &str| cpu.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        Ok(Reading {
            at: Instant::now(),
            redis_cpu_s: seconds("used_cpu_user") + seconds("used_cpu_sys"),
            threads_cpu_s: threads_cpu_s()?,
            commands: rig.commands().await?,
        })
    }
}

/// CPU of this process by thread name: "server" when the server has dedicated threads.
pub(crate) fn threads_cpu_s() -> Result<BTreeMap<String, f64>> {
    threads_cpu_s_of("self")
}

/// The same of a process, by its id.
pub(crate) fn threads_cpu_s_of(pid: &str) -> Result<BTreeMap<String, f64>> {
    let mut by_name = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended has no file: this profile misses its time.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        if let Some((name, seconds)) = thread_cpu_s(&stat) {
            *by_name.entry(name).or_default() += seconds;
        }
    }
    Ok(by_name)
}

/// CPU seconds of a process so far, with all its threads.
pub(crate) fn process_cpu_s(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let (_, seconds) = thread_cpu_s(&fs::read_to_string(&path)?).with_context(|| format!("{path} has no times"))?;
    Ok(seconds)
}

/// `17 (name) S …`: the name may hold spaces and parentheses; user and system ticks are fields 14 and 15.
fn thread_cpu_s(stat: &str) -> Option<(String, f64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let ticks = |field: usize| tail.split_whitespace().nth(field - 3)?.parse::<f64>().ok();
    Some((name.to_owned(), (ticks(14)? + ticks(15)?) / TICKS_PER_S))
}

/// A running measurement.
pub(crate) struct Probe(Reading);

impl Probe {
    pub(crate) async fn start(rig: &Rig) -> Result<Probe> {
        Ok(Probe(Reading::take(rig).await?))
    }

    /// Prints on stderr what was spent since the start.
    pub(crate) async fn report(self, rig: &Rig, label: &str) -> Result<()> {
        let (before, after) = (self.0, Reading::take(rig).await?);
        let wall_s = (after.at - before.at).as_secs_f64();
        let share = |seconds: f64| format!("{:.0}%", 100.0 * seconds / wall_s);
        let mut line =
            format!("profile {label}: {wall_s:.2} s, redis {}", share(after.redis_cpu_s - before.redis_cpu_s));
        for (name, seconds) in &after.threads_cpu_s {
            let spent = seconds - before.threads_cpu_s.get(name).unwrap_or(&0.0);
            if spent > 0.01 * wall_s {
                line += &format!(", {name} {}", share(spent));
            }
        }
        eprintln!("{line} of one core");
        let mut spent = commands_between(&before.commands, &after.commands);
        spent.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.us));
        for (name, CommandCost { calls, us }) in spent {
            eprintln!(
                "  {name:<24} {calls:>10} calls {:>9.1} ms {:>8.2} µs each",
                us as f64 / 1e3,
                us as f64 / calls as f64
            );
        }
        Ok(())
    }
}

/// Does the work and, if `enabled`, prints what it cost.
pub(crate) async fn profiled<T>(
    enabled: bool,
    rig: &Rig,
    label: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    if !enabled {
        return work.await;
    }
    let probe = Probe::start(rig).await?;
    let done = work.await?;
    probe.report(rig, label).await?;
    Ok(done)
}

/// The commands called between the two readings.
pub(crate) fn commands_between(
    before: &BTreeMap<String, CommandCost>,
    after: &BTreeMap<String, CommandCost>,
) -> Vec<(String, CommandCost)> {
    let delta = |(name, after): (&String, &CommandCost)| {
        let before = before.get(name).copied().unwrap_or_default();
        (name.clone(), CommandCost { calls: after.calls - before.calls, us: after.us - before.us })
    };
    after.iter().map(delta).filter(|(_, cost)| cost.calls > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_from_proc() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(thread_cpu_s(stat), Some(("a (b) c".to_owned(), 2.0)));
        assert!(!threads_cpu_s().unwrap().is_empty());
    }
}
