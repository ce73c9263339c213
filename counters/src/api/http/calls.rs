//! One function for each path. Each makes the RPC of the same name, so that both are checked and counted alike; those of
//! namespaces merge JSON first.

use super::answers::{
    AddedAndCountedBody, AddedBody, CountBody, CountersBody, EventsBody, ItemBody, ResultsBody, SumsBody,
};
use super::int64::read_integers;
use super::item::{Unreadable, readable};
use super::requests::{
    AddCountBody, AddCountsBody, ClearCountBody, ClearCountsBody, GetCountBody, GetCountsBody, GetSumsBody,
    ListCountersBody, ListEventsBody,
};
use crate::Refusal;
use crate::api::grpc::Api;
use crate::api::namespaces;
use crate::api::status::of_call;
use crate::names::NamespaceName;
use crate::namespace::NamespaceConfig;
use axum::Json;
use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use std::convert::Infallible;
use std::str::FromStr;
use tallystone_proto::RpcStatus;
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counter_admin_server::CounterAdmin as _;
use tallystone_proto::counter::v1::counters_server::Counters as _;
use tallystone_serving::Access;
use tallystone_serving::http::{FaultBody, Faults, JsonBody, Object, PathParams};
use tonic::{Request, Response, Status};
use utoipa::ToSchema;

/// Of the parameters of a namespace. Their tree, which takes up to 16 times as much, is kept while the call waits for Redis.
const CONFIG_BYTES_MAX: usize = 64 * 1024;

pub(super) type HttpResult<T> = Result<Json<T>, FaultBody>;

/// The calls of the caller of this request.
pub(crate) struct ApiState(pub(super) Api);

impl FromRequestParts<Api> for ApiState {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        Ok(ApiState(api.of_caller(Access::of(&parts.extensions))))
    }
}

/// The object of a body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, FaultBody> {
    serde_json::from_slice(body).map(|Object(body)| body).map_err(|error| {
        crate::metrics::refused(&Refusal::invalid("body", error.to_string()));
        FaultBody::malformed(error)
    })
}

pub(super) fn answer<W, T: From<W>>(answered: Result<Response<W>, Status>) -> HttpResult<T> {
    Ok(Json(answered?.into_inner().into()))
}

/// A parameter of a query. What its path does not have was refused before ([`int64`](super::int64)).
pub(super) fn integer(query: Option<&str>, name: &'static str) -> Result<Option<i64>, Status> {
    parsed(query, name, "is not a 64-bit integer")
}

/// The same, true or false; absent: false.
fn flag(query: Option<&str>, name: &'static str) -> Result<bool, Status> {
    parsed(query, name, "is neither true nor false").map(Option::unwrap_or_default)
}

fn parsed<T: FromStr>(query: Option<&str>, name: &'static str, why: &str) -> Result<Option<T>, Status> {
    parameter(query, name).map(str::parse).transpose().map_err(|_| of_call(Refusal::invalid(name, why)))
}

/// The same, as it was sent.
pub(super) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut parts = query.unwrap_or_default().split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
    parts.find(|(of, _)| *of == name).map(|(_, value)| value)
}

/// A request that the RPC can check.
fn request<T, W: TryFrom<T, Error = Refusal>>(body: T) -> Result<Request<W>, FaultBody> {
    Ok(Request::new(W::try_from(body).map_err(of_call)?))
}

/// The body of a batch, of the items in field `list`.
fn results<O, W, T: From<W>>(
    outcomes: impl Iterator<Item = O>,
    (list, unreadable): (&str, Unreadable),
) -> Json<ResultsBody<T>>
where
    Result<W, RpcStatus>: From<O>,
{
    let item = |outcome| match Result::from(outcome) {
        Ok(done) => ItemBody::Ok(done.into()),
        Err(status) => ItemBody::Refused(FaultBody::of_item(&status)),
    };
    let mut results: Vec<_> = outcomes.map(item).collect();
    for (number, refused) in unreadable.results(list) {
        if let Some(result) = results.get_mut(number) {
            *result = ItemBody::Refused(refused);
        }
    }
    Json(ResultsBody { results })
}

