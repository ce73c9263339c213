//! Two rollup workers, each in its own process. One of them is killed with SIGKILL.

use super::services::CounterServices;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tallystone_workers::{Record, Records, RollupStage};
use tokio::process::{Child, Command};

const NAMES: [&str; 2] = ["rollup-1", "rollup-2"];
/// How often the records of the worker to be killed are read.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// If it has not begun enough rollups within this time, it is not killed.
const KILL_WITHIN: Duration = Duration::from_secs(15);

/// The workers, and the folder of their records.
pub(super) struct RollupWorkers {
    processes: Vec<Child>,
    dir: tempfile::TempDir,
}

/// The kill of one worker.
pub(super) struct RollupWorkerKill {
    pub(super) name: &'static str,
    pub(super) at_us: u64,
}

impl RollupWorkers {
    pub(super) fn start(at: &CounterServices) -> Result<RollupWorkers> {
        let dir = tempfile::tempdir().context("cannot create a folder for the workers' records")?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let start = |name: &&str| {
            // They end together with the demo, even when it is killed.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&program).arg("rollup-worker");
            command.args(["--server", &at.queue_url, "--name", name, "--log", "error"]);
            // It has a password, which the command line would show to every user.
            command.env("TALLYSTONE_REDIS_URL", &at.redis_url);
            command.arg("--records").arg(records(dir.path(), name));
            command.env_remove("TALLYSTONE_CONFIG").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
            command.spawn().context("cannot start a rollup worker")
        };
        let processes = NAMES.iter().map(start).collect::<Result<_>>()?;
        Ok(RollupWorkers { processes, dir })
    }

    /// Kills one worker when it has begun this many rollups.
    pub(super) async fn kill_one_in_the_middle(&mut self, rollups: u64) -> Result<Option<RollupWorkerKill>> {
        let deadline = Instant::now() + KILL_WITHIN;
        let (doomed, path) = (&mut self.processes[0], records(self.dir.path(), NAMES[0]));
        loop {
            let begun = match path.exists() {
                true => Records::read(&path)?.iter().filter(|record| record.stage == RollupStage::Begin).count() as u64,
                false => 0,
            };
            if begun >= rollups {
                break;
            }
            if Instant::now() > deadline {
                // The other worker did almost everything.
                return Ok(None);
            }
            ensure!(doomed.try_wait()?.is_none(), "a rollup worker ended before the demo killed it");
            tokio::time::sleep(POLL_EVERY).await;
        }
        doomed.kill().await.context("cannot kill a rollup worker")?;
        let at_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        Ok(Some(RollupWorkerKill { name: NAMES[0], at_us }))
    }

    /// Stops the workers and reads the records of all of them.
    pub(super) async fn stop(mut self) -> Result<Vec<Record>> {
        for process in &mut self.processes {
            process.kill().await.context("cannot stop a rollup worker")?;
        }
        let mut all = Vec::new();
        for name in NAMES {
            all.extend(
                Records::read(&records(self.dir.path(), name)).context("cannot read the records of a rollup worker")?,
            );
        }
        Ok(all)
    }
}

fn records(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).with_extension("ndjson")
}
