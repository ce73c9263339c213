//! The wire of the counters: gRPC, and the same calls as JSON over HTTP.
//!
//! What lives here: requests parsed once, answers and refusals put into words; one file for each group of calls. What may
//! not: anything that knows how counters work (`service/`).

mod add;
mod clear;
mod get;
mod http;
mod list;
mod namespaces;
mod openapi;
mod status;
mod wire;

use crate::service::CounterService;
use std::sync::Arc;
use tallystone_proto::counter::v1 as wire_v1;
use tallystone_proto::counter::v1::counter_admin_server::{CounterAdmin, CounterAdminServer};
use tallystone_proto::counter::v1::counters_server::{Counters as CountersRpc, CountersServer};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use wire_v1::*;

/// A batch may hold a thousand items with all that they may carry.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Both services, over gRPC and over HTTP.
#[derive(Clone)]
pub struct Api {
    counters: Arc<CounterService>,
}

impl Api {
    /// Answers from these counters.
    pub fn new(counters: Arc<CounterService>) -> Api {
        Api { counters }
    }

    /// What a server serves: gRPC and HTTP on one port.
    pub fn routes(&self) -> Routes {
        let grpc = Routes::new(CountersServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX))
            .add_service(CounterAdminServer::new(self.clone()).max_decoding_message_size(REQUEST_BYTES_MAX));
        let router = grpc.prepare().into_axum_router().merge(http::router(self.clone())).fallback(http::unknown_path);
        Routes::from(router)
    }
}

#[tonic::async_trait]
impl CountersRpc for Api {
    async fn add_count(&self, request: Request<AddCountRequest>) -> Result<Response<AddCountResponse>, Status> {
        add::one(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn add_and_get_count(
        &self,
        request: Request<AddAndGetCountRequest>,
    ) -> Result<Response<AddAndGetCountResponse>, Status> {
        let AddAndGetCountRequest { namespace, counter, delta, token } = request.into_inner();
        add::one_and_get(&self.counters, AddCountRequest { namespace, counter, delta, token }).await.map(Response::new)
    }

    async fn add_counts(&self, request: Request<AddCountsRequest>) -> Result<Response<AddCountsResponse>, Status> {
        add::many(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn add_and_get_counts(
        &self,
        request: Request<AddAndGetCountsRequest>,
    ) -> Result<Response<AddAndGetCountsResponse>, Status> {
        let AddAndGetCountsRequest { namespace, adds } = request.into_inner();
        add::many_and_get(&self.counters, AddCountsRequest { namespace, adds }).await.map(Response::new)
    }

    async fn get_count(&self, request: Request<GetCountRequest>) -> Result<Response<GetCountResponse>, Status> {
        get::one(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn get_counts(&self, request: Request<GetCountsRequest>) -> Result<Response<GetCountsResponse>, Status> {
        get::many(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn clear_count(&self, request: Request<ClearCountRequest>) -> Result<Response<ClearCountResponse>, Status> {
        clear::one(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn clear_counts(
        &self,
        request: Request<ClearCountsRequest>,
    ) -> Result<Response<ClearCountsResponse>, Status> {
        clear::many(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn list_counters(
        &self,
        request: Request<ListCountersRequest>,
    ) -> Result<Response<ListCountersResponse>, Status> {
        list::counters(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Result<Response<ListEventsResponse>, Status> {
        list::events(&self.counters, request.into_inner()).await.map(Response::new)
    }
}

#[tonic::async_trait]
impl CounterAdmin for Api {
    async fn put_namespace(
        &self,
        request: Request<PutNamespaceRequest>,
    ) -> Result<Response<PutNamespaceResponse>, Status> {
        namespaces::put(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn get_namespace(
        &self,
        request: Request<GetNamespaceRequest>,
    ) -> Result<Response<GetNamespaceResponse>, Status> {
        namespaces::get(&self.counters, request.into_inner()).await.map(Response::new)
    }

    async fn list_namespaces(
        &self,
        _: Request<ListNamespacesRequest>,
    ) -> Result<Response<ListNamespacesResponse>, Status> {
        namespaces::list(&self.counters).await.map(Response::new)
    }
}
