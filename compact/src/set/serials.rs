//! The numbers of a set's tables by range. They rise with each table, because a scan follows them, and a cursor has 24 bits for a serial. A
//! set has few tables, but its last one can be replaced any number of times.

use crate::SET_TABLES_MAX;

/// All serials are below this one.
pub(crate) const SERIALS_MAX: u32 = 1 << 24;
/// From this serial on, no last table is replaced by one for lower ids: the rest is for tables that come after others.
pub(crate) const SERIALS_LOWER: u32 = SERIALS_MAX / 2;
/// Serials that a restore keeps are below this one, so that all tables that a restore may bring have room above it.
pub(crate) const SERIALS_KEPT: u32 = SERIALS_MAX - 2 * RESTORED_TABLES_MAX as u32;
/// Tables that a set gets from a snapshot or a primary of an earlier version at most: the payload of a RESTORE may be forged.
pub(crate) const RESTORED_TABLES_MAX: usize = 16 * SET_TABLES_MAX;

/// The serial of a table that a restore adds after the one with the serial `last`. Earlier versions wrote dumps with serials that they
/// could not read. A serial of `SERIALS_KEPT` or more is replaced by `last` + 1. No scan could pass a table from `SERIALS_MAX` on, so its
/// cursors were of no use.
pub(crate) fn restored(serial: u32, last: Option<u32>) -> u32 {
    if serial < SERIALS_KEPT { serial } else { last.map_or(0, |last| last + 1) }
}
