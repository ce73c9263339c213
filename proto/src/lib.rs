//! The wire of Tallystone. The protocol files in `proto/` are the text to read; this crate holds the code
//! generated from them, and the one piece of transport that both ends share ([`Corked`]): no validation, no
//! conversion, no domain types.
#![allow(missing_docs, reason = "generated code carries the comments of the protocol files")]

mod corked;

pub use corked::Corked;

/// `tallystone.queue.v1`: the services `Queue` and `QueueAdmin`.
pub mod queue {
    /// Version 1.
    pub mod v1 {
        tonic::include_proto!("tallystone.queue.v1");
    }
}

/// The `google.rpc.Status` that carries the refusal of one item of a batch.
pub use tonic_types::pb::Status as RpcStatus;

/// The encoded `FileDescriptorSet` of every protocol file, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tallystone.bin"));
