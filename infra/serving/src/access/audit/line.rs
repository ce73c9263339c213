//! One line of the audit log.

use super::super::right::Right;
use serde::{Serialize, Serializer};
use std::net::IpAddr;
use tallystone_proto::code_name;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// With more names than this, a line has only the first ones.
const NAMES_MAX: usize = 20;

/// What a call was, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(in crate::access) struct Line {
    #[serde(serialize_with = "as_rfc3339")]
    time: OffsetDateTime,
    /// Absent: without identities, or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    /// Who has signed the token of the principal; absent: it is a principal of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<IpAddr>,
    /// The RPC, or the path of a request that was refused before it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_name")]
    right: Option<Right>,
    /// The queues or namespaces that the call is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// How many names the call has beyond these.
    #[serde(skip_serializing_if = "is_zero")]
    more_names: usize,
    #[serde(serialize_with = "as_code")]
    code: Code,
    /// The reason of a refusal, as its ErrorInfo has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Refusals before this one that have no line, because there were too many within a second.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) omitted: usize,
    /// Lines before this one that could not be written.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) lost: usize,
}

impl Line {
    pub(in crate::access) fn new(principal: Option<String>, peer: Option<IpAddr>, call: Option<String>) -> Line {
        Line {
            time: OffsetDateTime::now_utc(),
            principal,
            issuer: None,
            peer,
            call,
            right: None,
            names: Vec::new(),
            more_names: 0,
            code: Code::Ok,
            reason: String::new(),
            omitted: 0,
            lost: 0,
        }
    }

    /// Who has signed the token of the principal.
    pub(in crate::access) fn signed_by(mut self, issuer: Option<&str>) -> Line {
        self.issuer = issuer.map(str::to_owned);
        self
    }

    /// What the right is on.
    pub(in crate::access) fn on(mut self, right: Right, names: impl IntoIterator<Item = String>) -> Line {
        let mut names = names.into_iter();
        self.right = Some(right);
        self.names = names.by_ref().take(NAMES_MAX).collect();
        self.more_names = names.count();
        self
    }

    /// The end of the call.
    pub(in crate::access) fn ended(mut self, code: Code, reason: String) -> Line {
        self.code = code;
        self.reason = reason;
        self
    }

    /// Whether the caller was refused for what it is or may do. Without a right, it was refused before the call was read.
    pub(super) fn is_denial(&self) -> bool {
        self.right.is_none() || self.code == Code::PermissionDenied
    }

    /// The line, with its end.
    pub(super) fn text(&self) -> String {
        // Only maps with other keys than strings do not serialize.
        serde_json::to_string(self).map_or_else(|error| error.to_string(), |json| json + "\n")
    }
}

/// The reason of a status, as its ErrorInfo has it.
pub(in crate::access) fn reason(status: &Status) -> String {
    status.get_details_error_info().map_or_else(String::new, |info| info.reason)
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn as_rfc3339<S: Serializer>(time: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.format(&Rfc3339).map_err(serde::ser::Error::custom)?)
}

fn as_name<S: Serializer>(right: &Option<Right>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(right.map_or("", Right::name))
}

fn as_code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code_name(*code))
}
