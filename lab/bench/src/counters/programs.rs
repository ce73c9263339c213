//! The services as users run them: the queue's server, the counters' server and a rollup worker, each a separate process.

use crate::program::Program;
use crate::rig::Rig;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use tempfile::TempDir;

/// The running processes. Dropping this ends them.
pub(super) struct Programs {
    pub(super) server: Program,
    pub(super) counters: Program,
    pub(super) worker: Program,
    /// Of the counters' server.
    pub(super) url: String,
    metrics_address: String,
    _dir: TempDir,
}

impl Programs {
    /// Starts them on these Redis servers, with the default configuration; the worker is the archiver if there is an archive,
    /// which is a temporary folder.
    pub(super) async fn start(rig: &Rig, queue_rig: &Rig, has_archive: bool) -> Result<Programs> {
        let (dir, redis_url) = (tempfile::tempdir()?, rig.url());
        let config = dir.path().join("config.toml");
        let archive = format!("[archive]\nurl = \"file://{}/archive\"\n", dir.path().display());
        fs::write(&config, if has_archive { archive.as_str() } else { "" })?;
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

    /// A metric of the worker that has no labels.
    pub(super) async fn worker_metric(&self, name: &str) -> Result<f64> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let response = client.get(format!("http://{}/metrics", self.metrics_address)).send().await?;
        ensure!(response.status().is_success(), "the worker's metrics: {}", response.status());
        let text = response.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.trim().parse().ok()).with_context(|| format!("the worker has no metric {name}"))
    }

    pub(super) async fn stop(self) -> Result<()> {
        for program in [self.worker, self.counters, self.server] {
            program.stop().await?;
        }
        Ok(())
    }
}
