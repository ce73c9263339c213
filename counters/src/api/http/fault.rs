//! How a refusal is answered over HTTP: the usual status of its gRPC code, and what happened in JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tallystone_proto::{RpcStatus, code_name};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, RpcStatusExt as _, StatusExt as _};
use utoipa::ToSchema;

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
    /// NAMESPACE_CHANGED, STORE_UNAVAILABLE.
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

impl FaultBody {
    /// A body that cannot be read.
    pub(super) fn malformed(error: &serde_json::Error) -> FaultBody {
        FaultBody::of(Code::InvalidArgument, format!("body: {error}"), &ErrorDetails::new())
    }

    /// A path that is not served.
    pub(super) fn unknown_path() -> FaultBody {
        FaultBody::of(
            Code::NotFound,
            "path: is not served; /openapi.json tells which are".to_owned(),
            &ErrorDetails::new(),
        )
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
