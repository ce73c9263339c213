//! Divides the items of a call among shards, sends them, and puts their results together in order.

use super::one_queue::OneQueue;
use futures::future::join_all;
use std::collections::BTreeMap;
use tallystone_model::store::Items;
use tallystone_model::{Applied, Refusal, Shard, Store};

/// The items of a shard: their positions in the call, and the items.
pub(super) type Part<I> = (Vec<usize>, Vec<I>);

/// The answer to a part: the positions of its items in the call, and their results.
pub(super) type PartAnswer<T> = (Vec<usize>, Items<T>);

/// The items of each shard, given the number of each item's shard, or why it is unknown: then the item is refused without a call. The
/// second value: the answers to those.
pub(super) fn divide<I, T>(
    items: Vec<I>,
    numbers: impl IntoIterator<Item = Result<u16, Refusal>>,
) -> (BTreeMap<u16, Part<I>>, Vec<PartAnswer<T>>) {
    let (mut parts, mut unknown) = (BTreeMap::<u16, Part<I>>::new(), Vec::new());
    for (at, (item, number)) in items.into_iter().zip(numbers).enumerate() {
        match number {
            Ok(number) => {
                let (positions, items) = parts.entry(number).or_default();
                positions.push(at);
                items.push(item);
            }
            Err(refusal) => unknown.push((vec![at], Err(refusal))),
        }
    }
    (parts, unknown)
}

/// The results in the order of the call. A refused part refuses each of its items; if all are refused, that is the answer to the
/// call. A shard that is missing while others answer is being deleted, or created again: the caller repeats the call.
pub(super) fn unite<T>(count: usize, answers: Vec<PartAnswer<T>>) -> Items<T> {
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

/// The parts of a call, each sent to its shard at once. The second value of `parts`: the answers to the items that are not sent.
pub(super) async fn send<S: Store, I: Clone + Send + Sync, O: Send, F: Future<Output = Items<O>> + Send>(
    queue: &OneQueue<'_, S>,
    count: usize,
    (parts, not_sent): (BTreeMap<u16, Part<I>>, Vec<PartAnswer<O>>),
    call: impl Fn(Shard, Vec<I>) -> F + Send + Sync,
) -> Items<O> {
    let call = &call;
    let sent = parts.into_iter().map(|(number, (positions, items))| async move {
        let items = &items;
        let answer = queue.on_time(number, |shard| call(shard, items.clone())).await;
        if answer.as_ref().is_err_and(|refusal| *refusal == Refusal::earlier_layout()) {
            queue.learn_from(number).await;
        }
        (positions, answer)
    });
    let answers = join_all(sent).await.into_iter().chain(not_sent);
    unite(count, answers.collect())
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
        let (parts, unknown) = divide::<u64, u64>(vec![3, 1, 2, 1], [3, 1, 2, 1].map(Ok));
        assert_eq!((&parts[&1], unknown), (&(vec![1, 3], vec![1, 1]), Vec::new()));
        let answers = parts.into_values().map(|(at, items)| (at, Ok(items.into_iter().map(Ok).collect())));
        let united: Vec<u64> = unite(4, answers.collect()).unwrap().into_iter().flatten().collect();
        assert_eq!(united, [3, 1, 2, 1]);
    }

    #[test]
    fn x4_an_item_whose_shard_is_unknown_is_refused_alone() {
        let numbers = [Ok(2), Err(away(Applied::No)), Ok(1)];
        let (parts, unknown) = divide::<u64, u64>(vec![5, 6, 7], numbers);
        let sent = parts.into_values().map(|(at, items)| (at, Ok(items.into_iter().map(Ok).collect())));
        let united = unite(3, sent.chain(unknown).collect());
        assert_eq!(united, Ok(vec![Ok(5), Err(away(Applied::No)), Ok(7)]));
    }

    #[test]
    fn q17_a_part_that_is_refused_refuses_its_items_and_all_parts_the_call() {
        let answers = vec![(vec![0], Ok(vec![Ok(7)])), (vec![1], Err(away(Applied::No)))];
        assert_eq!(unite(2, answers), Ok(vec![Ok(7), Err(away(Applied::No))]));
        let answers: Vec<PartAnswer<u64>> =
            vec![(vec![0], Err(away(Applied::No))), (vec![1], Err(away(Applied::Unknown)))];
        assert_eq!(unite(2, answers), Err(away(Applied::Unknown)));
        let absent = || Refusal::QueueNotFound { queue: "q".to_owned() };
        let answers = vec![(vec![0], Ok(vec![Ok(7)])), (vec![1], Err(absent()))];
        assert_eq!(unite(2, answers), Ok(vec![Ok(7), Err(missing())]), "the queue is there");
        let answers: Vec<PartAnswer<u64>> = vec![(vec![0], Err(absent())), (vec![1], Err(absent()))];
        assert_eq!(unite(2, answers), Err(absent()));
    }
}
