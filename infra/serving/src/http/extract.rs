//! Extractors of axum whose rejections are a [`FaultBody`].

use super::FaultBody;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// The body of the request, as it was sent.
pub struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = FaultBody;

    async fn from_request(request: Request, state: &S) -> Result<Self, FaultBody> {
        Bytes::from_request(request, state).await.map(RawBody).map_err(|rejection: BytesRejection| {
            match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => FaultBody::too_large(),
                _ => FaultBody::malformed(rejection.body_text()),
            }
        })
    }
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
