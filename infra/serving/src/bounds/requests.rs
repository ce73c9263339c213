//! Applies the limits to every request of a host.

use super::admission::Caller;
use super::body::{BoundedBody, Form};
use crate::http::is_probe;
use axum::body::{Body, HttpBody};
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use prost::Message;
use prost_types::FileDescriptorSet;
use std::collections::HashSet;
use std::sync::Arc;
use tallystone_proto::FILE_DESCRIPTOR_SET;

/// The paths of all methods that take a stream of requests.
pub(crate) fn client_streams() -> HashSet<String> {
    let sets = [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut paths = HashSet::new();
    for set in sets {
        let set = FileDescriptorSet::decode(set).expect("descriptor sets made by the build are well-formed");
        for file in set.file {
            for service in &file.service {
                let streams = service.method.iter().filter(|method| method.client_streaming());
                paths.extend(streams.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
            }
        }
    }
    paths
}

/// Applies the limits to one request.
#[derive(Clone)]
pub(crate) struct BoundRequest {
    pub(crate) client_streams: Arc<HashSet<String>>,
}

impl BoundRequest {
    pub(crate) fn apply(&self, request: Request<Body>) -> Request<Body> {
        let Some(caller) = request.extensions().get::<Arc<Caller>>() else { return request };
        // A connection that only probes keeps no place that a caller needs.
        if !is_probe(request.uri().path()) {
            caller.calls();
        }
        if request.body().is_end_stream() {
            return request;
        }
        let (caller, form) = (caller.clone(), self.form(&request));
        request.map(|body| Body::new(BoundedBody::new(body, form, caller)))
    }

    fn form(&self, request: &Request<Body>) -> Form {
        let is_grpc =
            request.headers().get(CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
        match is_grpc {
            false => Form::Plain,
            true if self.client_streams.contains(request.uri().path()) => Form::Messages,
            true => Form::Message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_requests_are_known() {
        let streams = client_streams();
        assert!(streams.contains("/tallystone.queue.v1.Queue/Work"), "{streams:?}");
        assert!(streams.contains("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), "{streams:?}");
        assert!(!streams.contains("/tallystone.queue.v1.Queue/Enqueue"), "{streams:?}");
    }
}
