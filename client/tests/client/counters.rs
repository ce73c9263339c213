//! What the client of counters sends, and sends again when no answer comes. The server here is a script: what a real
//! one makes of it is tested with the counters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tallystone_client::{
    Applied, Cardinality, Code, CounterClient, CounterType, Error, IdempotencyToken, NamespaceConfig, NewAdd, NewClear,
};
use tallystone_proto::counter::v1::counter_admin_server::{CounterAdmin, CounterAdminServer};
use tallystone_proto::counter::v1::counters_server::{Counters, CountersServer};
use tallystone_proto::counter::v1::{self as wire, add_count_result, get_count_result};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Answers nothing so often, and keeps what it was asked.
#[derive(Default)]
struct Script {
    unavailable: Mutex<u32>,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    adds: Vec<wire::AddCountRequest>,
    add_batches: Vec<wire::AddCountsRequest>,
    clears: Vec<wire::ClearCountRequest>,
    puts: Vec<wire::PutNamespaceRequest>,
}

impl Script {
    async fn serve(self) -> (Arc<Script>, CounterClient, JoinSet<()>) {
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

    fn unavailable_times(times: u32) -> Script {
        Script { unavailable: Mutex::new(times), ..Script::default() }
    }

    fn answer<T>(&self, answer: T) -> Result<Response<T>, Status> {
        let mut left = self.unavailable.lock().unwrap();
        match left.checked_sub(1) {
            None => Ok(Response::new(answer)),
            Some(fewer) => {
                *left = fewer;
                let applied = [("applied".to_owned(), "unknown".to_owned())];
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

const NOT_IN_THE_SCRIPT: &str = "not in the script";

#[tonic::async_trait]
impl Counters for Script {
    async fn add_count(
        &self,
        request: Request<wire::AddCountRequest>,
    ) -> Result<Response<wire::AddCountResponse>, Status> {
        let request = request.into_inner();
        let event_time_ms = request.token.as_ref().map_or(0, |token| token.generation_time_ms);
        self.asked.lock().unwrap().adds.push(request);
        self.answer(added(event_time_ms, true))
    }

    async fn add_counts(
        &self,
        request: Request<wire::AddCountsRequest>,
    ) -> Result<Response<wire::AddCountsResponse>, Status> {
        self.asked.lock().unwrap().add_batches.push(request.into_inner());
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
            })),
        };
        let types = [wire::CounterType::Accurate as i32, 99];
        self.answer(wire::GetCountsResponse { results: types.map(count).into() })
    }

    async fn clear_count(
        &self,
        request: Request<wire::ClearCountRequest>,
    ) -> Result<Response<wire::ClearCountResponse>, Status> {
        self.asked.lock().unwrap().clears.push(request.into_inner());
        self.answer(wire::ClearCountResponse { event_time_ms: 5, duplicate: false })
    }

    async fn add_and_get_count(
        &self,
        _: Request<wire::AddCountRequest>,
    ) -> Result<Response<wire::AddAndGetCountResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn get_count(&self, _: Request<wire::GetCountRequest>) -> Result<Response<wire::GetCountResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn add_and_get_counts(
        &self,
        _: Request<wire::AddCountsRequest>,
    ) -> Result<Response<wire::AddAndGetCountsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn clear_counts(
        &self,
        _: Request<wire::ClearCountsRequest>,
    ) -> Result<Response<wire::ClearCountsResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
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
}

#[tonic::async_trait]
impl CounterAdmin for Script {
    /// What was put, as it was put.
    async fn put_namespace(
        &self,
        request: Request<wire::PutNamespaceRequest>,
    ) -> Result<Response<wire::PutNamespaceResponse>, Status> {
        let put = request.into_inner();
        self.asked.lock().unwrap().puts.push(put.clone());
        let namespace = wire::Namespace { name: put.name, config: put.config, revision: 2 };
        self.answer(wire::PutNamespaceResponse { namespace: Some(namespace) })
    }

    async fn get_namespace(
        &self,
        _: Request<wire::GetNamespaceRequest>,
    ) -> Result<Response<wire::GetNamespaceResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }

    async fn list_namespaces(
        &self,
        _: Request<wire::ListNamespacesRequest>,
    ) -> Result<Response<wire::ListNamespacesResponse>, Status> {
        Err(Status::unimplemented(NOT_IN_THE_SCRIPT))
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

#[tokio::test]
async fn n3_an_add_is_repeated_with_the_token_that_was_drawn_before_its_first_attempt() {
    let (script, client, _tasks) = Script::unavailable_times(2).serve().await;
    let before = now_ms();
    let added = client.add("ns", NewAdd::new("c", -3)).await.unwrap();
    let asked = script.asked.lock().unwrap();
    let [first, rest @ ..] = asked.adds.as_slice() else { panic!("nothing was sent") };
    assert_eq!(rest, [first.clone(), first.clone()], "the same three times");
    assert_eq!((first.namespace.as_str(), first.counter.as_str(), first.delta), ("ns", "c", -3));
    let token = first.token.as_ref().unwrap();
    assert_eq!(token.token.len(), 32);
    assert!((before..=now_ms()).contains(&token.generation_time_ms));
    assert_eq!((added.event_time_ms as i64, added.duplicate), (token.generation_time_ms, true));
}

#[tokio::test]
async fn n3_two_adds_are_two_events_unless_they_bring_the_same_token() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let own = IdempotencyToken::new("view-1", 1_000);
    let adds = vec![NewAdd::new("c", 1), NewAdd::new("c", 1), NewAdd::new("c", i64::MAX).token(own)];
    let results = client.add_many("ns", adds).await.unwrap();
    assert_eq!(results[0].as_ref().unwrap().event_time_ms, 1);
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (Code::OutOfRange, "TOO_OLD"));
    assert_eq!(results[2].as_ref().unwrap_err().code, Code::Internal, "a result without an outcome");

