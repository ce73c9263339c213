//! `tallystone bench queue`: one file per figure, or per group of figures that are measured alike.
//!
//! A figure gets a fresh Redis, measures both sides alternately, and returns its rows. It neither judges nor prints.

mod attack_cost;
mod attacked;
mod attacks;
mod batches;
mod cluster;
mod depth;
mod due;
mod fair;
mod filter;
mod http_attacks;
mod idle;
mod innocent;
mod latency;
mod locked;
mod memory;
mod overload;
mod plan;
mod rounds;
mod secured;
mod shards;
mod stream_attacks;
mod unary;
mod work;

pub use plan::{QueueArgs, QueueFigure};

use crate::report::{Row, Settings};
use crate::rig::Rig;
use crate::run::{RunArgs, Suite};
use crate::shape::{BATCH, CALLERS, CLIENTS, CONNECTIONS, PAYLOAD_BYTES, RETENTION_MS};
use anyhow::Result;
use plan::QueuePlan;
use serde_json::json;

/// The figures of the queue.
pub(crate) struct QueueSuite {
    plan: QueuePlan,
    redis_version: String,
}

impl QueueSuite {
    pub(crate) fn new(args: QueueArgs) -> QueueSuite {
        QueueSuite { plan: QueuePlan::new(args), redis_version: String::new() }
    }
}

impl Suite for QueueSuite {
    type Figure = QueueFigure;
    const VERB: &'static str = "queue";

    fn args(&self) -> &RunArgs<QueueFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--messages".to_owned(), self.plan.messages.to_string()];
        arguments.extend(["--server-threads".to_owned(), self.plan.args.server_threads.to_string()]);
        if let Some(peers) = &self.plan.args.peers {
            arguments.extend(["--peers".to_owned(), peers.display().to_string()]);
        }
        arguments
    }

    async fn measure(&mut self, figure: QueueFigure) -> Result<Vec<Row>> {
        let rig = Rig::start().await?;
        self.redis_version = rig.version().await?;
        let plan = &self.plan;
        let rows = match figure {
            QueueFigure::Simple => batches::simple(plan, &rig).await,
            QueueFigure::Exclusive => batches::exclusive(plan, &rig).await,
            QueueFigure::Work => work::measure(plan, &rig).await,
            QueueFigure::Unary => unary::measure(plan, &rig).await,
            QueueFigure::Latency => latency::measure(plan, &rig).await,
            QueueFigure::Depth => depth::measure(plan, &rig).await,
            QueueFigure::Locked => locked::measure(plan, &rig).await,
            QueueFigure::Filter => filter::measure(plan, &rig).await,
            QueueFigure::Memory => memory::measure(plan, &rig).await,
            QueueFigure::Idle => idle::measure(plan, &rig).await,
            QueueFigure::Overload => overload::measure(plan, &rig).await,
            QueueFigure::Secured => secured::measure(plan, &rig).await,
            QueueFigure::Fair => fair::measure(plan, &rig).await,
            QueueFigure::Attacked => attacked::measure(plan, &rig).await,
            QueueFigure::Due => due::measure(plan).await,
            QueueFigure::Shards => shards::measure(plan, &rig).await,
            QueueFigure::Cluster => cluster::measure(plan, &rig).await,
        };
        rig.stop().await;
        rows
    }

    async fn finish(self) -> Settings {
        let (redis_version, runs) = (self.redis_version, self.plan.runs);
        Settings {
            fields: json!({
                "redis_version": redis_version,
                "appendfsync": "always",
                "payload_bytes": PAYLOAD_BYTES,
                "batch": BATCH,
                "clients": CLIENTS,
                "callers": CALLERS,
                "caller_connections": CONNECTIONS,
                "terminal_retention_ms": RETENTION_MS,
                "messages": self.plan.messages,
                "runs": runs,
            }),
            line: format!(
                "Redis {redis_version}, appendfsync always, {PAYLOAD_BYTES}-byte payloads, random priorities, outbox on, \
                 completed messages collected after {RETENTION_MS} ms; median of {runs}"
            ),
        }
    }
}
