//! One function for each path.

use super::extract::{Named, Said};
use super::{
    AddCountBody, AddCountsBody, AddedAndCountedBody, AddedBody, ClearCountBody, ClearCountsBody, CountBody,
    CountersBody, EventsBody, FaultBody, Faults, GetCountBody, GetCountsBody, ItemBody, ListCountersBody,
    ListEventsBody, ResultsBody,
};
use crate::api::{Api, add, clear, get, list, namespaces, wire_v1 as wire};
use crate::namespace::NamespaceConfig;
use axum::Json;
use axum::extract::State;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tallystone_proto::RpcStatus;
use utoipa::ToSchema;

type Answer<T> = Result<Json<T>, FaultBody>;
type ApiState = State<Api>;

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, FaultBody> {
    serde_json::from_slice(body).map_err(FaultBody::malformed)
}

fn answer<W, T: From<W>>(answered: Result<W, tonic::Status>) -> Answer<T> {
    Ok(Json(answered?.into()))
}

/// Answers of a batch, each taken apart into what it is.
fn results<R, W, T: From<W>>(
    results: Vec<R>,
    apart: impl Fn(R) -> Option<Result<W, RpcStatus>>,
) -> Json<ResultsBody<T>> {
    let item = |result: Result<W, RpcStatus>| match result {
        Ok(done) => ItemBody::Ok(done.into()),
        Err(status) => ItemBody::Refused(FaultBody::of_item(&status)),
    };
    Json(ResultsBody { results: results.into_iter().filter_map(apart).map(item).collect() })
}

#[utoipa::path(post, path = "/v1/add_count", request_body = AddCountBody, responses((status = 200, body = AddedBody), Faults))]
pub(crate) async fn add_count(State(api): ApiState, Said(body): Said) -> Answer<AddedBody> {
    answer(add::one(&api.counters, read::<AddCountBody>(&body)?.try_into()?).await)
}

#[utoipa::path(post, path = "/v1/add_and_get_count", request_body = AddCountBody, responses((status = 200, body = AddedAndCountedBody), Faults))]
pub(crate) async fn add_and_get_count(State(api): ApiState, Said(body): Said) -> Answer<AddedAndCountedBody> {
    answer(add::one_and_get(&api.counters, read::<AddCountBody>(&body)?.try_into()?).await)
}

#[utoipa::path(post, path = "/v1/add_counts", request_body = AddCountsBody, responses((status = 200, body = ResultsBody<AddedBody>), Faults))]
pub(crate) async fn add_counts(State(api): ApiState, Said(body): Said) -> Answer<ResultsBody<AddedBody>> {
    use wire::add_count_result::Outcome;
    let answered = add::many(&api.counters, read::<AddCountsBody>(&body)?.try_into()?).await?;
    Ok(results(answered.results, |result| {
        result.outcome.map(|outcome| match outcome {
            Outcome::Ok(added) => Ok(added),
            Outcome::Error(status) => Err(status),
        })
    }))
}

#[utoipa::path(post, path = "/v1/add_and_get_counts", request_body = AddCountsBody, responses((status = 200, body = ResultsBody<AddedAndCountedBody>), Faults))]
pub(crate) async fn add_and_get_counts(
    State(api): ApiState,
    Said(body): Said,
) -> Answer<ResultsBody<AddedAndCountedBody>> {
    use wire::add_and_get_count_result::Outcome;
    let answered = add::many_and_get(&api.counters, read::<AddCountsBody>(&body)?.try_into()?).await?;
    Ok(results(answered.results, |result| {
        result.outcome.map(|outcome| match outcome {
            Outcome::Ok(added) => Ok(added),
            Outcome::Error(status) => Err(status),
        })
    }))
}

#[utoipa::path(post, path = "/v1/get_count", request_body = GetCountBody, responses((status = 200, body = CountBody), Faults))]
pub(crate) async fn get_count(State(api): ApiState, Said(body): Said) -> Answer<CountBody> {
    answer(get::one(&api.counters, read::<GetCountBody>(&body)?.into()).await)
}

#[utoipa::path(get, path = "/v1/namespaces/{namespace}/counters/{counter}", params(("namespace" = String, Path), ("counter" = String, Path, description = "may have slashes")), responses((status = 200, body = CountBody), Faults))]
pub(crate) async fn read_count(
    State(api): ApiState,
    Named((namespace, counter)): Named<(String, String)>,
) -> Answer<CountBody> {
    answer(get::one(&api.counters, wire::GetCountRequest { namespace, counter }).await)
}

#[utoipa::path(post, path = "/v1/get_counts", request_body = GetCountsBody, responses((status = 200, body = ResultsBody<CountBody>), Faults))]
pub(crate) async fn get_counts(State(api): ApiState, Said(body): Said) -> Answer<ResultsBody<CountBody>> {
    use wire::get_count_result::Outcome;
    let answered = get::many(&api.counters, read::<GetCountsBody>(&body)?.into()).await?;
    Ok(results(answered.results, |result| {
        result.outcome.map(|outcome| match outcome {
            Outcome::Ok(count) => Ok(count),
            Outcome::Error(status) => Err(status),
        })
    }))
}

