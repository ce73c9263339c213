//! `tallystone bench views`: views over HTTP/2, on the whole service with its counters.
//!
//! What lives here: one file per figure; the service as processes (`service`), the views (`crowd`), the load generator
//! (`closed`, `frames`), a client for steady loads (`client`), and raw Redis as reference (`floor`). What may not live here:
//! another way to sample, judge or print.

mod client;
mod closed;
mod crowd;
mod floor;
mod frames;
mod kafka;
mod lag;
mod pair_memory;
mod plan;
mod posts;
mod service;

pub use plan::{ViewFigure, ViewsArgs};

use crate::report::{Row, Settings, grouped};
use crate::rig::Rig;
use crate::run::{RunArgs, Suite};
use anyhow::Result;
use plan::ViewsPlan;
use serde_json::json;
use service::ViewRigs;

/// The figures of views.
pub(crate) struct ViewsSuite {
    plan: ViewsPlan,
    redis_version: String,
}

impl ViewsSuite {
    pub(crate) fn new(args: ViewsArgs) -> ViewsSuite {
        ViewsSuite { plan: ViewsPlan::new(args), redis_version: String::new() }
    }
}

impl Suite for ViewsSuite {
    type Figure = ViewFigure;
    const VERB: &'static str = "views";

    fn args(&self) -> &RunArgs<ViewFigure> {
        &self.plan.args.run
    }

    fn size_arguments(&self) -> Vec<String> {
        let (videos, pairs) = (self.plan.videos.to_string(), self.plan.pairs.to_string());
        let seconds = self.plan.args.seconds.map(|seconds| vec!["--seconds".to_owned(), seconds.to_string()]);
        let sizes = vec!["--videos".to_owned(), videos, "--kept-pairs".to_owned(), pairs];
        [sizes, seconds.unwrap_or_default()].concat()
    }

    async fn measure(&mut self, figure: ViewFigure) -> Result<Vec<Row>> {
        let rigs = ViewRigs { log: Rig::start().await?, counters: Rig::start().await? };
        self.redis_version = rigs.log.version().await?;
        let plan = &self.plan;
        let rows = match figure {
            ViewFigure::Posts => posts::single(plan, &rigs).await,
            ViewFigure::Batches => posts::batches(plan, &rigs).await,
            ViewFigure::Kafka => kafka::measure(plan, &rigs).await,
            ViewFigure::Lag => lag::measure(plan, &rigs).await,
            ViewFigure::PairMemory => pair_memory::measure(plan, &rigs).await,
        };
        rigs.log.stop().await;
        rigs.counters.stop().await;
        rows
    }

    async fn finish(self) -> Settings {
        let (redis_version, ViewsPlan { runs, videos, .. }) = (self.redis_version, self.plan);
        Settings {
            fields: json!({
                "redis_version": redis_version,
                "appendfsync": "always",
                "videos": videos,
                "runs": runs,
            }),
            line: format!(
                "Redis {redis_version}, appendfsync always on both sides; {} videos by Zipf's law, each view a new pair; the log \
                 has a Redis (kafka: Kafka 4.1.0, one broker), queue, counters and one worker share another one; median of {runs}",
                grouped(videos as u64)
            ),
        }
    }
}
