//! The section `[auth]` of the configuration.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[auth]`: who may call (S3, S4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The principals with their tokens, certificates and rights. It is read again when it changes. `None`: every caller
    /// may do everything.
    pub principals_file: Option<PathBuf>,
}
