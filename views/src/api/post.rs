//! `POST /v1/views` and `POST /v1/views:batch`.

use super::call::{Api, Caller, PostView, PostViews};
use super::status::{of_call, of_call_by_item, of_item};
use crate::Refusal;
use crate::config::DEFAULT_NAMESPACE;
use crate::view::ViewBody;
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use tallystone_model::Applied;
use tallystone_serving::http::{FaultBody, JsonBody, PathParams, short_list};
use tonic::Status;

/// Views of one batch.
const BATCH_MAX: usize = 1_000;

/// The body of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(bound(deserialize = "View: Deserialize<'de>"))]
struct BatchBody<View> {
    #[serde(deserialize_with = "short_list")]
    views: Vec<View>,
}

/// A view of a batch, or why it cannot be read.
type Read<'a> = Result<ViewBody<'a>, Refusal>;

fn malformed(error: serde_json::Error) -> Refusal {
    Refusal::invalid("body", error.to_string())
}

fn read_one(view: &RawValue) -> Read<'_> {
    serde_json::from_str(view.get()).map_err(malformed)
}

/// Reads the views of a batch. One that cannot be read does not affect the others.
fn read_batch(body: &[u8]) -> Result<Vec<Read<'_>>, Refusal> {
    if let Ok(BatchBody { views }) = serde_json::from_slice::<BatchBody<ViewBody<'_>>>(body) {
        return Ok(views.into_iter().map(Ok).collect());
    }
    // Each by itself. This reads all of them twice.
    let BatchBody { views } = serde_json::from_slice::<BatchBody<&RawValue>>(body).map_err(malformed)?;
    Ok(views.into_iter().map(read_one).collect())
}

/// The answer to a batch: a result for each view, in their order.
#[derive(Serialize)]
pub(super) struct ResultsBody {
    results: Vec<ItemBody>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemBody {
    /// It is durable.
    Accepted {},
    Refused(FaultBody),
}

type Views = State<Arc<Api>>;

/// Also without a router, so it extracts what it needs itself.
pub(super) async fn one(State(api): Views, request: Request) -> Result<StatusCode, FaultBody> {
    let caller = Caller::of(request.headers(), request.extensions());
    let body = JsonBody::from_request(request, &()).await?;
    accept_one(&api, caller, DEFAULT_NAMESPACE.to_owned(), &body.0).await
}

pub(super) async fn one_in(
    api: Views,
    caller: Caller,
    PathParams(namespace): PathParams<String>,
    body: JsonBody,
) -> Result<StatusCode, FaultBody> {
    accept_one(&api, caller, namespace, &body.0).await
}

type BatchAnswer = Result<(StatusCode, Json<ResultsBody>), FaultBody>;

pub(super) async fn many(api: Views, caller: Caller, body: JsonBody) -> BatchAnswer {
    accept_many(&api, caller, DEFAULT_NAMESPACE.to_owned(), &body.0).await
}

pub(super) async fn many_in(
    api: Views,
    caller: Caller,
    PathParams(namespace): PathParams<String>,
    body: JsonBody,
) -> BatchAnswer {
    accept_many(&api, caller, namespace, &body.0).await
}

async fn accept_one(api: &Api, caller: Caller, namespace: String, body: &[u8]) -> Result<StatusCode, FaultBody> {
    let accepted = async {
        let view = serde_json::from_slice::<ViewBody<'_>>(body).map_err(malformed)?.check()?;
        api.views.accept_one(&namespace, &view).await
    };
    let accepted = async { accepted.await.map_err(|refusal| of_call(&refusal)) };
    api.run(caller, PostView { namespace: namespace.clone() }, accepted).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn accept_many(api: &Api, caller: Caller, namespace: String, body: &[u8]) -> BatchAnswer {
    let accepted = accept_batch(api, &namespace, body);
    let results = api.run(caller, PostViews { namespace: namespace.clone() }, accepted).await?;
    Ok((StatusCode::ACCEPTED, Json(ResultsBody { results })))
}

async fn accept_batch(api: &Api, namespace: &str, body: &[u8]) -> Result<Vec<ItemBody>, Status> {
    let items = read_batch(body).map_err(|refusal| of_call(&refusal))?;
    if !(1..=BATCH_MAX).contains(&items.len()) {
        return Err(of_call(&Refusal::invalid("views", format!("must have 1 to {BATCH_MAX} items"))));
    }
    let mut refused: Vec<(usize, Refusal)> = Vec::new();
    let (mut good, mut number_of_good) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    let number_of_items = items.len();
    for (number, item) in items.into_iter().enumerate() {
        match item.and_then(ViewBody::check) {
            Ok(view) => {
                good.push(view);
                number_of_good.push(number);
            }
            Err(refusal) => refused.push((number, refusal)),
        }
    }
    let accepted = api.views.accept(namespace, &good).await.map_err(|refusal| of_call(&refusal))?;
    if accepted.iter().all(Result::is_err) {
        return Err(of_none(&accepted, refused.first()));
    }
    let late = number_of_good.into_iter().zip(accepted);
    refused.extend(late.filter_map(|(number, result)| result.err().map(|refusal| (number, refusal))));
    let mut results: Vec<ItemBody> = (0..number_of_items).map(|_| ItemBody::Accepted {}).collect();
    for (number, refusal) in refused {
        results[number] = ItemBody::Refused(of_item(number, &refusal));
    }
    Ok(results)
}

/// Why no view of a batch is in the log, or may be there: 202 would promise too much to a caller that reads only the status.
fn of_none(accepted: &[Result<(), Refusal>], first_invalid: Option<&(usize, Refusal)>) -> Status {
    let refusals = || accepted.iter().filter_map(|result| result.as_ref().err());
    let is_unknown = |refusal: &&Refusal| matches!(refusal, Refusal::Unavailable { applied: Applied::Unknown, .. });
    if let Some(refusal) = refusals().find(is_unknown).or_else(|| refusals().next()) {
        return of_call(refusal);
    }
    match first_invalid {
        Some((number, refusal)) => of_call_by_item(*number, refusal),
        None => of_call(&Refusal::invalid("views", "has no views")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_a_view_that_cannot_be_read_does_not_affect_the_others() {
        let good = r#"{"videoId":"v","userId":"u\u00e9","timestamp":"2026-11-25T08:00:00Z"}"#;
        let read = |views: &str| {
            let read = read_batch(format!(r#"{{"views":[{views}]}}"#).as_bytes().to_vec().leak()).ok()?;
            Some(read.into_iter().map(|view| view.and_then(ViewBody::check).is_ok()).collect::<Vec<_>>())
        };
        assert_eq!(read(&format!("{good},{good}")), Some(vec![true, true]));
        assert_eq!(read(&format!(r#"{good},{{"videoId":"v"}},7,{good}"#)), Some(vec![true, false, false, true]));
        assert_eq!((read(""), read(&format!("{good},"))), (Some(vec![]), None));
        assert!(read_batch(br#"{"views":[],"more":1}"#).is_err());
    }
}
