//! How a refusal is answered over HTTP: the usual status of its gRPC code, and what happened in JSON.

use crate::refusal::Refusal;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt::Display;
use tallystone_proto::{RpcStatus, code_name};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, RpcStatusExt as _, StatusExt as _};
use utoipa::{IntoResponses, ToSchema};

/// Why a call, or one item of a batch, was refused.
#[derive(Serialize, ToSchema)]
pub(crate) struct FaultBody {
    error: Fault,
}

/// See there.
#[derive(Serialize, ToSchema)]
pub(crate) struct Fault {
    /// By the common codes of gRPC, such as OUT_OF_RANGE.
    code: &'static str,
    /// For programs: INVALID, NAMESPACE_NOT_FOUND, TOO_OLD, TOO_EARLY, OVERFLOW, TOKEN_CONFLICT, TOKEN_EXPIRED,
    /// NAMESPACE_CHANGED, STORE_UNAVAILABLE, INTERNAL; METHOD_NOT_ALLOWED, TOO_LARGE.
    reason: String,
    /// For people.
    message: String,
    /// The field at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// STORE_UNAVAILABLE: "no" (certainly not counted) or "unknown" (send the same token again).
    #[serde(skip_serializing_if = "Option::is_none")]
    applied: Option<String>,
    #[serde(skip)]
    status: StatusCode,
}

/// What every call may answer instead of what it is for, as OpenAPI has it.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "described, and never made")]
pub(super) enum Faults {
    /// The call was refused; nothing has changed.
    #[response(status = "4XX")]
    Refused(FaultBody),
    /// The service or its store failed. Of STORE_UNAVAILABLE, `applied` says whether anything may have changed.
    #[response(status = "5XX")]
    Failed(FaultBody),
}

impl FaultBody {
    /// A body that cannot be read.
    pub(super) fn malformed(error: impl Display) -> FaultBody {
        FaultBody::invalid("body", &error)
    }

    /// A path that names what cannot be a name.
    pub(super) fn bad_path(error: &impl Display) -> FaultBody {
        FaultBody::invalid("path", error)
    }

    /// A body of more bytes than are read.
    pub(super) fn too_large() -> FaultBody {
        FaultBody::of_http(
            StatusCode::PAYLOAD_TOO_LARGE,
            Code::ResourceExhausted,
            "TOO_LARGE",
            "body: has too many bytes",
        )
    }

    /// A path that is not served.
    pub(super) fn unknown_path() -> FaultBody {
        let message = "path: is not served; /openapi.json tells which are";
        FaultBody::of_http(StatusCode::NOT_FOUND, Code::NotFound, "INVALID", message)
    }

    /// A path that is served by another method.
    pub(super) fn method_not_allowed() -> FaultBody {
        let message = "path: is served by another method; /openapi.json tells by which";
        FaultBody::of_http(StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, "METHOD_NOT_ALLOWED", message)
    }

    /// What never came to be a call, and so has no field of one.
    fn invalid(part: &'static str, error: &impl Display) -> FaultBody {
        let refusal = Refusal::invalid(part, error.to_string());
        crate::metrics::refused(&refusal);
        FaultBody::of_http(StatusCode::BAD_REQUEST, Code::InvalidArgument, refusal.reason(), &refusal.to_string())
    }

    fn of_http(status: StatusCode, code: Code, reason: &str, message: &str) -> FaultBody {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        FaultBody { error: Fault { code: code_name(code), reason, message, field: None, applied: None, status } }
    }

    /// Of one item.
    pub(super) fn of_item(status: &RpcStatus) -> FaultBody {
        FaultBody::of(Code::from_i32(status.code), status.message.clone(), &status.get_error_details())
    }

    fn of(code: Code, message: String, details: &ErrorDetails) -> FaultBody {
        let info = details.error_info();
        let violation = details.bad_request().and_then(|bad| bad.field_violations.first());
        let status = match code {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let error = Fault {
            code: code_name(code),
            reason: info.map_or_else(|| "INVALID".to_owned(), |info| info.reason.clone()),
            message,
            field: violation.map(|violation| violation.field.clone()),
            applied: info.and_then(|info| info.metadata.get("applied").cloned()),
            status,
        };
        FaultBody { error }
    }
}

impl From<Status> for FaultBody {
    fn from(status: Status) -> FaultBody {
        FaultBody::of(status.code(), status.message().to_owned(), &status.get_error_details())
    }
}

impl IntoResponse for FaultBody {
    fn into_response(self) -> Response {
        (self.error.status, Json(self)).into_response()
    }
}