/// Adds to a counter.
///
/// An add with a token counts once, however often it is sent. Without a token, a repeated call counts again.
#[utoipa::path(post, path = "/v1/add_count", request_body = AddCountBody, responses((status = 200, body = AddedBody), Faults))]
pub(crate) async fn add_count(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<AddedBody> {
    answer(api.add_count(request(read::<AddCountBody>(&body)?)?).await)
}

/// Adds to a counter, then reads its count.
///
/// The count is the one that get_count would return now: in an EVENTUAL namespace that of the last rollup, without
/// this add.
#[utoipa::path(post, path = "/v1/add_and_get_count", request_body = AddCountBody, responses((status = 200, body = AddedAndCountedBody), Faults))]
pub(crate) async fn add_and_get_count(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<AddedAndCountedBody> {
    let wire::AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key } =
        request(read::<AddCountBody>(&body)?)?.into_inner();
    let request = wire::AddAndGetCountRequest { namespace, counter, delta, token, min, max, source, event_item_key };
    answer(api.add_and_get_count(Request::new(request)).await)
}

/// Adds to many counters.
///
/// 1 to 1,000 adds. Each has its own result, and a refused one does not affect the others.
#[utoipa::path(post, path = "/v1/add_counts", request_body = AddCountsBody, responses((status = 200, body = ResultsBody<AddedBody>), Faults))]
pub(crate) async fn add_counts(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<ResultsBody<AddedBody>> {
    let AddCountsBody { namespace, adds } = read(&body)?;
    let (adds, unreadable) = readable(adds, |Object(add)| add.try_into());
    let answered = api.add_counts(Request::new(wire::AddCountsRequest { namespace, adds })).await?.into_inner();
    let outcomes = answered.results.into_iter().filter_map(|result| result.outcome);
    Ok(results(outcomes, ("adds", unreadable)))
}

/// Adds to many counters, then reads their counts.
///
/// 1 to 1,000 adds. Each has its own result, with the count after all of them; a refused one does not affect the others.
#[utoipa::path(post, path = "/v1/add_and_get_counts", request_body = AddCountsBody, responses((status = 200, body = ResultsBody<AddedAndCountedBody>), Faults))]
pub(crate) async fn add_and_get_counts(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<ResultsBody<AddedAndCountedBody>> {
    let AddCountsBody { namespace, adds } = read(&body)?;
    let (adds, unreadable) = readable(adds, |Object(add)| add.try_into());
    let request = wire::AddAndGetCountsRequest { namespace, adds };
    let answered = api.add_and_get_counts(Request::new(request)).await?.into_inner();
    let outcomes = answered.results.into_iter().filter_map(|result| result.outcome);
    Ok(results(outcomes, ("adds", unreadable)))
}

/// Reads a count.
///
/// The answer says to what time the count is exact. A counter to which nothing was added counts 0. With min_exact_to_ms
/// the call waits until the count is exact to that time, for wait_ms at most.
#[utoipa::path(post, path = "/v1/get_count", request_body = GetCountBody, responses((status = 200, body = CountBody), Faults))]
pub(crate) async fn get_count(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<CountBody> {
    answer(api.get_count(Request::new(read::<GetCountBody>(&body)?.into())).await)
}

/// Reads a count, by its path.
///
/// The same as get_count, for programs that cannot send a body. The name of a counter may have slashes.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/counters/{counter}", params(("namespace" = String, Path), ("counter" = String, Path, description = "may have slashes"), ("min_exact_to_ms" = Option<i64>, Query, description = "as in get_count"), ("wait_ms" = Option<i64>, Query, description = "as in get_count"), ("global" = Option<bool>, Query, description = "as in get_count")), responses((status = 200, body = CountBody), Faults))]
pub(crate) async fn read_count(
    ApiState(api): ApiState,
    PathParams((namespace, counter)): PathParams<(String, String)>,
    RawQuery(query): RawQuery,
) -> HttpResult<CountBody> {
    let min_exact_to_ms = integer(query.as_deref(), "min_exact_to_ms")?.unwrap_or_default();
    let wait_ms = integer(query.as_deref(), "wait_ms")?.unwrap_or_default();
    let global = flag(query.as_deref(), "global")?;
    let request = wire::GetCountRequest { namespace, counter, min_exact_to_ms, wait_ms, global };
    answer(api.get_count(Request::new(request)).await)
}

/// Reads many counts.
///
/// 1 to 1,000 counters. Each has its own result, and a refused one does not affect the others. min_exact_to_ms and wait_ms
/// are those of get_count.
#[utoipa::path(post, path = "/v1/get_counts", request_body = GetCountsBody, responses((status = 200, body = ResultsBody<CountBody>), Faults))]
pub(crate) async fn get_counts(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<ResultsBody<CountBody>> {
    let GetCountsBody { namespace, counters, min_exact_to_ms, wait_ms, global } = read(&body)?;
    let (counters, unreadable) = readable(counters, Ok);
    let (min_exact_to_ms, wait_ms) = (min_exact_to_ms.0, wait_ms.0);
    let request = wire::GetCountsRequest { namespace, counters, min_exact_to_ms, wait_ms, global };
    let answered = api.get_counts(Request::new(request)).await?.into_inner();
    let outcomes = answered.results.into_iter().filter_map(|result| result.outcome);
    Ok(results(outcomes, ("counters", unreadable)))
}

/// Sets a counter to zero.
///
/// Removes what was added up to the time of the clear. Without a token that is everything that was acknowledged
/// before the call.
#[utoipa::path(post, path = "/v1/clear_count", request_body = ClearCountBody, responses((status = 200, body = AddedBody), Faults))]
pub(crate) async fn clear_count(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<AddedBody> {
    answer(api.clear_count(request(read::<ClearCountBody>(&body)?)?).await)
}

/// Sets many counters to zero.
///
/// 1 to 1,000 clears. Each has its own result, and a refused one does not affect the others.
#[utoipa::path(post, path = "/v1/clear_counts", request_body = ClearCountsBody, responses((status = 200, body = ResultsBody<AddedBody>), Faults))]
pub(crate) async fn clear_counts(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<ResultsBody<AddedBody>> {
    let ClearCountsBody { namespace, clears } = read(&body)?;
    let (clears, unreadable) = readable(clears, |Object(clear)| clear.try_into());
    let answered = api.clear_counts(Request::new(wire::ClearCountsRequest { namespace, clears })).await?.into_inner();
    let outcomes = answered.results.into_iter().filter_map(|result| result.outcome);
    Ok(results(outcomes, ("clears", unreadable)))
}

/// Deletes a counter.
///
/// It then answers like a counter that was never written. What was added up to the time of the call never counts again;
/// later adds count from 0.
#[utoipa::path(post, path = "/v1/delete_counter", request_body = ClearCountBody, responses((status = 200, body = AddedBody), Faults))]
pub(crate) async fn delete_counter(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<AddedBody> {
    let wire::ClearCountRequest { namespace, counter, token } = request(read::<ClearCountBody>(&body)?)?.into_inner();
    answer(api.delete_counter(Request::new(wire::DeleteCounterRequest { namespace, counter, token })).await)
}

/// Lists the counters of a namespace.
///
/// A page at a time, in no order. Each counter has the count of its last rollup.
#[utoipa::path(post, path = "/v1/list_counters", request_body = ListCountersBody, responses((status = 200, body = CountersBody), Faults))]
pub(crate) async fn list_counters(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<CountersBody> {
    answer(api.list_counters(Request::new(read::<ListCountersBody>(&body)?.into())).await)
}

/// Lists the adds and clears of a counter.
///
/// A page at a time, in the order of their times. No event is listed twice.
#[utoipa::path(post, path = "/v1/list_events", request_body = ListEventsBody, responses((status = 200, body = EventsBody), Faults))]
pub(crate) async fn list_events(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<EventsBody> {
    answer(api.list_events(request(read::<ListEventsBody>(&body)?)?).await)
}

/// Sums the adds of a counter by minute, hour or day.
///
/// A page at a time, in the order of time. Periods without adds are left out. A clear changes no sum.
#[utoipa::path(post, path = "/v1/get_sums", request_body = GetSumsBody, responses((status = 200, body = SumsBody), Faults))]
pub(crate) async fn get_sums(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<SumsBody> {
    answer(api.get_sums(request(read::<GetSumsBody>(&body)?)?).await)
}

/// A namespace and its configuration.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamespaceBody {
    name: String,
    revision: u64,
    /// Distinguishes namespaces of the same name, of which one was deleted.
    incarnation: u64,
    #[serde(serialize_with = "every_parameter")]
    config: NamespaceConfig,
}

/// The store's form leaves parameters out that earlier servers do not know.
fn every_parameter<S: Serializer>(config: &NamespaceConfig, serializer: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(config).map_err(serde::ser::Error::custom)?;
    value["expire_after_ms"] = config.expire_after_ms.into();
    value["archived"] = config.archived.into();
    value["thresholds"] = serde_json::to_value(&config.thresholds).map_err(serde::ser::Error::custom)?;
    value["regions"] = serde_json::to_value(&config.regions).map_err(serde::ser::Error::custom)?;
    value["published_to"] = serde_json::to_value(&config.published_to).map_err(serde::ser::Error::custom)?;
    value.serialize(serializer)
}

impl From<crate::redis::Namespace> for NamespaceBody {
    fn from(namespace: crate::redis::Namespace) -> Self {
        let crate::redis::Namespace { name, config, revision, incarnation, .. } = namespace;
        NamespaceBody { name: name.to_string(), revision, incarnation, config }
    }
}

/// All namespaces.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamespacesBody {
    namespaces: Vec<NamespaceBody>,
}

/// Lists all namespaces.
///
/// In the order of their names, with their configurations.
#[utoipa::path(get, path = "/v1/namespaces", responses((status = 200, body = NamespacesBody), Faults))]
pub(crate) async fn list_namespaces(ApiState(api): ApiState) -> HttpResult<NamespacesBody> {
    let request = api.with_access(Request::new(wire::ListNamespacesRequest {}));
    let list = async |request: Request<_>| namespaces::visible(&api.counters, &Access::of(request.extensions())).await;
    let all = api.rpcs.call(request, list).await?.into_inner();
    Ok(Json(NamespacesBody { namespaces: all.into_iter().map(NamespaceBody::from).collect() }))
}

/// Reads a namespace and its configuration.
///
/// The answer has every parameter, also those that have their default.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}", params(("namespace" = String, Path)), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn get_namespace(
    ApiState(api): ApiState,
    PathParams(name): PathParams<String>,
) -> HttpResult<NamespaceBody> {
    let request = api.with_access(Request::new(wire::GetNamespaceRequest { name }));
    let get = async |request: Request<wire::GetNamespaceRequest>| {
        let name = namespaces::name(request.into_inner().name)?;
        api.counters.namespace(&name).await.map_err(of_call)
    };
    answer(api.rpcs.call(request, get).await)
}

/// Creates a namespace, or changes its configuration.
///
/// The body has the parameters to change. The others keep their values; in a new namespace they have their defaults.
#[utoipa::path(put, path = "/v1/namespaces/{namespace}", params(("namespace" = String, Path)), request_body(content = NamespaceConfig, description = "the parameters to change; the others keep their values"), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn put_namespace(
    ApiState(api): ApiState,
    PathParams(name): PathParams<String>,
    JsonBody(body): JsonBody,
) -> HttpResult<NamespaceBody> {
    let name = namespaces::name(name)?;
    if body.len() > CONFIG_BYTES_MAX {
        return Err(FaultBody::too_large());
    }
    // Some parameters; the others stay as they are.
    let mut change: serde_json::Map<String, serde_json::Value> = read(&body)?;
    read_integers(&mut change);
    let put = api.counters.put_namespace(&name, |before| {
        let refused = |error: serde_json::Error| crate::Refusal::invalid("config", error.to_string());
        let (archived, says_nothing) = (before.archived, !change.contains_key("archived"));
        let mut config = match serde_json::to_value(before).map_err(refused)? {
            serde_json::Value::Object(config) => config,
            _ => serde_json::Map::new(),
        };
        config.extend(change);
        let config: NamespaceConfig = serde_json::from_value(serde_json::Value::Object(config)).map_err(refused)?;
        Ok(if says_nothing { config.archived_by_default(archived) } else { config })
    });
    answer(api.rpcs.call(put_request(&api, &name), async |_| put.await.map_err(of_call)).await)
}

/// The RPC that a change of a namespace is checked and counted as.
fn put_request(api: &Api, name: &NamespaceName) -> Request<wire::PutNamespaceRequest> {
    api.with_access(Request::new(wire::PutNamespaceRequest { name: name.to_string(), ..Default::default() }))
}

/// The answer of a deletion.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeletedBody {
    /// The name of the deleted namespace.
    deleted: String,
}

/// Deletes a namespace with its counters.
///
/// Adds are refused from then on, and the data is removed in the background. A namespace that is created under the same
/// name begins empty.
#[utoipa::path(delete, path = "/v1/namespaces/{namespace}", params(("namespace" = String, Path), ("incarnation" = Option<i64>, Query, description = "deletes only this incarnation; the call can then be repeated")), responses((status = 200, body = DeletedBody), Faults))]
pub(crate) async fn delete_namespace(
    ApiState(api): ApiState,
    PathParams(name): PathParams<String>,
    RawQuery(query): RawQuery,
) -> HttpResult<DeletedBody> {
    let incarnation = integer(query.as_deref(), "incarnation")?;
    let request = wire::DeleteNamespaceRequest { name: name.clone(), incarnation };
    api.delete_namespace(Request::new(request)).await?;
    Ok(Json(DeletedBody { deleted: name }))
}

/// Configures a namespace as a control plane of Netflix's article does.
///
/// The body is its persistence_configuration, which replaces the whole configuration. An error gives the line and the
/// key.
#[utoipa::path(put, path = "/v1/namespaces/{namespace}/persistence_configuration", params(("namespace" = String, Path)), request_body(content = String, content_type = "application/json", description = "a control plane's persistence_configuration: JSON with comments"), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn put_persistence_configuration(
    ApiState(api): ApiState,
    PathParams(name): PathParams<String>,
    JsonBody(body): JsonBody,
) -> HttpResult<NamespaceBody> {
    let name = namespaces::name(name)?;
    let text = str::from_utf8(&body).map_err(FaultBody::malformed)?;
    let put = api.counters.put_namespace(&name, |before| {
        Ok(NamespaceConfig::of_persistence_configuration(text)?.archived_by_default(before.archived))
    });
    answer(api.rpcs.call(put_request(&api, &name), async |_| put.await.map_err(of_call)).await)
}
