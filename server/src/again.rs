//! Calls of which some items are refused for a reason that another call may overcome: which are sent again, and what their callers get.

use tallystone_model::Refusal;
use tallystone_model::store::Items;

/// Whether the call, or some item of it, is refused so.
pub(crate) fn some<T>(answer: &Items<T>, is_it: fn(&Refusal) -> bool) -> bool {
    match answer {
        Ok(items) => items.iter().any(|item| item.as_ref().is_err_and(is_it)),
        Err(refusal) => is_it(refusal),
    }
}

/// The items of a call that are to be sent again, after this answer.
pub(crate) fn left<I, T>(items: Vec<I>, answer: &Items<T>, is_it: fn(&Refusal) -> bool) -> Vec<I> {
    let Ok(results) = answer else { return items };
    let left = items.into_iter().zip(results).filter(|(_, result)| result.as_ref().is_err_and(is_it));
    left.map(|(item, _)| item).collect()
}

/// The answer to the call, with what its items got that were sent again.
pub(crate) fn replaced<T>(answer: Items<T>, again: Items<T>, is_it: fn(&Refusal) -> bool) -> Items<T> {
    let Ok(mut results) = answer else { return again };
    let left = results.iter_mut().filter(|result| result.as_ref().is_err_and(is_it));
    match again {
        Ok(again) => left.zip(again).for_each(|(result, again)| *result = again),
        Err(refusal) => left.for_each(|result| *result = Err(refusal.clone())),
    }
    Ok(results)
}
