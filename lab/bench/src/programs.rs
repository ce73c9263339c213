//! The services as users run them: the queue's server, the counters' server and a rollup worker, each a separate process.

use crate::profile::process_cpu_s;
use crate::program::Program;
use crate::rig::Rig;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use tallystone_counters::ArchiveConfig;
use tempfile::TempDir;

/// The running processes. Dropping this ends them.
pub(crate) struct Programs {
    pub(crate) server: Program,
    pub(crate) counters: Program,
    pub(crate) worker: Program,
    /// Of the counters' server.
    pub(crate) url: String,
    metrics_address: String,
    _dir: TempDir,
}

impl Programs {
    /// Starts them on these Redis servers, with the default configuration; the worker is the archiver if there is an archive,
    /// in a temporary folder.
    pub(crate) async fn start(rig: &Rig, queue_rig: &Rig, archive: Option<&ArchiveConfig>) -> Result<Programs> {
        let (dir, redis_url) = (tempfile::tempdir()?, rig.url());
        let config = dir.path().join("config.toml");
        let archive = archive.map(|ArchiveConfig { interval_ms, keep_ms, .. }| {
            let url = format!("file://{}/archive", dir.path().display());
            format!("[archive]\nurl = \"{url}\"\ninterval_ms = {interval_ms}\nkeep_ms = {keep_ms}\n")
        });
        fs::write(&config, archive.unwrap_or_default())?;
        let config = config.to_str().context("the path of the temporary folder")?;
        let (server, queue_url) =
            Program::serve(None, dir.path(), &["server", "--redis-url", &queue_rig.url()]).await?;
        let shared = ["--config", config, "--redis-url", &redis_url, "--server", &queue_url];
        let (counters, url) = Program::serve(None, dir.path(), &[&["counters"], &shared[..]].concat()).await?;
        let metrics_address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let arguments = [&["rollup-worker"], &shared[..], &["--metrics-listen", &metrics_address]].concat();
        let worker = Program::start(dir.path(), &arguments, &[])?;
        Ok(Programs { server, counters, worker, url, metrics_address, _dir: dir })
    }

    /// CPU seconds of each process so far; the Redis servers are those of the rigs.
    pub(crate) fn cpu_s(&self, rig: &Rig, queue_rig: &Rig) -> Result<BTreeMap<&'static str, f64>> {
        let pids = [
            ("redis", rig.pid()),
            ("counters", self.counters.pid()),
            ("rollup_worker", self.worker.pid()),
            ("queue_redis", queue_rig.pid()),
            ("queue", self.server.pid()),
        ];
        pids.into_iter().map(|(name, pid)| Ok((name, process_cpu_s(pid)?))).collect()
    }

    /// A metric of the worker, with its labels if it has some.
    pub(crate) async fn worker_metric(&self, name: &str) -> Result<f64> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let response = client.get(format!("http://{}/metrics", self.metrics_address)).send().await?;
        ensure!(response.status().is_success(), "the worker's metrics: {}", response.status());
        let text = response.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse().ok()).with_context(|| format!("the worker has no metric {name}"))
    }

    pub(crate) async fn stop(self) -> Result<()> {
        for program in [self.worker, self.counters, self.server] {
            program.stop().await?;
        }
        Ok(())
    }
}
