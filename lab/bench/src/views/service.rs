//! The service as users run it: the view counter, and the counters with their queue and worker, each a separate process. The
//! log of views has its own Redis, or is in Kafka.

use super::crowd::{Crowd, Drawn};
use super::frames::{Connection, Shape};
use super::plan::{CONNECTIONS, ViewsPlan};
use crate::profile::{process_cpu_s, threads_cpu_s_of};
use crate::program::Program;
use crate::programs::Programs;
use crate::rig::Rig;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often the view counter's metrics are read while it catches up, and how long that may take.
const POLL: Duration = Duration::from_millis(50);
const CAUGHT_UP_LIMIT: Duration = Duration::from_secs(300);

/// The Redis of the log, and that of queue and counters.
pub(super) struct ViewRigs {
    pub(super) log: Rig,
    pub(super) counters: Rig,
}

/// What has the log of views: a name for its processor time, its process, and the arguments with which the view counter uses it.
pub(super) struct LogPlace {
    pub(super) name: &'static str,
    pub(super) pid: u32,
    pub(super) arguments: Vec<String>,
}

/// The running processes. Dropping this ends them.
pub(super) struct Service {
    pub(super) views: Program,
    /// `host:port` of the view counter.
    pub(super) authority: String,
    log: LogPlace,
    programs: Programs,
    metrics_url: String,
    client: reqwest::Client,
    _dir: TempDir,
}

impl Service {
    /// Starts them on empty Redis servers; `namespace`: keys of the namespace that differ from the defaults, in TOML.
    pub(super) async fn start(plan: &ViewsPlan, rigs: &ViewRigs, namespace: &str) -> Result<Service> {
        let log = &rigs.log;
        log.flush().await?;
        let arguments = vec!["--redis-url".to_owned(), log.url()];
        Service::start_on(plan, &rigs.counters, LogPlace { name: "redis", pid: log.pid(), arguments }, namespace).await
    }

    /// The same with an empty log elsewhere.
    pub(super) async fn start_on(plan: &ViewsPlan, counters: &Rig, log: LogPlace, namespace: &str) -> Result<Service> {
        counters.flush().await?;
        let programs = Programs::start(counters, counters, None).await?;
        let dir = tempfile::tempdir()?;
        let config = dir.path().join("views.toml");
        fs::write(&config, format!("[[views.namespaces]]\nname = \"default\"\n{namespace}\n"))?;
        let config = config.to_str().context("the path of the temporary folder")?;
        let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let mut arguments =
            vec!["views", "--config", config, "--counters", &programs.url, "--metrics-listen", &metrics];
        arguments.extend(log.arguments.iter().map(String::as_str));
        let (views, url) = Program::serve(plan.args.views_program.as_deref(), dir.path(), &arguments).await?;
        let authority = url.trim_start_matches("http://").to_owned();
        let client = reqwest::Client::builder().no_proxy().build()?;
        let metrics_url = format!("http://{metrics}/metrics");
        Ok(Service { views, authority, log, programs, metrics_url, client, _dir: dir })
    }

    /// Connections of the load generator.
    pub(super) fn connections(&self, shape: Shape, drawn: &Arc<Drawn>) -> Result<Vec<Connection>> {
        let step = CONNECTIONS as u64;
        (0..step).map(|n| Connection::open(&self.authority, shape, Crowd::new(drawn, n, step))).collect()
    }

    /// Waits until every view that was accepted is counted by the counters.
    pub(super) async fn caught_up(&self) -> Result<Metrics> {
        let give_up_at = Instant::now() + CAUGHT_UP_LIMIT;
        loop {
            let metrics = self.metrics().await?;
            if metrics.is_caught_up()? {
                return Ok(metrics);
            }
            ensure!(Instant::now() < give_up_at, "the counts are not complete: {:?}", metrics.0);
            tokio::time::sleep(POLL).await;
        }
    }

    async fn metrics(&self) -> Result<Metrics> {
        let response = self.client.get(&self.metrics_url).send().await?;
        let text = response.error_for_status()?.text().await?;
        let mut by_name = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("tallystone_views_")) {
            let (name, value) = line.rsplit_once(' ').context("a metric without a value")?;
            let name = name.split_once('{').map_or(name, |(name, _)| name);
            *by_name.entry(name.to_owned()).or_default() += value.parse::<f64>()?;
        }
        Ok(Metrics(by_name))
    }

    /// CPU seconds so far: of each process, and of each kind of thread of the view counter.
    pub(super) fn cpu(&self, counters: &Rig) -> Result<Cpu> {
        let mut by_process = self.programs.cpu_s(counters, counters)?;
        // Queue and counters have one Redis here.
        by_process.remove("queue_redis");
        if let Some(redis) = by_process.remove("redis") {
            by_process.insert("counters_redis", redis);
        }
        by_process.insert(self.log.name, process_cpu_s(self.log.pid)?);
        by_process.insert("views", process_cpu_s(self.views.pid())?);
        Ok(Cpu { by_process, by_thread: threads_cpu_s_of(&self.views.pid().to_string())? })
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.views.stop().await?;
        self.programs.stop().await
    }
}

/// The view counter's metrics, summed over their labels.
pub(super) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(super) fn get(&self, name: &str) -> f64 {
        self.0.get(&format!("tallystone_views_{name}")).copied().unwrap_or_default()
    }

    fn is_caught_up(&self) -> Result<bool> {
        for failure in ["refused_total", "unresolved_total"] {
            if self.get(failure) > 0.0 {
                bail!("{failure} is {}", self.get(failure));
            }
        }
        let [accepted, deduplicated, added, counted] =
            ["accepted_total", "deduplicated_total", "added_total", "counted_total"].map(|name| self.get(name));
        Ok(accepted == deduplicated && added == counted)
    }
}

/// CPU seconds.
pub(super) struct Cpu {
    by_process: BTreeMap<&'static str, f64>,
    by_thread: BTreeMap<String, f64>,
}

impl Cpu {
    /// What was used since an earlier moment.
    pub(super) fn since(&self, before: &Cpu) -> Cpu {
        let by_process =
            self.by_process.iter().map(|(name, s)| (*name, s - before.by_process.get(name).unwrap_or(&0.0)));
        let by_thread =
            self.by_thread.iter().map(|(name, s)| (name.clone(), s - before.by_thread.get(name).unwrap_or(&0.0)));
        Cpu { by_process: by_process.collect(), by_thread: by_thread.collect() }
    }

    /// Of the view counter.
    pub(super) fn views_s(&self) -> f64 {
        self.by_process.get("views").copied().unwrap_or_default()
    }

    /// In one line, in µs per view, for this number of views.
    pub(super) fn line(&self, views: u64) -> String {
        let us = |name: &str, s: f64| (s > 0.0).then(|| format!("{name} {:.2}", s * 1e6 / views as f64));
        let processes = self.by_process.iter().filter_map(|(name, s)| us(name, *s));
        let threads = self.by_thread.iter().filter_map(|(name, s)| us(name, *s));
        let join = |parts: Vec<String>| parts.join(", ");
        format!("{}; threads of views: {}", join(processes.collect()), join(threads.collect()))
    }
}
