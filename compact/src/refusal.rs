//! Why a command changes nothing. The first word of each text is the code that a client matches.

use std::fmt;

/// A refused command or item. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ERR`: an argument is wrong, with the reason.
    Invalid(String),
    /// `OVERFLOW`: the value would leave int64, or an unsigned field would become negative.
    Overflow {
        /// The id whose field would overflow.
        id: u64,
        /// The name of the field.
        field: String,
        /// Whether an unsigned field would go below 0.
        below_zero: bool,
    },
    /// `FULL`: no slot is left for a new id, and no further table may be made (`TABLES_MAX`, [`crate::SET_TABLES_MAX`]).
    Full,
    /// `TOOOLD`: the time of the token is before what this set remembers. This command counted nothing; an earlier one may have.
    TooOld,
    /// `TOOEARLY`: the time of the token is ahead of the engine's clock. The increment certainly did not count.
    TooEarly,
    /// `TOKENREUSED`: the token was used with other increments.
    TokenReused,
    /// `DAMAGED`: a page of a cold table fails its checksum, is missing, or was given up. Its values are not served.
    Damaged(Damage),
    /// `IOERR`: a page of a cold table could not be read. The next command reads it again.
    Unreadable {
        /// The name of the file, as the host knows it.
        file: String,
        /// The number of the page in the file.
        page: u32,
        /// The reason.
        why: String,
    },
    /// `TOOLARGE`: a repair changes more than one command may. It has to be sent in parts.
    TooLarge,
    /// `BUSYKEY`: the set is complete, and takes no piece of a dump.
    Complete,
    /// `COLD`: the record is in a file, and the command was not given its page.
    Cold,
}

/// A page of a file that cannot be trusted, and the ids whose records it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The name of the file, as the host knows it.
    pub file: String,
    /// The number of the page in the file.
    pub page: u32,
    /// The first id whose record may be on the page.
    pub first: u64,
    /// The last id whose record may be on the page.
    pub last: u64,
}

impl Refusal {
    /// Whether the record of the id is in a file, and is not known.
    pub fn lacks_record(&self) -> bool {
        matches!(self, Refusal::Cold | Refusal::Damaged(_) | Refusal::Unreadable { .. })
    }

    /// An argument is wrong.
    pub fn invalid(reason: impl Into<String>) -> Refusal {
        Refusal::Invalid(reason.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(reason) => write!(out, "ERR {reason}"),
            Refusal::Overflow { id, field, below_zero: true } => {
                write!(out, "OVERFLOW field '{field}' of id {id} is unsigned and would go below 0")
            }
            Refusal::Overflow { id, field, below_zero: false } => {
                write!(out, "OVERFLOW field '{field}' of id {id} would leave the range of 64-bit integers")
            }
            Refusal::Full => {
                write!(out, "FULL no slot in reach is left for a new id, and the set has as many tables as it may have")
            }
            Refusal::TooOld => {
                write!(out, "TOOOLD the time of the token is no longer remembered; this command counted nothing")
            }
            Refusal::TooEarly => {
                write!(out, "TOOEARLY the time of the token is ahead of the server's clock; nothing was counted")
            }
            Refusal::TokenReused => write!(out, "TOKENREUSED the token was used with other increments"),
            Refusal::Damaged(Damage { file, page, first, last }) => {
                write!(out, "DAMAGED page {page} of {file} is damaged or missing (ids {first} to {last})")
            }
            Refusal::Unreadable { file, page, why } => write!(out, "IOERR page {page} of {file} cannot be read: {why}"),
            Refusal::TooLarge => write!(
                out,
                "TOOLARGE more than 128 damaged ranges, or 512 written ids in them, are in the range; repair it in parts"
            ),
            Refusal::Complete => write!(out, "BUSYKEY the counter set is complete, and takes no more pieces of a dump"),
            Refusal::Cold => write!(out, "COLD the record is on disk, and a transaction or script cannot wait for it"),
        }
    }
}

impl std::error::Error for Refusal {}
