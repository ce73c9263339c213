//! rpc ListQueues (Q2, Q9). A caller gets the queues that it may read (S4).

use super::depth::ages;
use super::{queue_config, status, wire};
use crate::engine::{Engine, shard};
use futures::{StreamExt, TryStreamExt, stream};
use tallystone_model::limits::QUEUE_NAME_BYTES_MAX;
use tallystone_model::names::check_text;
use tallystone_model::store::Queue;
use tallystone_model::{QueueName, Refusal, Store};
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, Right};
use tonic::{Request, Status};

/// How many depths are requested from the store at once.
const AT_ONCE: usize = 64;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: Request<pb::ListQueuesRequest>,
) -> Result<pb::ListQueuesResponse, Status> {
    let access = Access::of(request.extensions());
    let request = request.into_inner();
    let limit = wire::page_size(request.page_size)?;
    check_text("prefix", &request.prefix, 0, QUEUE_NAME_BYTES_MAX).map_err(status::of_call)?;
    check_text("page_token", &request.page_token, 0, QUEUE_NAME_BYTES_MAX).map_err(status::of_call)?;
    let store = &engine.context.store;
    let page = store.list_queues(&request.prefix, &request.page_token, limit).await.map_err(status::of_call)?;
    let visible = page.items.into_iter().filter(|queue| access.allows(Right::Read, queue.name.as_str()));
    let measure = async |name: &QueueName| {
        let depth = store.depth(&shard(name), None).await?;
        Ok((depth, ages(&**store, name, &depth).await?))
    };
    let summary = async |queue: Queue| match measure(&queue.name).await {
        Ok((depth, ages)) => Ok(Some(pb::QueueSummary {
            queue: Some(queue_config::to_info(queue)),
            depth: Some(wire::to_counts(depth)),
            ages: Some(wire::to_ages(ages)),
        })),
        // The queue was deleted since the page was read.
        Err(Refusal::QueueNotFound { .. }) => Ok(None),
        Err(refusal) => Err(status::of_call(refusal)),
    };
    let summaries: Vec<Option<pb::QueueSummary>> =
        stream::iter(visible).map(summary).buffered(AT_ONCE).try_collect().await?;
    Ok(pb::ListQueuesResponse { queues: summaries.into_iter().flatten().collect(), next_page_token: page.next_cursor })
}
