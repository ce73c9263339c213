//! 64-bit integers in JSON, as proto3's JSON mapping has them: a request may write each as a number or as text, and the
//! answer has text where the caller requests it. Languages whose numbers are floating-point are exact to 2^53 only.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value};
use tallystone_serving::http::Int64;

/// The parameter of the query with which a caller requests text.
pub(super) const PARAMETER: &str = "int64";
/// Its only value.
pub(super) const AS_TEXT: &str = "string";
/// Numbers of 32 bits in the protocol file: they stay numbers.
pub(super) const SHORT: [&str; 6] =
    ["rollup_batch_count", "num_queues", "buckets_per_id", "seconds_per_bucket", "seconds_per_slice", "epoch"];

/// Integers that a change of a namespace has as text, or with an exponent, become plain numbers.
pub(super) fn read_integers(change: &mut Map<String, Value>) {
    for value in change.values_mut().filter(|value| value.is_string() || value.is_f64()) {
        if let Ok(Int64(number)) = Int64::deserialize(&*value) {
            *value = number.into();
        }
    }
}

/// Writes the 64-bit integers of an answer as text, if the caller requests it. A query with another parameter is refused.
pub(super) async fn answer_text(request: Request, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let parts = || query.split('&').filter(|part| !part.is_empty());
    let given = || parts().map(|part| part.split_once('=').unwrap_or((part, "")));
    let known = parameters(&request);
    if let Some((unknown, _)) = given().find(|(name, _)| !known.contains(name)) {
        let why = format!("has '{unknown}', which is not one of {}", known.join(", "));
        return refused(crate::Refusal::invalid("query", why));
    }
    let requested = given().find(|(name, _)| *name == PARAMETER);
    let is_text = match requested {
        None => false,
        Some((_, AS_TEXT)) => true,
        Some((_, other)) => {
            let why = format!("is '{other}'; must be '{AS_TEXT}', or absent");
            return refused(crate::Refusal::invalid(PARAMETER, why));
        }
    };
    let response = next.run(request).await;
    if !is_text {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The answer is in memory already.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Response::from_parts(parts, Body::empty()) };
    let body = match serde_json::from_slice::<Value>(&body) {
        Ok(mut answer) => {
            write_text(&mut answer);
            answer.to_string().into()
        }
        Err(_) => body,
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// The parameters that the path of a request may have.
fn parameters(request: &Request) -> &'static [&'static str] {
    // Behind the name of a namespace.
    let rest = request.uri().path().strip_prefix("/v1/namespaces/").and_then(|path| path.split_once('/'));
    let rest = rest.map_or("", |(_, rest)| rest);
    match request.method() {
        &Method::GET | &Method::HEAD if rest.starts_with("counters/") => {
            &["min_exact_to_ms", "wait_ms", "global", PARAMETER]
        }
        &Method::GET | &Method::HEAD if rest == "crossings" => &["after", "limit", "wait_ms", PARAMETER],
        &Method::DELETE => &["incarnation", PARAMETER],
        _ => &[PARAMETER],
    }
}

fn refused(refusal: crate::Refusal) -> Response {
    tallystone_serving::http::FaultBody::from(crate::api::status::of_call(refusal)).into_response()
}

fn write_text(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_text),
        Value::Object(fields) => {
            let wide = fields.iter_mut().filter(|(name, _)| !SHORT.contains(&name.as_str()));
            wide.for_each(|(_, value)| write_text(value));
        }
        Value::Number(number) => *value = Value::String(number.to_string()),
        _ => {}
    }
}
