//! The gRPC protocol of Tallystone. The protocol files in `proto/` define and explain it; this crate has the code that
//! tonic and prost generate from them.
//!
//! It also has what client and servers share of the transport: [`Corked`], [`answer_by`], [`code_name`], [`status`],
//! [`TraceContext`]. What
//! may not live here: validation, conversion, domain types.
#![allow(missing_docs, reason = "generated code carries the comments of the protocol files")]

mod code_name;
mod codec;
mod corked;
mod deadline;
mod outcome;
pub mod status;
mod trace_context;
#[cfg(feature = "telemetry")]
mod trace_span;

pub use code_name::code_name;
pub use codec::LeanCodec;
pub use corked::Corked;
pub use deadline::answer_by;
pub use trace_context::{TRACEPARENT, TRACESTATE, TraceContext};

/// `tallystone.queue.v1`: the services `Queue` and `QueueAdmin`.
pub mod queue {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.queue.v1");
    }
}

/// `tallystone.event.v1`: the events on the Kafka topic.
pub mod event {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.event.v1");
    }
}

/// `tallystone.history.v1`: the service `History`.
pub mod history {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.history.v1");
    }
}

/// `tallystone.counter.v1`: the services `Counters` and `CounterAdmin`.
pub mod counter {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.counter.v1");
    }
}

/// The `google.rpc.Status` of one refused item of a batch.
pub use tonic_types::pb::Status as RpcStatus;

/// The encoded `FileDescriptorSet` of all protocol files, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tallystone.bin"));
