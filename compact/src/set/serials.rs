//! The numbers of a set's tables by range. They rise with each table, because a scan follows them, and a cursor has room for so many. A set
//! has few tables, but its last one can be replaced any number of times.

use crate::SET_TABLES_MAX;

/// All serials are below this one.
pub(crate) const SERIALS_MAX: u32 = 1 << 24;
/// From this serial on, no last table is replaced by one for lower ids: the rest is for tables that come after others.
pub(crate) const SERIALS_LOWER: u32 = SERIALS_MAX / 2;
/// Serials that a restore keeps are below this one, so that all tables that a restore may bring have room above it.
pub(crate) const SERIALS_KEPT: u32 = SERIALS_MAX - 2 * RESTORED_TABLES_MAX as u32;
/// Tables that a set gets from a snapshot or a primary of an earlier version at most: the bytes of a RESTORE may be anybody's.
pub(crate) const RESTORED_TABLES_MAX: usize = 16 * SET_TABLES_MAX;

/// The serial of a table that a restore adds after the one with the serial `last`. Earlier versions wrote dumps with greater serials than they
/// read, so that these are counted from the one before: no cursor of theirs is worth anything.
pub(crate) fn restored(serial: u32, last: Option<u32>) -> u32 {
    if serial < SERIALS_KEPT { serial } else { last.map_or(0, |last| last + 1) }
}
