//! A scripted counters server.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::{Code, CounterClient};
use tallystone_proto::counter::v1::counter_admin_server::{CounterAdmin, CounterAdminServer};
use tallystone_proto::counter::v1::counters_server::{Counters, CountersServer};
use tallystone_proto::counter::v1::{self as wire, add_count_result, get_count_result};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Is unavailable or overloaded a number of times, then gives fixed answers. Records every request. Only the first of these times it may
/// have acted.
#[derive(Default)]
pub(crate) struct Script {
    unavailable: Mutex<u32>,
    overloaded: Mutex<u32>,
    may_have_acted: Mutex<bool>,
    pub(crate) received: Mutex<Received>,
}

/// The requests that the server received.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) adds: Vec<wire::AddCountRequest>,
    pub(crate) add_batches: Vec<wire::AddCountsRequest>,
    pub(crate) clears: Vec<wire::ClearCountRequest>,
    pub(crate) puts: Vec<wire::PutNamespaceRequest>,
    pub(crate) deletions: Vec<wire::DeleteCounterRequest>,
    pub(crate) deleted_namespaces: Vec<wire::DeleteNamespaceRequest>,
    pub(crate) crossings: Vec<wire::ListCrossingsRequest>,
}

impl Script {
    pub(crate) async fn serve(self) -> (Arc<Script>, CounterClient, JoinSet<()>) {
        let script = Arc::new(self);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(CountersServer::from_arc(script.clone()))
            .add_service(CounterAdminServer::from_arc(script.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.unwrap() });
        (script, CounterClient::connect(url).await.unwrap(), tasks)
    }

    pub(crate) fn unavailable_times(times: u32) -> Script {
        Script { unavailable: Mutex::new(times), ..Script::default() }
    }

    pub(crate) fn overloaded_times(times: u32) -> Script {
        Script { overloaded: Mutex::new(times), ..Script::default() }
    }

    fn answer<T>(&self, answer: T) -> Result<Response<T>, Status> {
        let mut overloaded = self.overloaded.lock().unwrap();
        if let Some(fewer) = overloaded.checked_sub(1) {
            *overloaded = fewer;
            let mut details = ErrorDetails::with_error_info("OVERLOADED", "tallystone", []);
            details.set_retry_info(Some(RETRY_AFTER));
            return Err(Status::with_error_details(Code::ResourceExhausted, "too many", details));
        }
        let mut left = self.unavailable.lock().unwrap();
        match left.checked_sub(1) {
            None => Ok(Response::new(answer)),
            Some(fewer) => {
                *left = fewer;
                let was_called = std::mem::replace(&mut *self.may_have_acted.lock().unwrap(), true);
                let applied = [("applied".to_owned(), if was_called { "no" } else { "unknown" }.to_owned())];
                let details = ErrorDetails::with_error_info("STORE_UNAVAILABLE", "tallystone", applied);
                Err(Status::with_error_details(Code::Unavailable, "not now", details))
            }
        }
    }
}

fn added(event_time_ms: i64, duplicate: bool) -> wire::AddCountResponse {
    wire::AddCountResponse { event_time_ms, duplicate }
}

/// The refusal of an item.
fn refusal(code: Code, reason: &str) -> tallystone_proto::RpcStatus {
    let details = ErrorDetails::with_error_info(reason, "tallystone", []);
    let status = Status::with_error_details(code, "no", details);
    prost::Message::decode(status.details()).unwrap()
}

/// When a refused call may retry.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(200);

const NOT_IN_THE_SCRIPT: &str = "not in the script";

#[tonic::async_trait]
impl Counters for Script {
    async fn add_count(
        &self,
        request: Request<wire::AddCountRequest>,
    ) -> Result<Response<wire::AddCountResponse>, Status> {
        let request = request.into_inner();
        let event_time_ms = request.token.as_ref().map_or(0, |token| token.generation_time_ms);
        self.received.lock().unwrap().adds.push(request);
        self.answer(added(event_time_ms, true))
    }

    async fn add_counts(
        &self,
        request: Request<wire::AddCountsRequest>,
    ) -> Result<Response<wire::AddCountsResponse>, Status> {
        self.received.lock().unwrap().add_batches.push(request.into_inner());
        let result = |outcome| wire::AddCountResult { outcome };
        let results = vec![
            result(Some(add_count_result::Outcome::Ok(added(1, false)))),
            result(Some(add_count_result::Outcome::Error(refusal(Code::OutOfRange, "TOO_OLD")))),
            result(None),
        ];
        self.answer(wire::AddCountsResponse { results })
    }

