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
use tallystone_serving::http::{FaultBody, JsonBody, PathParams};
use tallystone_serving::{Access, Right};

/// Views of one batch.
const BATCH_MAX: usize = 1_000;

/// The body of a batch. Each view is read by itself: one that cannot be read does not affect the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    #[serde(borrow)]
    views: Vec<&'a RawValue>,
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
    let BatchBody { views: items } = serde_json::from_slice(body).map_err(FaultBody::malformed)?;
    if !(1..=BATCH_MAX).contains(&items.len()) {
        let why = format!("has {} items; must have 1 to {BATCH_MAX}", items.len());
        return Err(of_call(&Refusal::invalid("views", why)));
    }
    let mut results: Vec<ItemBody> = Vec::with_capacity(items.len());
    let (mut good, mut number_of_good) = (Vec::new(), Vec::new());
    for (number, item) in items.into_iter().enumerate() {
        let body = serde_json::from_str::<ViewBody<'_>>(item.get());
        match body.map_err(|error| Refusal::invalid("body", error.to_string())).and_then(ViewBody::check) {
            Ok(view) => {
                good.push(view);
                number_of_good.push(number);
                results.push(ItemBody::Accepted {});
            }
            Err(refusal) => results.push(ItemBody::Refused(of_item(number, &refusal))),
        }
    }
    let accepted = views.accept(namespace, &good).await.map_err(|refusal| of_call(&refusal))?;
    for (number, result) in number_of_good.into_iter().zip(accepted) {
        if let Err(refusal) = result {
            results[number] = ItemBody::Refused(of_item(number, &refusal));
        }
    }
    Ok((StatusCode::ACCEPTED, Json(ResultsBody { results })))
}
