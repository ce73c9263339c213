//! `POST /v1/views` and `POST /v1/views:batch`.

use super::status::{of_call, of_item};
use crate::Refusal;
use crate::config::DEFAULT_NAMESPACE;
use crate::service::ViewService;
use crate::view::ViewBody;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use tallystone_model::Applied;
use tallystone_serving::http::{FaultBody, JsonBody, PathParams};
use tallystone_serving::{Access, Right};

/// Views of one batch.
const BATCH_MAX: usize = 1_000;

/// The body of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<View> {
    views: Vec<View>,
}

/// A view of a batch, or why it cannot be read.
type Read<'a> = Result<ViewBody<'a>, Refusal>;

fn read_one(view: &RawValue) -> Read<'_> {
    serde_json::from_str(view.get()).map_err(|error| Refusal::invalid("body", error.to_string()))
}

/// Reads the views of a batch. One that cannot be read does not affect the others.
fn read_batch(body: &[u8]) -> Result<Vec<Read<'_>>, FaultBody> {
    if let Ok(BatchBody { views }) = serde_json::from_slice::<BatchBody<ViewBody<'_>>>(body) {
        return Ok(views.into_iter().map(Ok).collect());
    }
    // Each by itself. This reads all of them twice.
    let BatchBody { views } = serde_json::from_slice::<BatchBody<&RawValue>>(body).map_err(FaultBody::malformed)?;
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

type Views = State<Arc<ViewService>>;

pub(super) async fn one(views: Views, access: Access, body: JsonBody) -> Result<StatusCode, FaultBody> {
    accept_one(&views, &access, DEFAULT_NAMESPACE, &body.0).await
}

pub(super) async fn one_in(
    views: Views,
    access: Access,
    PathParams(namespace): PathParams<String>,
    body: JsonBody,
) -> Result<StatusCode, FaultBody> {
    accept_one(&views, &access, &namespace, &body.0).await
}

pub(super) async fn many(
    views: Views,
    access: Access,
    body: JsonBody,
) -> Result<(StatusCode, Json<ResultsBody>), FaultBody> {
    accept_many(&views, &access, DEFAULT_NAMESPACE, &body.0).await
}

pub(super) async fn many_in(
    views: Views,
    access: Access,
    PathParams(namespace): PathParams<String>,
    body: JsonBody,
) -> Result<(StatusCode, Json<ResultsBody>), FaultBody> {
    accept_many(&views, &access, &namespace, &body.0).await
}

async fn accept_one(
    views: &ViewService,
    access: &Access,
    namespace: &str,
    body: &[u8],
) -> Result<StatusCode, FaultBody> {
    access.require("POST /v1/views", Right::Count, namespace)?;
    let body: ViewBody<'_> = serde_json::from_slice(body).map_err(FaultBody::malformed)?;
    let view = body.check().map_err(|refusal| of_call(&refusal))?;
    let results = views.accept(namespace, &[view]).await.map_err(|refusal| of_call(&refusal))?;
    match results.into_iter().find_map(Result::err) {
        Some(refusal) => Err(of_call(&refusal)),
        None => Ok(StatusCode::ACCEPTED),
    }
}

async fn accept_many(
    views: &ViewService,
    access: &Access,
    namespace: &str,
    body: &[u8],
) -> Result<(StatusCode, Json<ResultsBody>), FaultBody> {
    access.require("POST /v1/views:batch", Right::Count, namespace)?;
    let items = read_batch(body)?;
    if !(1..=BATCH_MAX).contains(&items.len()) {
        let why = format!("has {} items; must have 1 to {BATCH_MAX}", items.len());
        return Err(of_call(&Refusal::invalid("views", why)));
    }
    let mut results: Vec<ItemBody> = Vec::with_capacity(items.len());
    let (mut good, mut number_of_good) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for (number, item) in items.into_iter().enumerate() {
        match item.and_then(ViewBody::check) {
            Ok(view) => {
                good.push(view);
                number_of_good.push(number);
                results.push(ItemBody::Accepted {});
            }
            Err(refusal) => results.push(ItemBody::Refused(of_item(number, &refusal))),
        }
    }
    let accepted = views.accept(namespace, &good).await.map_err(|refusal| of_call(&refusal))?;
    if accepted.iter().all(Result::is_err) {
        return Err(of_none(&accepted, results));
    }
    for (number, result) in number_of_good.into_iter().zip(accepted) {
        if let Err(refusal) = result {
            results[number] = ItemBody::Refused(of_item(number, &refusal));
        }
    }
    Ok((StatusCode::ACCEPTED, Json(ResultsBody { results })))
}

/// Why no view of a batch is in the log, or may be there: 202 would promise too much to a caller that reads only the status.
fn of_none(accepted: &[Result<(), Refusal>], results: Vec<ItemBody>) -> FaultBody {
    let refusals = || accepted.iter().filter_map(|result| result.as_ref().err());
    let is_unknown = |refusal: &&Refusal| matches!(refusal, Refusal::Unavailable { applied: Applied::Unknown, .. });
    if let Some(refusal) = refusals().find(is_unknown).or_else(|| refusals().next()) {
        return of_call(refusal);
    }
    let invalid = results.into_iter().find_map(|result| match result {
        ItemBody::Refused(body) => Some(body),
        ItemBody::Accepted {} => None,
    });
    invalid.unwrap_or_else(|| FaultBody::malformed("has no views"))
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
