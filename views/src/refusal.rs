//! Why a call of the view counter is refused.

use tallystone_model::Applied;

/// Why a call, or one item of a batch, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field cannot be used. Nothing has changed.
    #[error("{field}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// No namespace has this name. Nothing has changed.
    #[error("there is no namespace {0:?} in the configuration of this server")]
    NamespaceNotFound(String),
    /// Too many views wait for the log, the owner of the partition has no memory for more pairs, or too many counts wait to be read.
    /// Nothing has changed.
    #[error("too many views wait for the log, too many pairs are in memory, or too many counts wait to be read")]
    Overloaded,
    /// The log did not accept the view, or its answer was lost.
    #[error("{why}")]
    Unavailable {
        /// Whether the view may be in the log.
        applied: Applied,
        /// Why.
        why: String,
    },
    /// The log is not what it was (X7). Nothing has changed.
    #[error("{0}")]
    DataLoss(String),
    /// The counters do not answer, and this process has never read this count.
    #[error("the counters do not answer, and this server has no earlier count of this video")]
    NoCount,
    /// A defect of Tallystone.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Refusal {
    /// A [`Refusal::Invalid`].
    pub(crate) fn invalid(field: &'static str, why: impl Into<String>) -> Refusal {
        Refusal::Invalid { field, why: why.into() }
    }

    /// The reason in the error's body: upper case and stable, so that programs can compare it.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Refusal::Invalid { .. } => "INVALID_ARGUMENT",
            Refusal::NamespaceNotFound(_) => "NAMESPACE_NOT_FOUND",
            Refusal::Overloaded => "OVERLOADED",
            Refusal::Unavailable { .. } => "STORE_UNAVAILABLE",
            Refusal::DataLoss(_) => "DATA_LOSS",
            Refusal::NoCount => "NO_COUNT",
            Refusal::Internal(_) => "INTERNAL",
        }
    }
}

impl From<tallystone_model::Refusal> for Refusal {
    fn from(refusal: tallystone_model::Refusal) -> Refusal {
        use tallystone_model::Refusal as Store;
        match refusal {
            Store::DataLoss { why } => Refusal::DataLoss(why),
            Store::Unavailable { applied, why } => Refusal::Unavailable { applied, why },
            Store::StoreFull { .. } | Store::ClockSkew { .. } => {
                Refusal::Unavailable { applied: Applied::No, why: refusal.to_string() }
            }
            other => Refusal::Internal(other.to_string()),
        }
    }
}