#[utoipa::path(post, path = "/v1/clear_count", request_body = ClearCountBody, responses((status = 200, body = AddedBody), Faults))]
pub(crate) async fn clear_count(State(api): ApiState, Said(body): Said) -> Answer<AddedBody> {
    answer(clear::one(&api.counters, read::<ClearCountBody>(&body)?.try_into()?).await)
}

#[utoipa::path(post, path = "/v1/clear_counts", request_body = ClearCountsBody, responses((status = 200, body = ResultsBody<AddedBody>), Faults))]
pub(crate) async fn clear_counts(State(api): ApiState, Said(body): Said) -> Answer<ResultsBody<AddedBody>> {
    use wire::clear_count_result::Outcome;
    let answered = clear::many(&api.counters, read::<ClearCountsBody>(&body)?.try_into()?).await?;
    Ok(results(answered.results, |result| {
        result.outcome.map(|outcome| match outcome {
            Outcome::Ok(cleared) => Ok(cleared),
            Outcome::Error(status) => Err(status),
        })
    }))
}

#[utoipa::path(post, path = "/v1/list_counters", request_body = ListCountersBody, responses((status = 200, body = CountersBody), Faults))]
pub(crate) async fn list_counters(State(api): ApiState, Said(body): Said) -> Answer<CountersBody> {
    answer(list::counters(&api.counters, read::<ListCountersBody>(&body)?.into()).await)
}

#[utoipa::path(post, path = "/v1/list_events", request_body = ListEventsBody, responses((status = 200, body = EventsBody), Faults))]
pub(crate) async fn list_events(State(api): ApiState, Said(body): Said) -> Answer<EventsBody> {
    answer(list::events(&api.counters, read::<ListEventsBody>(&body)?.try_into()?).await)
}

/// A namespace and what it is told.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamespaceBody {
    name: String,
    revision: u64,
    config: NamespaceConfig,
}

impl From<crate::redis::Namespace> for NamespaceBody {
    fn from(namespace: crate::redis::Namespace) -> Self {
        let crate::redis::Namespace { name, config, revision } = namespace;
        NamespaceBody { name: name.to_string(), revision, config }
    }
}

/// All of them.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamespacesBody {
    namespaces: Vec<NamespaceBody>,
}

/// Some parameters; the others stay as they are.
#[derive(Deserialize)]
struct Change(serde_json::Map<String, serde_json::Value>);

#[utoipa::path(get, path = "/v1/namespaces", responses((status = 200, body = NamespacesBody), Faults))]
pub(crate) async fn list_namespaces(State(api): ApiState) -> Answer<NamespacesBody> {
    let all = api.counters.namespaces().await.map_err(crate::api::status::of_call)?;
    Ok(Json(NamespacesBody { namespaces: all.into_iter().map(NamespaceBody::from).collect() }))
}

#[utoipa::path(get, path = "/v1/namespaces/{namespace}", params(("namespace" = String, Path)), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn get_namespace(State(api): ApiState, Named(name): Named<String>) -> Answer<NamespaceBody> {
    let name = namespaces::name(name)?;
    answer(api.counters.namespace(&name).await.map_err(crate::api::status::of_call))
}

#[utoipa::path(put, path = "/v1/namespaces/{namespace}", params(("namespace" = String, Path)), request_body(content = NamespaceConfig, description = "what is absent stays as it is"), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn put_namespace(
    State(api): ApiState,
    Named(name): Named<String>,
    Said(body): Said,
) -> Answer<NamespaceBody> {
    let name = namespaces::name(name)?;
    let Change(change) = read(&body)?;
    let put = api.counters.put_namespace(&name, |before| {
        let refused = |error: serde_json::Error| crate::Refusal::invalid("config", error.to_string());
        let mut config = match serde_json::to_value(before.unwrap_or_default()).map_err(refused)? {
            serde_json::Value::Object(config) => config,
            _ => serde_json::Map::new(),
        };
        config.extend(change);
        serde_json::from_value(serde_json::Value::Object(config)).map_err(refused)
    });
    answer(put.await.map_err(crate::api::status::of_call))
}

#[utoipa::path(put, path = "/v1/namespaces/{namespace}/persistence_configuration", params(("namespace" = String, Path)), request_body(content = String, description = "a control plane's JSON with comments, as it stands"), responses((status = 200, body = NamespaceBody), Faults))]
pub(crate) async fn put_persistence_configuration(
    State(api): ApiState,
    Named(name): Named<String>,
    Said(body): Said,
) -> Answer<NamespaceBody> {
    let name = namespaces::name(name)?;
    let text = str::from_utf8(&body).map_err(FaultBody::malformed)?;
    let put = api.counters.put_namespace(&name, |_| NamespaceConfig::of_persistence_configuration(text));
    answer(put.await.map_err(crate::api::status::of_call))
}
