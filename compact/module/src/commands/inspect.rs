//! `CT.INFO`, `CT.TABLES`, `CT.CHECK`, `CT.GIVEUP` and `CT.SCAN`.

use super::parse::{count, cursor};
use super::{Call, Command, Stop, Unread};
use crate::value::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_compact::{Fetched, Figure, Figures, Need, PageRef, VALUES_MAX};

/// `CT.INFO key`
pub(super) struct Info;

/// `CT.TABLES key [FROM serial]`
pub(super) struct Tables;

/// `CT.CHECK key [cursor]`
pub(super) struct Check;

/// `CT.GIVEUP key cursor`
pub(super) struct GiveUp;

/// `CT.SCAN key cursor [COUNT n]`
pub(super) struct Scan;

/// Tables that one reply shows.
const TABLES_MAX: usize = 256;
/// How long one check goes on.
const CHECK_TIME: Duration = Duration::from_micros(500);
const CHECK_FAULTS_MAX: usize = 100;
/// Pages that are read for a scan or a check, if it needs one: those that follow will be needed too.
const PAGES_AHEAD: u32 = 4;
const SCAN_COUNT: u64 = 10;
const SCAN_COUNT_MAX: usize = 256;

impl Command for Info {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != Info::ARGS_MIN {
            return Err(Stop::Arity);
        }
        let key = call.open_read();
        let figures = key.set_in_any_state()?.lock().ok_or(Stop::Broken)?.set().info();
        reply(call, &figures);
        Ok(())
    }
}

impl Command for Tables {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let from = match call.args.len() {
            2 => 0,
            4 if call.args.get(2).eq_ignore_ascii_case(b"FROM") => count(call.args.get(3))?,
            4 => return Err(Stop::text("ERR syntax error")),
            _ => return Err(Stop::Arity),
        };
        // No serial is greater, and none is there.
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let key = call.open_read();
        let tables = key.set_in_any_state()?.lock().ok_or(Stop::Broken)?.set().tables(from, TABLES_MAX);
        call.context.reply_array(tables.len());
        tables.iter().for_each(|figures| reply(call, figures));
        Ok(())
    }
}

impl Command for Check {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let from = match call.args.len() {
            2 => 0,
            3 => cursor(call.args.get(2))?,
            _ => return Err(Stop::Arity),
        };
        check(call, call.open_read().set_in_any_state()?, from, false)
    }
}

/// A check that changes what is served: pages that cannot be read are damaged from now on. Each process has its own files, so neither
/// the log nor a replica gets the command.
impl Command for GiveUp {
    const IS_WRITE: bool = true;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        if call.args.len() != GiveUp::ARGS_MIN {
            return Err(Stop::Arity);
        }
        check(call, call.open_write().set_in_any_state()?, cursor(call.args.get(2))?, true)
    }
}

/// Checks parts of a set from a cursor on, as many as the time allows. `gives_up`: pages that cannot be read are damaged from now on.
fn check(call: &Call<'_>, shared: &Arc<Shared>, from: u128, gives_up: bool) -> Result<(), Stop> {
    let mut held = shared.lock().ok_or(Stop::Broken)?;
    let (begin, mut cursor) = (Instant::now(), from);
    let mut faults = Vec::new();
    loop {
        let checked = match gives_up {
            true => held.set().give_up(cursor, call.fetched),
            false => held.set().check(cursor, call.fetched),
        };
        match checked {
            Ok((next, found)) => {
                cursor = next;
                faults.extend(found);
            }
            Err(page) if cursor == from => return Err(ahead(shared, page)),
            Err(_) => break,
        }
        if cursor == 0 || faults.len() >= CHECK_FAULTS_MAX || begin.elapsed() >= CHECK_TIME {
            break;
        }
    }
    drop(held);
    call.context.reply_array(1 + faults.len());
    call.context.reply_cursor(cursor);
    faults.iter().for_each(|fault| call.context.reply_bytes(fault.as_bytes()));
    Ok(())
}

impl Command for Scan {
    const IS_WRITE: bool = false;
    const ARGS_MIN: usize = 3;

    fn run(call: &Call<'_>) -> Result<(), Stop> {
        let from = cursor(call.args.get(2))?;
        let count = match call.args.len() {
            3 => SCAN_COUNT,
            5 if call.args.get(3).eq_ignore_ascii_case(b"COUNT") => count(call.args.get(4))?,
            _ => return Err(Stop::text("ERR syntax error")),
        };
        let key = call.open_read();
        let shared = key.set()?;
        let mut held = shared.lock().ok_or(Stop::Broken)?;
        let set = held.set();
        let fields = set.schema().live().count();
        // The last group, or the last step in a file, may have up to 1,024 ids more than requested.
        let most = SCAN_COUNT_MAX.min(VALUES_MAX / fields / 4).max(1) as u64;
        let count = count.clamp(1, most) as usize;
        let scan = match set.scan(from, count, call.fetched) {
            Ok(scan) => scan,
            Err(Ok(page)) => return Err(ahead(shared, page)),
            Err(Err(refusal)) => return Err(refusal.into()),
        };
        drop(held);
        call.context.reply_array(1 + scan.ids.len());
        call.context.reply_cursor(scan.next);
        for (id, values) in scan.ids.iter().zip(scan.values.chunks(fields)) {
            call.context.reply_array(1 + fields);
            call.context.reply_decimal(*id);
            values.iter().for_each(|value| call.context.reply_integer(*value));
        }
        Ok(())
    }
}

/// The page that is needed, and some that follow it. Pages after the last one cannot be read, and are not requested.
fn ahead(shared: &Arc<Shared>, page: PageRef) -> Stop {
    let pages = (page.page..page.page.saturating_add(PAGES_AHEAD)).map(|number| PageRef { page: number, ..page });
    let needs = pages.map(|page| Need { page, id: None }).collect();
    Stop::Unread(Box::new(Unread { shared: shared.clone(), needs, along: Fetched::none(), ids: Vec::new() }))
}

fn reply(call: &Call<'_>, figures: &Figures) {
    call.context.reply_map(figures.len());
    for (name, figure) in figures {
        call.context.reply_bytes(name.as_bytes());
        match figure {
            Figure::Number(number) => call.context.reply_integer(*number),
            Figure::Text(text) => call.context.reply_bytes(text.as_bytes()),
        }
    }
}
