//! Events, losses and watermarks as records of the events topic (the head of `event.proto` describes its layout).

mod decoder;
mod encoder;

pub use decoder::{Undecodable, decode, decode_loss, decode_watermark};
pub use encoder::{Encoder, encode, encode_loss, encode_watermark};

/// The header that gives a record's type.
pub(crate) const TYPE_HEADER: &str = "tallystone-type";
/// The header's value for an event.
pub(crate) const EVENT: &[u8] = b"event";
/// The header's value for a loss.
pub(crate) const LOSS: &[u8] = b"loss";
/// The header's value for a watermark.
pub(crate) const WATERMARK: &[u8] = b"watermark";
