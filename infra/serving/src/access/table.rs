//! The table of rights: for each RPC, the right that its caller needs and the name that the right is on (S4). Requests
//! of RPCs without a row cannot be passed to [`Access::check`](super::Access::check), and a test compares the rows with the
//! protocol files.

use super::right::Right;
use tallystone_proto::counter::v1::*;
use tallystone_proto::history::v1::*;
use tallystone_proto::queue::v1::*;

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The queue or the namespace of this name.
    One(&'a str),
    /// These queues; none: the call does nothing.
    Each(Vec<&'a str>),
    /// All queues whose names begin so.
    AllOf(&'a str),
    /// A list of which the caller gets the part that it may read.
    Listed,
}

/// The request of an RPC.
pub trait Guarded {
    /// The service of the RPC, with its package.
    const SERVICE: &'static str;
    /// The name of the RPC, as in metrics.
    const RPC: &'static str;
    /// Service and RPC, as in traces.
    const METHOD: &'static str;
    /// The right that its caller needs.
    const RIGHT: Right;

    /// What the right must be on.
    fn resource(&self) -> Resource<'_>;
}

macro_rules! rights {
    ($($service:literal { $($rpc:literal: $request:ty => $right:ident, $resource:expr;)* })*) => {
        $($(impl Guarded for $request {
            const SERVICE: &'static str = $service;
            const RPC: &'static str = $rpc;
            const METHOD: &'static str = concat!($service, "/", $rpc);
            const RIGHT: Right = Right::$right;

            fn resource(&self) -> Resource<'_> {
                let of: fn(&$request) -> Resource<'_> = $resource;
                of(self)
            }
        })*)*

        /// Service, RPC and right of each row.
        pub const METHODS: &[(&str, &str, Right)] = &[$($(($service, $rpc, Right::$right),)*)*];
    };
}

rights! {
    "tallystone.queue.v1.Queue" {
        "Enqueue": EnqueueRequest => Produce, |it| Resource::One(&it.queue);
        // Each call on the stream is checked as an Enqueue.
        "EnqueueStream": EnqueueCall => Produce, |it| Resource::One(it.request.as_ref().map_or("", |it| &it.queue));
        "Dequeue": DequeueRequest => Consume, |it| Resource::One(&it.queue);
        "Complete": CompleteRequest => Consume, |it| Resource::One(&it.queue);
        "ExtendLease": ExtendLeaseRequest => Consume, |it| Resource::One(&it.queue);
        "Release": ReleaseRequest => Consume, |it| Resource::One(&it.queue);
        // With force it also needs `operate`; with a fencing token, `consume`.
        "Cancel": CancelRequest => Produce, |it| Resource::One(&it.queue);
        // Checked for each subscription.
        "Work": WorkStart => Consume, |it| Resource::One(&it.queue);
    }
    "tallystone.queue.v1.QueueAdmin" {
        "CreateQueue": CreateQueueRequest => Create, |it| Resource::One(&it.name);
        "UpdateQueue": UpdateQueueRequest => Configure, |it| Resource::One(&it.name);
        "GetQueue": GetQueueRequest => Read, |it| Resource::One(&it.name);
        "ListQueues": ListQueuesRequest => Read, |_| Resource::Listed;
        "DeleteQueue": DeleteQueueRequest => Purge, |it| Resource::One(&it.name);
        "PurgeQueue": PurgeQueueRequest => Purge, |it| Resource::One(&it.name);
        "Depth": DepthRequest => Read, |it| Resource::One(&it.queue);
        "GetMessage": GetMessageRequest => Read, |it| Resource::One(&it.queue);
        "ListMessages": ListMessagesRequest => Read, |it| Resource::One(&it.queue);
        "UpdateMessage": UpdateMessageRequest => Operate, |it| Resource::One(&it.queue);
        "Redrive": RedriveRequest => Operate, |it| Resource::One(&it.queue);
        "ChangeMessages": ChangeMessagesRequest => Operate, |it| Resource::One(&it.queue);
        "Explain": ExplainRequest => Read, |it| Resource::One(&it.queue);
        "CheckQueue": CheckQueueRequest => Operate, |it| Resource::One(&it.queue);
    }
    "tallystone.history.v1.History" {
        "TraceMessage": TraceMessageRequest => Read, |it| Resource::One(&it.queue);
        "SearchMessages": SearchMessagesRequest => Read, |it| one_or_all(&it.queue, "");
        "QueueStats": QueueStatsRequest => Read, |it| Resource::One(&it.queue);
        "IndexedDepth": IndexedDepthRequest => Read, |it| one_or_all(&it.queue, it.queue_prefix());
        // For messages it also needs `consume`.
        "RepairMessages": RepairMessagesRequest => Operate, |it| {
            let messages = it.messages.iter().map(|message| message.queue.as_str());
            Resource::Each(messages.chain(it.settled.iter().map(|loss| loss.queue.as_str())).collect())
        };
    }
    "tallystone.counter.v1.Counters" {
        "AddCount": AddCountRequest => Count, |it| Resource::One(&it.namespace);
        "AddAndGetCount": AddAndGetCountRequest => Count, |it| Resource::One(&it.namespace);
        "GetCount": GetCountRequest => CountRead, |it| Resource::One(&it.namespace);
        "ClearCount": ClearCountRequest => Count, |it| Resource::One(&it.namespace);
        "AddCounts": AddCountsRequest => Count, |it| Resource::One(&it.namespace);
        "AddAndGetCounts": AddAndGetCountsRequest => Count, |it| Resource::One(&it.namespace);
        "GetCounts": GetCountsRequest => CountRead, |it| Resource::One(&it.namespace);
        "ClearCounts": ClearCountsRequest => Count, |it| Resource::One(&it.namespace);
        "DeleteCounter": DeleteCounterRequest => CountAdmin, |it| Resource::One(&it.namespace);
        "ListCounters": ListCountersRequest => CountRead, |it| Resource::One(&it.namespace);
        "ListEvents": ListEventsRequest => CountRead, |it| Resource::One(&it.namespace);
        "GetSums": GetSumsRequest => CountRead, |it| Resource::One(&it.namespace);
        "AuditCounter": AuditCounterRequest => CountRead, |it| Resource::One(&it.namespace);
        "RecountCounter": RecountCounterRequest => CountAdmin, |it| Resource::One(&it.namespace);
        "ListRecounts": ListRecountsRequest => CountRead, |it| Resource::One(&it.namespace);
        "ListCrossings": ListCrossingsRequest => CountRead, |it| Resource::One(&it.namespace);
        "ListTopCounters": ListTopCountersRequest => CountRead, |it| Resource::One(&it.namespace);
    }
    "tallystone.counter.v1.CounterAdmin" {
        "PutNamespace": PutNamespaceRequest => CountAdmin, |it| Resource::One(&it.name);
        "GetNamespace": GetNamespaceRequest => CountRead, |it| Resource::One(&it.name);
        "ListNamespaces": ListNamespacesRequest => CountRead, |_| Resource::Listed;
        "DeleteNamespace": DeleteNamespaceRequest => CountAdmin, |it| Resource::One(&it.name);
    }
}

/// The queue, or all queues of the prefix where the request names none.
fn one_or_all<'a>(queue: &'a str, prefix: &'a str) -> Resource<'a> {
    if queue.is_empty() { Resource::AllOf(prefix) } else { Resource::One(queue) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use std::collections::BTreeSet;
    use tallystone_proto::FILE_DESCRIPTOR_SET;

    #[test]
    fn s4_every_rpc_of_the_protocol_has_one_row() {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
        let mut rpcs = BTreeSet::new();
        for file in &set.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                rpcs.extend(service.method.iter().map(|method| (name.clone(), method.name().to_owned())));
            }
        }
        let rows: BTreeSet<_> =
            METHODS.iter().map(|(service, rpc, _)| (service.to_string(), rpc.to_string())).collect();
        assert_eq!(rows, rpcs);
        assert_eq!(rows.len(), METHODS.len());
    }

    #[test]
    fn s4_a_search_without_a_queue_is_about_all_queues() {
        let search = |queue: &str| SearchMessagesRequest { queue: queue.to_owned(), ..Default::default() };
        assert_eq!(search("").resource(), Resource::AllOf(""));
        assert_eq!(search("a").resource(), Resource::One("a"));
        let depth = IndexedDepthRequest { queue_prefix: Some("a/".to_owned()), ..Default::default() };
        assert_eq!(depth.resource(), Resource::AllOf("a/"));
    }
}
