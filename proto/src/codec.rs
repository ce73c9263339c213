//! The codec of all calls.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// The first buffer of a call for the messages that it gets. They arrive whole, and their first bytes make it as large as they are.
const DECODE_BYTES: usize = 0;
/// The same for those that it sends. Most answers fit.
const ENCODE_BYTES: usize = 256;
/// As many bytes of ready messages are sent together; as tonic does it.
const TOGETHER_BYTES: usize = 32 * 1024;

/// Protobuf with small buffers. Those of tonic take 16 KiB of each call, also of a stream that is silent for days.
#[derive(Clone, Debug)]
pub struct LeanCodec<T, U> {
    of: PhantomData<(T, U)>,
}

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        LeanCodec { of: PhantomData }
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for LeanCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(ENCODE_BYTES, TOGETHER_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(DECODE_BYTES, TOGETHER_BYTES))
    }
}
