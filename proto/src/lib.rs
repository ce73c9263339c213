//! The wire of Tallystone. The protocol files in `proto/` are the text to read; this crate holds the code
//! generated from them, and what of the transport several crates share ([`Corked`], [`answer_by`], [`code_name`]): no validation,
//! no conversion, no domain types.
#![allow(missing_docs, reason = "generated code carries the comments of the protocol files")]

mod code_name;
mod corked;
mod deadline;
pub mod status;

pub use code_name::code_name;
pub use corked::Corked;
pub use deadline::answer_by;

/// `tallystone.queue.v1`: the services `Queue` and `QueueAdmin`.
pub mod queue {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.queue.v1");
    }
}

/// `tallystone.event.v1`: what happens to messages, as it stands in Kafka.
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

/// The `google.rpc.Status` that carries the refusal of one item of a batch.
pub use tonic_types::pb::Status as RpcStatus;

/// The encoded `FileDescriptorSet` of every protocol file, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tallystone.bin"));
