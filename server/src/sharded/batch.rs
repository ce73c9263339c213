//! Divides the items of a call among shards, and puts their results together in order.

use std::collections::BTreeMap;
use tallystone_model::store::Items;
use tallystone_model::{Applied, Refusal};

/// The items of a shard: their positions in the call, and the items.
pub(super) type Part<I> = (Vec<usize>, Vec<I>);

/// The items of each shard, given the number of each item's shard.
pub(super) fn divide<I>(items: Vec<I>, number_of: impl Fn(usize, &I) -> u16) -> BTreeMap<u16, Part<I>> {
    let mut parts: BTreeMap<u16, Part<I>> = BTreeMap::new();
    for (at, item) in items.into_iter().enumerate() {
        let (positions, items) = parts.entry(number_of(at, &item)).or_default();
        positions.push(at);
        items.push(item);
    }
    parts
}

/// The results in the order of the call. A refused part refuses each of its items; if all are refused, that is the answer to the
/// call. A shard that is missing while others answer is being deleted, or created again: the caller repeats the call.
pub(super) fn unite<T>(count: usize, answers: Vec<(Vec<usize>, Items<T>)>) -> Items<T> {
    let mut refused = None;
    let mut results: Vec<Option<Result<T, Refusal>>> = (0..count).map(|_| None).collect();
    let all_refused = !answers.is_empty() && answers.iter().all(|(_, answer)| answer.is_err());
    for (positions, answer) in answers {
        match answer {
            Ok(items) => {
                if items.len() != positions.len() {
                    let why = format!("the store answered {} items of {}", items.len(), positions.len());
                    return Err(Refusal::Internal(why));
                }
                positions.into_iter().zip(items).for_each(|(at, item)| results[at] = Some(item));
            }
            Err(refusal) => {
                let refusal = match refusal {
                    Refusal::QueueNotFound { .. } if !all_refused => missing(),
                    refusal => refusal,
                };
                positions.into_iter().for_each(|at| results[at] = Some(Err(refusal.clone())));
                refused = Some(graver(refused, refusal));
            }
        }
    }
    match refused {
        Some(refusal) if all_refused => Err(refusal),
        _ => Ok(results.into_iter().flatten().collect()),
    }
}

/// The refusal of the items of a shard that its queue does not have at the moment.
fn missing() -> Refusal {
    Refusal::Unavailable { applied: Applied::No, why: "a shard of the queue is being deleted".to_owned() }
}

/// Of two refusals the one that says more of what may have happened.
pub(super) fn graver(first: Option<Refusal>, second: Refusal) -> Refusal {
    match first {
        Some(first) if !second.may_have_acted() => first,
        _ => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(applied: Applied) -> Refusal {
        Refusal::Unavailable { applied, why: String::new() }
    }

    #[test]
    fn q17_results_keep_the_order_of_their_items() {
        let parts = divide(vec![3_u64, 1, 2, 1], |_, item| *item as u16);
        assert_eq!(parts[&1], (vec![1, 3], vec![1, 1]));
        let answers = parts.into_values().map(|(at, items)| (at, Ok(items.into_iter().map(Ok).collect())));
        let united: Vec<u64> = unite(4, answers.collect()).unwrap().into_iter().flatten().collect();
        assert_eq!(united, [3, 1, 2, 1]);
    }

    #[test]
    fn q17_a_part_that_is_refused_refuses_its_items_and_all_parts_the_call() {
        let answers = vec![(vec![0], Ok(vec![Ok(7)])), (vec![1], Err(away(Applied::No)))];
        assert_eq!(unite(2, answers), Ok(vec![Ok(7), Err(away(Applied::No))]));
        let answers: Vec<(Vec<usize>, Items<u64>)> =
            vec![(vec![0], Err(away(Applied::No))), (vec![1], Err(away(Applied::Unknown)))];
        assert_eq!(unite(2, answers), Err(away(Applied::Unknown)));
        let absent = || Refusal::QueueNotFound { queue: "q".to_owned() };
        let answers = vec![(vec![0], Ok(vec![Ok(7)])), (vec![1], Err(absent()))];
        assert_eq!(unite(2, answers), Ok(vec![Ok(7), Err(missing())]), "the queue is there");
        let answers: Vec<(Vec<usize>, Items<u64>)> = vec![(vec![0], Err(absent())), (vec![1], Err(absent()))];
        assert_eq!(unite(2, answers), Err(absent()));
    }
}