    let asked = script.asked.lock().unwrap();
    let [first, second] = asked.add_batches.as_slice() else { panic!("{} attempts", asked.add_batches.len()) };
    assert_eq!(first, second);
    let tokens: Vec<_> = first.adds.iter().map(|add| add.token.clone().unwrap()).collect();
    assert_ne!(tokens[0].token, tokens[1].token);
    assert_eq!(tokens[2], wire::IdempotencyToken { token: "view-1".to_owned(), generation_time_ms: 1_000 });
    assert_eq!(first.adds[2].delta, i64::MAX);
}

#[tokio::test]
async fn n3_a_clear_is_repeated_as_the_same_event() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    assert_eq!(client.clear("ns", NewClear::new("c")).await.unwrap().event_time_ms, 5);
    let asked = script.asked.lock().unwrap();
    assert_eq!(asked.clears.len(), 2);
    assert_eq!(asked.clears[0], asked.clears[1]);
    assert!(asked.clears[0].token.is_some());
}

#[tokio::test]
async fn whoever_wants_no_repeating_gets_none() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let error = client.with_retry_for(Duration::ZERO).add("ns", NewAdd::new("c", 1)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { applied: Applied::Unknown, .. }), "{error:?}");
    assert_eq!(script.asked.lock().unwrap().adds.len(), 1);
}

#[tokio::test]
async fn answers_that_make_no_sense_are_said_to() {
    let (_script, client, _tasks) = Script::default().serve().await;
    let counts = client.get_many("ns", vec!["a".to_owned(), "b".to_owned()]).await.unwrap();
    let count = counts[0].as_ref().unwrap();
    assert_eq!((count.count, count.exact_to_ms, count.counter_type), (i64::MIN, 9, CounterType::Accurate));
    assert_eq!(counts[1].as_ref().unwrap_err().code, Code::Internal, "a type from another version");
    let short = client.get_many("ns", vec!["a".to_owned()]).await.unwrap_err();
    assert!(matches!(short, Error::Protocol(_)), "two counts for one counter: {short:?}");
}

#[tokio::test]
async fn n1_every_field_of_a_namespace_goes_there_and_back() {
    let (script, client, _tasks) = Script::default().serve().await;
    let config = NamespaceConfig {
        counter_type: Some(CounterType::BestEffort),
        cardinality: Some(Cardinality::Low),
        ttl_ms: Some(1),
        coalesce_ms: Some(2),
        rollup_batch_count: Some(3),
        num_queues: Some(4),
        capacity_bytes: Some(5),
        buckets_per_id: Some(6),
        seconds_per_bucket: Some(7),
        seconds_per_slice: Some(8),
        accept_limit_ms: Some(9),
        close_after_ms: Some(10),
        delete_after_ms: Some(11),
    };
    let made = client.put_namespace("ns", config.clone()).await.unwrap();
    assert_eq!((made.name.as_str(), made.revision, made.config), ("ns", 2, config));
    let little = NamespaceConfig { ttl_ms: Some(0), ..NamespaceConfig::default() };
    assert_eq!(client.put_namespace("ns", little.clone()).await.unwrap().config, little, "absent stays absent");
    client.put_persistence_configuration("ns", "{}").await.unwrap();

    let asked = script.asked.lock().unwrap();
    let on_the_wire = wire::NamespaceConfig {
        counter_type: Some(wire::CounterType::BestEffort.into()),
        cardinality: Some(wire::Cardinality::Low.into()),
        ttl_ms: Some(1),
        coalesce_ms: Some(2),
        rollup_batch_count: Some(3),
        num_queues: Some(4),
        capacity_bytes: Some(5),
        buckets_per_id: Some(6),
        seconds_per_bucket: Some(7),
        seconds_per_slice: Some(8),
        accept_limit_ms: Some(9),
        close_after_ms: Some(10),
        delete_after_ms: Some(11),
    };
    assert_eq!(asked.puts[0].config.as_ref(), Some(&on_the_wire));
    assert_eq!((asked.puts[2].config.as_ref(), asked.puts[2].persistence_configuration.as_str()), (None, "{}"));
}
