//! Extractors of axum whose rejections are a [`FaultBody`].

use super::FaultBody;
use crate::unread::{UnreadCall, note_unread};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use std::error::Error;
use tonic::Status;

/// The body of a request whose content type is `application/json`, as it was sent. Other types are refused (S7): with
/// `text/plain`, for example, a browser sends the call of any page without a preflight.
pub struct JsonBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = FaultBody;

    async fn from_request(request: Request, state: &S) -> Result<Self, FaultBody> {
        let is_json = is_json(request.headers());
        // Also if it is refused: the bytes of an unread body would close an HTTP/1 connection.
        let body = Bytes::from_request(request, state).await.map_err(|rejection: BytesRejection| {
            match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    note_unread(UnreadCall::TooLarge);
                    FaultBody::too_large()
                }
                _ => refused_body(&rejection)
                    .map_or_else(|| FaultBody::malformed(rejection.body_text()), FaultBody::from),
            }
        })?;
        if is_json { Ok(JsonBody(body)) } else { Err(FaultBody::bad_content_type()) }
    }
}

/// The limit of this port that a body has exceeded before it had arrived in full, if that is why it cannot be read.
fn refused_body(rejection: &BytesRejection) -> Option<Status> {
    let mut error: Option<&(dyn Error + 'static)> = Some(rejection);
    while let Some(source) = error {
        if let Some(refused) = source.downcast_ref::<Status>() {
            return Some(refused.clone());
        }
        error = source.source();
    }
    None
}

/// Whether the content type is `application/json`, with any parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).into_iter().peekable();
    let is_json = |value: &axum::http::HeaderValue| {
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    };
    types.peek().is_some() && types.all(is_json)
}

/// The parameters in the path.
pub struct PathParams<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = FaultBody;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, FaultBody> {
        let params = Path::from_request_parts(parts, state).await;
        params.map(|Path(params)| PathParams(params)).map_err(|rejection: PathRejection| FaultBody::bad_path(rejection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::response::IntoResponse as _;

    #[tokio::test]
    async fn s1_a_body_beyond_a_limit_is_refused_as_that_limit_says() {
        let status = async |error: axum::BoxError| {
            // Bodies are wrapped again where a request passes from one layer to the next.
            let broken = futures::stream::iter([Ok(Bytes::from_static(b"{")), Err(error)]);
            let body = Body::new(Body::new(Body::from_stream(broken)));
            let request = Request::post("/v1").header(CONTENT_TYPE, "application/json").body(body).unwrap();
            let refused = JsonBody::from_request(request, &()).await.map(|_| ()).unwrap_err();
            refused.into_response().status().as_u16()
        };
        assert_eq!(status(Status::resource_exhausted("too slow").into()).await, 429);
        assert_eq!(status("the connection was reset".into()).await, 400);
    }

    #[test]
    fn s7_only_a_body_that_is_declared_as_json_is_read() {
        let is_json = |types: &[&str]| {
            is_json(&types.iter().map(|value| (CONTENT_TYPE, value.parse().unwrap())).collect::<HeaderMap>())
        };
        for json in ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;a=b"]
        {
            assert!(is_json(&[json]), "{json}");
        }
        for other in [
            "",
            "text/plain",
            "text/plain; application/json",
            "text/plain;a=application/json",
            "application/jsonp",
            "application/json, text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=json",
            "application/vnd.a+json",
            "json",
        ] {
            assert!(!is_json(&[other]), "{other}");
        }
        assert!(!is_json(&[]), "a page can send a body without a type");
        assert!(!is_json(&["application/json", "text/plain"]) && !is_json(&["text/plain", "application/json"]));
    }
}