    async fn get_counts(
        &self,
        _: Request<wire::GetCountsRequest>,
    ) -> Result<Response<wire::GetCountsResponse>, Status> {
        let count = |counter_type| wire::GetCountResult {
            outcome: Some(get_count_result::Outcome::Ok(wire::GetCountResponse {
                count: i64::MIN,
                exact_to_ms: 9,
                counter_type,
                regions: Vec::new(),
            })),
        };
        let types = [wire::CounterType::Accurate as i32, 99];
        self.answer(wire::GetCountsResponse { results: types.map(count).into() })
    }

    async fn clear_count(
        &self,
        request: Request<wire::ClearCountRequest>,
    ) -> Result<Response<wire::ClearCountResponse>, Status> {
        self.received.lock().unwrap().clears.push(request.into_inner());
        self.answer(wire::ClearCountResponse { event_time_ms: 5, duplicate: false })
    }

    async fn add_and_get_count(
        &self,
        _: Request<wire::AddAndGetCountRequest>,
    ) -> Result<Response<wire::AddAndGetCountResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn get_count(&self, _: Request<wire::GetCountRequest>) -> Result<Response<wire::GetCountResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn add_and_get_counts(
        &self,
        _: Request<wire::AddAndGetCountsRequest>,
    ) -> Result<Response<wire::AddAndGetCountsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn clear_counts(
        &self,
        _: Request<wire::ClearCountsRequest>,
    ) -> Result<Response<wire::ClearCountsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn delete_counter(
        &self,
        request: Request<wire::DeleteCounterRequest>,
    ) -> Result<Response<wire::DeleteCounterResponse>, Status> {
        self.received.lock().unwrap().deletions.push(request.into_inner());
        self.answer(wire::DeleteCounterResponse { event_time_ms: 6, duplicate: true })
    }

    async fn list_counters(
        &self,
        _: Request<wire::ListCountersRequest>,
    ) -> Result<Response<wire::ListCountersResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn list_events(
        &self,
        _: Request<wire::ListEventsRequest>,
    ) -> Result<Response<wire::ListEventsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn get_sums(&self, _: Request<wire::GetSumsRequest>) -> Result<Response<wire::GetSumsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn audit_counter(
        &self,
        _: Request<wire::AuditCounterRequest>,
    ) -> Result<Response<wire::AuditCounterResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn recount_counter(
        &self,
        _: Request<wire::RecountCounterRequest>,
    ) -> Result<Response<wire::RecountCounterResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn list_recounts(
        &self,
        _: Request<wire::ListRecountsRequest>,
    ) -> Result<Response<wire::ListRecountsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn list_crossings(
        &self,
        request: Request<wire::ListCrossingsRequest>,
    ) -> Result<Response<wire::ListCrossingsResponse>, Status> {
        let request = request.into_inner();
        let direction = if request.limit == 0 { 9 } else { wire::CrossingDirection::Down.into() };
        self.received.lock().unwrap().crossings.push(request);
        let crossing = wire::Crossing {
            counter: "c".to_owned(),
            threshold: 10,
            direction,
            count: -3,
            exact_to_ms: 5,
            committed_at_ms: 6,
        };
        let (position, complete_to_ms) = ("p".to_owned(), 7);
        self.answer(wire::ListCrossingsResponse { crossings: vec![crossing], position, complete_to_ms })
    }

    async fn list_top_counters(
        &self,
        _: Request<wire::ListTopCountersRequest>,
    ) -> Result<Response<wire::ListTopCountersResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }
}

#[tonic::async_trait]
impl CounterAdmin for Script {
    /// Returns the namespace as it was put.
    async fn put_namespace(
        &self,
        request: Request<wire::PutNamespaceRequest>,
    ) -> Result<Response<wire::PutNamespaceResponse>, Status> {
        let put = request.into_inner();
        self.received.lock().unwrap().puts.push(put.clone());
        let namespace = wire::Namespace { name: put.name, config: put.config, revision: 2, incarnation: 3 };
        self.answer(wire::PutNamespaceResponse { namespace: Some(namespace) })
    }

    async fn get_namespace(
        &self,
        _: Request<wire::GetNamespaceRequest>,
    ) -> Result<Response<wire::GetNamespaceResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn delete_namespace(
        &self,
        request: Request<wire::DeleteNamespaceRequest>,
    ) -> Result<Response<wire::DeleteNamespaceResponse>, Status> {
        self.received.lock().unwrap().deleted_namespaces.push(request.into_inner());
        self.answer(wire::DeleteNamespaceResponse {})
    }

    async fn list_namespaces(
        &self,
        _: Request<wire::ListNamespacesRequest>,
    ) -> Result<Response<wire::ListNamespacesResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }
}
