//! Both gRPC services: each RPC goes to its file, and is observed.

use super::{add, clear, crossings, delete, get, list, namespaces, recount, sums, top};
use crate::service::CounterService;
use std::sync::Arc;
use tallystone_proto::counter::v1::counter_admin_server::CounterAdmin;
use tallystone_proto::counter::v1::counters_server::Counters as CountersRpc;
use tallystone_proto::counter::v1::*;
use tallystone_serving::{Access, RpcMetrics};
use tonic::{Request, Response, Status};

/// The calls of both services; HTTP makes them, too.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) counters: Arc<CounterService>,
    pub(super) rpcs: Arc<RpcMetrics>,
    /// The access of the one caller that this value serves: an HTTP call makes its RPC with it. gRPC calls have theirs in
    /// their extensions.
    access: Option<Access>,
}

/// Every RPC, by its name in metrics and spans. A call over HTTP counts as the RPC of the same name.
const RPCS: &[&str] = &[
    "AddCount",
    "AddAndGetCount",
    "AddCounts",
    "AddAndGetCounts",
    "GetCount",
    "GetCounts",
    "ClearCount",
    "ClearCounts",
    "ListCounters",
    "ListEvents",
    "GetSums",
    "AuditCounter",
    "RecountCounter",
    "ListRecounts",
    "ListCrossings",
    "ListTopCounters",
    "PutNamespace",
    "GetNamespace",
    "ListNamespaces",
    "DeleteCounter",
    "DeleteNamespace",
];

impl Api {
    /// The calls of this service.
    pub(super) fn new(counters: Arc<CounterService>) -> Api {
        Api { counters, rpcs: RpcMetrics::new(RPCS), access: None }
    }

    /// The calls of one caller over HTTP.
    pub(super) fn of_caller(&self, access: Access) -> Api {
        Api { access: Some(access), ..self.clone() }
    }

    /// The request with the access of its caller.
    pub(super) fn with_access<R>(&self, mut request: Request<R>) -> Request<R> {
        if let Some(access) = &self.access {
            request.extensions_mut().insert(access.clone());
        }
        request
    }
}

#[tonic::async_trait]
impl CountersRpc for Api {
    async fn add_count(&self, request: Request<AddCountRequest>) -> Result<Response<AddCountResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| add::one(&self.counters, request.into_inner())).await
    }

    async fn add_and_get_count(
        &self,
        request: Request<AddAndGetCountRequest>,
    ) -> Result<Response<AddAndGetCountResponse>, Status> {
        let add = |request: Request<AddAndGetCountRequest>| {
            let AddAndGetCountRequest { namespace, counter, delta, token, min, max, source, event_item_key } =
                request.into_inner();
            let add = AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key };
            add::one_and_get(&self.counters, add)
        };
        self.rpcs.call(self.with_access(request), add).await
    }

    async fn add_counts(&self, request: Request<AddCountsRequest>) -> Result<Response<AddCountsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| add::many(&self.counters, request.into_inner())).await
    }

    async fn add_and_get_counts(
        &self,
        request: Request<AddAndGetCountsRequest>,
    ) -> Result<Response<AddAndGetCountsResponse>, Status> {
        let add = |request: Request<AddAndGetCountsRequest>| {
            let AddAndGetCountsRequest { namespace, adds } = request.into_inner();
            add::many_and_get(&self.counters, AddCountsRequest { namespace, adds })
        };
        self.rpcs.call(self.with_access(request), add).await
    }

    async fn get_count(&self, request: Request<GetCountRequest>) -> Result<Response<GetCountResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| get::one(&self.counters, request)).await
    }

    async fn get_counts(&self, request: Request<GetCountsRequest>) -> Result<Response<GetCountsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| get::many(&self.counters, request)).await
    }

    async fn clear_count(&self, request: Request<ClearCountRequest>) -> Result<Response<ClearCountResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| clear::one(&self.counters, request.into_inner())).await
    }

    async fn clear_counts(
        &self,
        request: Request<ClearCountsRequest>,
    ) -> Result<Response<ClearCountsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| clear::many(&self.counters, request.into_inner())).await
    }

    async fn delete_counter(
        &self,
        request: Request<DeleteCounterRequest>,
    ) -> Result<Response<DeleteCounterResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| delete::one(&self.counters, request.into_inner())).await
    }

    async fn list_counters(
        &self,
        request: Request<ListCountersRequest>,
    ) -> Result<Response<ListCountersResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| list::counters(&self.counters, request.into_inner())).await
    }

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Result<Response<ListEventsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| list::events(&self.counters, request.into_inner())).await
    }

    async fn get_sums(&self, request: Request<GetSumsRequest>) -> Result<Response<GetSumsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| sums::page(&self.counters, request.into_inner())).await
    }

    async fn audit_counter(
        &self,
        request: Request<AuditCounterRequest>,
    ) -> Result<Response<AuditCounterResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| recount::audit(&self.counters, request.into_inner())).await
    }

    async fn recount_counter(
        &self,
        request: Request<RecountCounterRequest>,
    ) -> Result<Response<RecountCounterResponse>, Status> {
        self.rpcs
            .call(self.with_access(request), |request| recount::recount(&self.counters, request.into_inner()))
            .await
    }

    async fn list_recounts(
        &self,
        request: Request<ListRecountsRequest>,
    ) -> Result<Response<ListRecountsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| recount::list(&self.counters, request.into_inner())).await
    }

    async fn list_crossings(
        &self,
        request: Request<ListCrossingsRequest>,
    ) -> Result<Response<ListCrossingsResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| crossings::list(&self.counters, request)).await
    }

    async fn list_top_counters(
        &self,
        request: Request<ListTopCountersRequest>,
    ) -> Result<Response<ListTopCountersResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| top::counters(&self.counters, request)).await
    }
}

#[tonic::async_trait]
impl CounterAdmin for Api {
    async fn put_namespace(
        &self,
        request: Request<PutNamespaceRequest>,
    ) -> Result<Response<PutNamespaceResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| namespaces::put(&self.counters, request.into_inner())).await
    }

    async fn get_namespace(
        &self,
        request: Request<GetNamespaceRequest>,
    ) -> Result<Response<GetNamespaceResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| namespaces::get(&self.counters, request.into_inner())).await
    }

    async fn list_namespaces(
        &self,
        request: Request<ListNamespacesRequest>,
    ) -> Result<Response<ListNamespacesResponse>, Status> {
        self.rpcs.call(self.with_access(request), |request| namespaces::list(&self.counters, request)).await
    }

    async fn delete_namespace(
        &self,
        request: Request<DeleteNamespaceRequest>,
    ) -> Result<Response<DeleteNamespaceResponse>, Status> {
        self.rpcs
            .call(self.with_access(request), |request| namespaces::delete(&self.counters, request.into_inner()))
            .await
    }
}
