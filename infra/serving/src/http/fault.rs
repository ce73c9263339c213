//! How an HTTP call is refused: the status that fits the gRPC code, and the details as JSON.

use crate::unread::method_not_found;
use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt::Display;
use std::str::FromStr;
use tallystone_proto::{RpcStatus, code_name};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, ErrorInfo, RpcStatusExt as _, StatusExt as _};
use utoipa::{IntoResponses, ToSchema};

/// Why a call, or one item of a batch, was refused.
#[derive(Serialize, ToSchema)]
pub struct FaultBody {
    // Boxed, because every result is as large as its error.
    error: Box<Fault>,
}

/// The details of a refusal.
#[derive(Serialize, ToSchema)]
pub struct Fault {
    /// The gRPC code by name, such as OUT_OF_RANGE.
    code: &'static str,
    /// The reason, for programs: INVALID_ARGUMENT, PATH_NOT_FOUND, METHOD_NOT_ALLOWED, BAD_ORIGIN, BAD_HOST,
    /// BAD_CONTENT_TYPE, TOO_LARGE, BODY_TOO_SLOW, TOO_MANY_UNFINISHED_BYTES, TOO_MANY_UNFINISHED_REQUESTS, STORE_UNAVAILABLE,
    /// INTERNAL, or one of the service's own.
    reason: String,
    /// The reason in a sentence, for people.
    message: String,
    /// The field at fault, if one field is.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// With STORE_UNAVAILABLE, CLOCK_SKEW and OVERLOADED: "no" (certainly not done) or "unknown" (perhaps done). Repeat the
    /// same request.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<String>,
    /// With OVERLOADED: nothing has changed. Also where a store did not answer. The same request may succeed after this many
    /// milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// With BOUND_REACHED: the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    /// With NOT_EXACT_YET: the time to which the count is exact (Unix ms); 0: it was never rolled up.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact_to_ms: Option<u64>,
    #[serde(skip)]
    status: StatusCode,
}

/// The errors of every call, as OpenAPI describes them.
#[derive(IntoResponses)]
pub enum Faults {
    /// The call was refused; nothing has changed.
    #[response(status = "4XX")]
    Refused(FaultBody),
    /// The service or its store failed. With STORE_UNAVAILABLE, `applied` says whether anything may have changed.
    #[response(status = "5XX")]
    Failed(FaultBody),
}

impl FaultBody {
    /// The body of the request cannot be read.
    pub fn malformed(error: impl Display) -> FaultBody {
        FaultBody::invalid("body", error)
    }

    /// A parameter in the path cannot be read.
    pub fn bad_path(error: impl Display) -> FaultBody {
        FaultBody::invalid("path", error)
    }

    /// The body has more bytes than the service reads.
    pub fn too_large() -> FaultBody {
        let message = "body: is too large";
        FaultBody::of_http(StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, "TOO_LARGE", message)
    }

    /// The path is served, but not with this method.
    pub fn method_not_allowed() -> FaultBody {
        let message = "path: does not allow this method; the header allow lists the methods of the path";
        FaultBody::of_http(StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, "METHOD_NOT_ALLOWED", message)
    }

    /// A page of another origin makes the call.
    pub(crate) fn other_origin() -> FaultBody {
        let message = "origin: differs from the host of this request; only programs and pages of this host may call";
        FaultBody::of_http(StatusCode::FORBIDDEN, Code::PermissionDenied, "BAD_ORIGIN", message)
    }

    /// The call does not name this host.
    pub(crate) fn bad_host(why: impl Display) -> FaultBody {
        let message = format!("host: {why}");
        FaultBody::of_http(StatusCode::MISDIRECTED_REQUEST, Code::PermissionDenied, "BAD_HOST", &message)
    }

    /// The call has a body, but does not say that it is JSON.
    pub(crate) fn bad_content_type() -> FaultBody {
        let message = "content-type: must be application/json; curl sends it with -H 'content-type: application/json'";
        FaultBody::of_http(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, "BAD_CONTENT_TYPE", message)
    }

    /// The refusal of one item of a batch.
    pub fn of_item(status: &RpcStatus) -> FaultBody {
        FaultBody::of(Code::from_i32(status.code), status.message.clone(), &status.get_error_details())
    }

    fn invalid(part: &str, error: impl Display) -> FaultBody {
        FaultBody::of_http(
            StatusCode::BAD_REQUEST,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            &format!("{part}: {error}"),
        )
    }

    fn of_http(status: StatusCode, code: Code, reason: &str, message: &str) -> FaultBody {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let (field, applied, retry_after_ms, count, exact_to_ms) = Default::default();
        let code = code_name(code);
        let error = Fault { code, reason, message, field, applied, retry_after_ms, count, exact_to_ms, status };
        FaultBody { error: Box::new(error) }
    }

    fn of(code: Code, message: String, details: &ErrorDetails) -> FaultBody {
        let info = details.error_info();
        let violation = details.bad_request().and_then(|bad| bad.field_violations.first());
        let status = match code {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let error = Fault {
            code: code_name(code),
            reason: info.map_or_else(|| "INVALID_ARGUMENT".to_owned(), |info| info.reason.clone()),
            message,
            field: violation.map(|violation| violation.field.clone()),
            applied: metadata(info, "applied"),
            retry_after_ms: metadata(info, "retry_after_ms"),
            count: metadata(info, "count"),
            exact_to_ms: metadata(info, "exact_to_ms"),
            status,
        };
        FaultBody { error: Box::new(error) }
    }
}

/// An entry of the metadata, if it is there and can be read.
fn metadata<T: FromStr>(info: Option<&ErrorInfo>, name: &str) -> Option<T> {
    info?.metadata.get(name)?.parse().ok()
}

impl From<Status> for FaultBody {
    fn from(status: Status) -> FaultBody {
        FaultBody::of(status.code(), status.message().to_owned(), &status.get_error_details())
    }
}

impl IntoResponse for FaultBody {
    fn into_response(self) -> Response {
        let retry_after_s = self.error.retry_after_ms.map(|ms| ms.div_ceil(1_000));
        let mut response = (self.error.status, Json(self)).into_response();
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The answer to a path that no service has: a 404 over HTTP, and UNIMPLEMENTED to a gRPC call.
pub async fn unknown_path(headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return method_not_found().into_http::<axum::body::Body>();
    }
    let message = "path: does not exist";
    FaultBody::of_http(StatusCode::NOT_FOUND, Code::NotFound, "PATH_NOT_FOUND", message).into_response()
}

/// Whether the headers are those of a gRPC call.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|of| of.as_bytes().starts_with(b"application/grpc"))
}
