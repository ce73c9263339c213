//! ACLs of a Kafka, created by its protocol: the client library has no call for them.

use bytes::{Buf, BufMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// CreateAcls, version 1.
const API: i16 = 30;
const VERSION: i16 = 1;
/// Returned with the answer.
const CORRELATION: i32 = 16;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALLOW: i8 = 3;

/// The numbers are those of the protocol.
#[derive(Clone, Copy)]
pub(super) enum Resource {
    Topic = 2,
    Group = 3,
    TransactionalId = 5,
}

/// The numbers are those of the protocol.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Read = 3,
    Write = 4,
    Describe = 8,
}

/// What a user may do with a resource, or with all resources whose names begin with what is before a `*`.
pub(super) struct Acl<'a>(pub(super) &'a str, pub(super) Resource, pub(super) &'a str, pub(super) &'a [Operation]);

fn put_text(request: &mut Vec<u8>, text: &str) {
    request.put_i16(i16::try_from(text.len()).expect("a short text"));
    request.put_slice(text.as_bytes());
}

/// Creates them through a port whose callers may do so.
pub(super) async fn create_acls(broker: &str, acls: &[Acl<'_>]) {
    let mut request = Vec::new();
    request.put_i16(API);
    request.put_i16(VERSION);
    request.put_i32(CORRELATION);
    put_text(&mut request, "tests");
    let count: usize = acls.iter().map(|Acl(.., operations)| operations.len()).sum();
    let count = i32::try_from(count).expect("a few");
    request.put_i32(count);
    for Acl(user, resource, name, operations) in acls {
        let (name, pattern) = name.strip_suffix('*').map_or((*name, LITERAL), |prefix| (prefix, PREFIXED));
        for operation in *operations {
            request.put_i8(*resource as i8);
            put_text(&mut request, name);
            request.put_i8(pattern);
            put_text(&mut request, &format!("User:{user}"));
            // From any host.
            put_text(&mut request, "*");
            request.put_i8(*operation as i8);
            request.put_i8(ALLOW);
        }
    }
    let mut broker = TcpStream::connect(broker).await.expect("a broker");
    broker.write_i32(i32::try_from(request.len()).expect("a short request")).await.expect("a request");
    broker.write_all(&request).await.expect("a request");
    let length = broker.read_i32().await.expect("an answer");
    let mut answer = vec![0; usize::try_from(length).expect("a length")];
    broker.read_exact(&mut answer).await.expect("an answer");
    let mut answer = answer.as_slice();
    assert_eq!(answer.get_i32(), CORRELATION);
    let _throttled_ms = answer.get_i32();
    assert_eq!(answer.get_i32(), count);
    for _ in 0..count {
        let code = answer.get_i16();
        // -1: there is none.
        let message = usize::try_from(answer.get_i16()).map(|length| answer.copy_to_bytes(length)).unwrap_or_default();
        assert_eq!(code, 0, "{message:?}");
    }
}
