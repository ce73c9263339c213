//! What a call is made of, refused in the same words as the call itself.

use super::FaultBody;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// The body.
pub(crate) struct Said(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for Said {
    type Rejection = FaultBody;

    async fn from_request(request: Request, state: &S) -> Result<Self, FaultBody> {
        Bytes::from_request(request, state).await.map(Said).map_err(|rejection: BytesRejection| {
            match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => FaultBody::too_large(),
                _ => FaultBody::malformed(rejection.body_text()),
            }
        })
    }
}

/// What the path names.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = FaultBody;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, FaultBody> {
        let named = Path::from_request_parts(parts, state).await;
        named.map(|Path(named)| Named(named)).map_err(|rejection: PathRejection| FaultBody::bad_path(&rejection))
    }
}
