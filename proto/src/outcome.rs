//! The result of one item of a batch. The protocol has a type of it for each RPC; all have the same two cases.

use crate::RpcStatus;
use crate::counter::v1 as counter;
use crate::queue::v1 as queue;

/// Converts an outcome into a `Result`, and back.
macro_rules! results {
    ($($outcome:path => $done:path;)+) => {$(
        impl From<$outcome> for Result<$done, RpcStatus> {
            fn from(outcome: $outcome) -> Self {
                use $outcome as Outcome;
                match outcome {
                    Outcome::Ok(done) => Ok(done),
                    Outcome::Error(status) => Err(status),
                }
            }
        }

        impl From<Result<$done, RpcStatus>> for $outcome {
            fn from(result: Result<$done, RpcStatus>) -> Self {
                use $outcome as Outcome;
                result.map_or_else(Outcome::Error, Outcome::Ok)
            }
        }
    )+};
}

results! {
    queue::enqueue_result::Outcome => queue::Enqueued;
    queue::transition_result::Outcome => queue::Transition;
    queue::lease_extension_result::Outcome => queue::LeaseExtended;
    counter::add_count_result::Outcome => counter::AddCountResponse;
    counter::add_and_get_count_result::Outcome => counter::AddAndGetCountResponse;
    counter::get_count_result::Outcome => counter::GetCountResponse;
    counter::clear_count_result::Outcome => counter::ClearCountResponse;
}
