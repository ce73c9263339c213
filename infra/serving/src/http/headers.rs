//! Headers of every answer that restrict what a browser does with it (S7).

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::Response;

/// A page loads only what this port serves, nothing inline, and no page shows it in a frame.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'";

/// Adds the headers to an answer.
pub(super) fn restrict(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let is_page = headers.get(CONTENT_TYPE).is_some_and(|of| of.as_bytes().starts_with(b"text/html"));
    if is_page {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    response
}
