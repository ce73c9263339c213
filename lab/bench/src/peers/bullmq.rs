//! BullMQ on node: peers/bullmq.mjs does the work and prints what it measured.

use super::version_of;
use crate::child;
use crate::rig::Rig;
use crate::sample::Sample;
use crate::shape::{CALLERS, time_limit};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What bullmq.mjs can measure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// Queue.add, one job per call.
    Add,
    /// One Worker with that concurrency. Adding the jobs is not measured.
    Work,
}

/// An installed BullMQ.
pub(crate) struct BullMq {
    dir: PathBuf,
    version: String,
}

#[derive(Deserialize)]
struct Report {
    messages: u64,
    seconds: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl BullMq {
    /// `None`: node or the package is not installed.
    pub(crate) async fn find(dir: &Path) -> Option<BullMq> {
        let dir = dir.to_owned();
        version_of("node", "--version").await?;
        let version = package_version(&dir.join("node_modules/bullmq/package.json"))?;
        Some(BullMq { dir, version })
    }

    pub(crate) fn name(&self) -> String {
        format!("BullMQ {}", self.version)
    }

    /// One sample on the (empty) Redis of the rig.
    pub(crate) async fn sample(&self, rig: &Rig, measure: Measure, messages: u64) -> Result<Sample> {
        rig.flush().await?;
        let verb = match measure {
            Measure::Add => "add",
            Measure::Work => "work",
        };
        let mut command = child::command("node", &self.dir);
        command.args(["bullmq.mjs", verb, "--port", &rig.port().to_string(), "--messages", &messages.to_string()]);
        command.args(["--callers", &CALLERS.to_string()]).stdin(Stdio::null()).stderr(Stdio::inherit());
        let limit = time_limit(messages);
        let output = tokio::time::timeout(limit, command.output()).await.context("BullMQ does not end")??;
        ensure!(output.status.success(), "BullMQ failed: {}", output.status);
        let report: Report = serde_json::from_slice(&output.stdout).context("BullMQ's report")?;
        ensure!(report.messages == messages, "BullMQ handled {} of {messages} messages", report.messages);
        Ok(Sample { value: messages as f64 / report.seconds, p50_ms: report.p50_ms, p99_ms: report.p99_ms })
    }
}

fn package_version(path: &Path) -> Option<String> {
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(package.get("version")?.as_str()?.to_owned())
}
