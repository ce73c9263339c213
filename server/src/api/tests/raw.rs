//! Bytes that no client of ours would send.

use super::super::REQUEST_BYTES_MAX;
use super::{because, refused};
use crate::testing::*;
use tallystone_proto::queue::v1 as pb;
use tonic::Code;

/// Sends bytes as they are.
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(into, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        bytes::Buf::advance(from, bytes::Buf::remaining(from));
        Ok(Some(()))
    }
}

async fn send_raw(server: &TestServer, path: &'static str, message: Vec<u8>) -> Result<(), tonic::Status> {
    let mut client = tonic::client::Grpc::new(server.channel.clone());
    client.ready().await.unwrap();
    let messages = futures::stream::iter([message]);
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    let mut answers = client.streaming(tonic::Request::new(messages), path, Raw).await?.into_inner();
    while answers.message().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn unknown_fields_are_passed_over_and_bytes_that_are_no_message_are_refused() {
    let mut server = TestServer::start().await;
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![message("a")] };
    let mut newer = prost::Message::encode_to_vec(&request);
    newer.extend([0xfa, 0x3e, 2, b'x', b'y']); // field 1007, two bytes of text
    send_raw(&server, "/tallystone.queue.v1.Queue/Enqueue", newer).await.unwrap();
    assert_eq!(server.depth("q").await.pending, 1);
    for path in [
        "/tallystone.queue.v1.Queue/Enqueue",
        "/tallystone.queue.v1.Queue/EnqueueStream",
        "/tallystone.queue.v1.Queue/Work",
    ] {
        let refusal = refused(send_raw(&server, path, vec![0xff; 40]).await);
        assert_eq!(refusal, because(Code::InvalidArgument, "INVALID_ARGUMENT"), "{path}");
        let refusal = refused(send_raw(&server, path, vec![0; REQUEST_BYTES_MAX + 1]).await);
        assert_eq!(refusal, because(Code::ResourceExhausted, "TOO_LARGE"), "{path}");
    }
    for path in ["/tallystone.queue.v1.Queue/Nothing", "/tallystone.queue.v1.Nothing/Enqueue"] {
        let refusal = refused(send_raw(&server, path, vec![]).await);
        assert_eq!(refusal, because(Code::Unimplemented, "METHOD_NOT_FOUND"), "{path}");
    }
    assert_eq!(server.depth("q").await.pending, 1);
}
