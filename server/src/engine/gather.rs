//! Combines the calls of many callers into one store call, and splits its results among them.

use super::call::{Call, Recipient, SubscriptionId};
use super::cost::{ITEM_BYTES, Load};
use std::collections::VecDeque;
use tallystone_model::Refusal;
use tallystone_model::store::Items;

/// The maximum of items of each verb in a flush, since the store executes nothing else meanwhile
/// (docs/decisions/0070).
pub(super) const FLUSH_ITEMS: usize = 128;

/// The same for the bytes of messages: they cost the store as much as so many items.
const FLUSH_BYTES: usize = FLUSH_ITEMS * ITEM_BYTES;

/// The calls of one verb that wait to be sent to the store.
pub(super) struct Gather<I, O> {
    calls: VecDeque<Call<I, O>>,
    load: Load,
    /// The callers that have disconnected since their calls were last dropped.
    left: usize,
}

impl<I, O> Default for Gather<I, O> {
    fn default() -> Self {
        Gather { calls: VecDeque::new(), load: Load::default(), left: 0 }
    }
}

/// The calls of one verb that are sent as one store call.
pub(super) struct Batch<I, O> {
    /// The items of all calls, in order.
    pub(super) items: Vec<I>,
    /// Their encoded size, where it is known (Enqueue).
    pub(super) bytes: usize,
    /// The calls that the items belong to.
    pub(super) parts: Parts<O>,
    /// Whether one of the calls may create the queue without a template: it does so as if it had come first.
    pub(super) may_create: bool,
}

/// For each call of a batch, in order: its number of items, and the recipient of its results.
pub(super) type Parts<O> = Vec<(usize, Recipient<O>)>;

impl<I, O> Gather<I, O> {
    pub(super) fn push(&mut self, call: Call<I, O>) {
        self.load = self.load.plus(call.load());
        self.calls.push_back(call);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The load of all calls.
    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// A caller has disconnected.
    pub(super) fn caller_left(&mut self) {
        self.left += 1;
    }

    /// Drops the calls whose callers have disconnected, and so gives their places back, as soon as they may be an eighth of those
    /// that wait: so each costs a few comparisons.
    pub(super) fn drop_left(&mut self) {
        if !may_drop(self.left, self.calls.len()) {
            return;
        }
        self.left = 0;
        self.calls.retain(|call| !call.recipient.is_gone());
        self.load = self.calls.iter().map(Call::load).fold(Load::default(), Load::plus);
    }

    /// Takes as many whole calls as one flush may have, and at least one. Calls whose callers have disconnected are dropped.
    pub(super) fn take(&mut self) -> Option<Batch<I, O>> {
        let mut batch: Option<Batch<I, O>> = None;
        while let Some(call) = self.calls.front() {
            let fits = |batch: &Batch<I, O>| {
                let load = batch.load().plus(call.load());
                load.items <= FLUSH_ITEMS && load.bytes <= FLUSH_BYTES
            };
            if batch.as_ref().is_some_and(|batch| !fits(batch)) {
                break;
            }
            let Some(call) = self.calls.pop_front() else { break };
            self.load = self.load.minus(call.load());
            if call.recipient.is_gone() {
                continue;
            }
            let Call { items, bytes, may_create, recipient } = call;
            let part = (items.len(), recipient);
            match &mut batch {
                None => batch = Some(Batch { items, bytes, parts: vec![part], may_create }),
                Some(batch) => {
                    batch.items.extend(items);
                    batch.bytes += bytes;
                    batch.parts.push(part);
                    batch.may_create |= may_create;
                }
            }
        }
        batch
    }
}

/// Whether so many callers that have left may be an eighth of those that wait.
pub(super) fn may_drop(left: usize, waiting: usize) -> bool {
    left > 0 && 8 * left >= waiting
}

impl<I, O> Batch<I, O> {
    pub(super) fn load(&self) -> Load {
        Load { items: self.items.len(), bytes: self.bytes }
    }
}

/// Sends each call its share of the results; a refusal of the whole store call goes to every call, and an item that the store could not
/// reach refuses its call. `to_subscription` gets the share of a subscription, with its number of items.
pub(super) fn split<O>(
    parts: Parts<O>,
    answer: Items<O>,
    mut to_subscription: impl FnMut(SubscriptionId, usize, Items<O>),
) {
    let expected: usize = parts.iter().map(|(count, _)| count).sum();
    let answer = answer.and_then(|items| match items.len() == expected {
        true => Ok(items),
        false => Err(Refusal::Internal(format!("the store answered {} items of {expected}", items.len()))),
    });
    let alone = parts.len() == 1;
    let mut answer = answer.map(Vec::into_iter);
    for (count, recipient) in parts {
        let share = match &mut answer {
            // Collecting the whole iterator reuses the vector.
            Ok(items) if alone => Ok(std::mem::take(items).collect()),
            Ok(items) => Ok(items.by_ref().take(count).collect()),
            Err(refusal) => Err(refusal.clone()),
        };
        match recipient {
            // A caller that has disconnected needs no results.
            Recipient::Caller(caller, place) => {
                drop(place);
                drop(caller.send(as_one(share)));
            }
            Recipient::Subscription(subscription) => to_subscription(subscription, count, share),
            Recipient::Discard => {}
        }
    }
}

/// The share of a unary call. Of a queue with several shards some may be unavailable: the caller repeats the whole call.
pub(super) fn as_one<O>(share: Items<O>) -> Items<O> {
    let items = share?;
    let unavailable =
        |item: &Result<O, Refusal>| item.as_ref().err().filter(|refusal| refusal.is_unavailable()).cloned();
    let Some(refusal) = items.iter().find_map(unavailable) else { return Ok(items) };
    let may_have_acted = |item: &Result<O, Refusal>| item.as_ref().map_or_else(Refusal::may_have_acted, |_| true);
    Err(if items.iter().any(may_have_acted) { refusal.after_an_earlier_try() } else { refusal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::limits::BATCH_BYTES_MAX;
    use tallystone_model::{Applied, Resource};
    use tokio::sync::oneshot;

    fn call(items: std::ops::Range<usize>, bytes: usize) -> (Call<usize, usize>, oneshot::Receiver<Items<usize>>) {
        let (sender, receiver) = oneshot::channel();
        (
            Call { items: items.collect(), bytes, may_create: false, recipient: Recipient::Caller(sender, None) },
            receiver,
        )
    }

    #[test]
    fn q17_a_call_of_which_a_part_may_have_acted_does_not_say_that_nothing_has() {
        let away = |applied| Err::<u8, _>(Refusal::Unavailable { applied, why: String::new() });
        let no = || away(Applied::No);
        for (items, expected) in [
            (vec![Ok(1), Ok(2)], None),
            (vec![no(), no()], Some(Applied::No)),
            (vec![no(), Ok(1)], Some(Applied::Unknown)),
            (vec![no(), away(Applied::Unknown)], Some(Applied::Unknown)),
        ] {
            let applied = as_one(Ok(items)).err().map(|refusal| match refusal {
                Refusal::Unavailable { applied, .. } => applied,
                other => panic!("{other:?}"),
            });
            assert_eq!(applied, expected);
        }
    }

    #[test]
    fn calls_combine_in_order_up_to_the_limits_and_never_split() {
        let mut gather = Gather::default();
        let mut receivers = Vec::new();
        for (range, bytes) in
            [(0..100, 0), (100..128, 0), (128..228, 0), (2_000..2_001, FLUSH_BYTES), (0..1_000, BATCH_BYTES_MAX)]
        {
            let (call, receiver) = call(range, bytes);
            gather.push(call);
            receivers.push(receiver);
        }
        let first = gather.take().unwrap();
        assert_eq!(first.items, (0..FLUSH_ITEMS).collect::<Vec<_>>(), "a third call would pass the items of a flush");
        let second = gather.take().unwrap();
        assert_eq!(second.items.len(), 101, "bytes at the bound still fit");
        split(first.parts, Ok(first.items.into_iter().map(Ok).collect()), |_, _, _| unreachable!());
        assert_eq!(receivers[1].try_recv().unwrap().unwrap()[0], Ok(100));
        split(second.parts, Err(Refusal::StoreFull { of: Resource::Memory }), |_, _, _| unreachable!());
        assert_eq!(receivers[3].try_recv().unwrap(), Err(Refusal::StoreFull { of: Resource::Memory }));
        assert_eq!(gather.take().unwrap().items.len(), 1_000, "a call is never split");
        assert!(gather.take().is_none());
    }

    #[test]
    fn s5_a_flush_is_short_in_bytes_too() {
        let mut gather = Gather::default();
        let _callers: Vec<_> = (0..4)
            .map(|n| {
                let (call, caller) = call(n..n + 1, FLUSH_BYTES / 2);
                gather.push(call);
                caller
            })
            .collect();
        assert_eq!(gather.load(), Load { items: 4, bytes: 2 * FLUSH_BYTES });
        assert_eq!(gather.take().unwrap().items, [0, 1]);
        assert_eq!(gather.take().unwrap().load(), Load { items: 2, bytes: FLUSH_BYTES });
        assert_eq!(gather.load(), Load::default());
    }

    #[test]
    fn the_call_of_a_disconnected_caller_is_dropped() {
        let mut gather = Gather::default();
        let (gone, receiver) = call(0..3, 0);
        drop(receiver);
        gather.push(gone);
        let (next, _receiver) = call(3..4, 0);
        gather.push(next);
        let (gone, receiver) = call(4..6, 7);
        drop(receiver);
        gather.push(gone);
        assert_eq!(gather.load(), Load { items: 6, bytes: 7 });
        assert_eq!(gather.take().unwrap().items, [3]);
        let (next, _receiver) = call(6..7, 8);
        gather.push(next);
        let (gone, receiver) = call(7..9, 9);
        drop(receiver);
        gather.push(gone);
        gather.drop_left();
        assert_eq!(gather.calls.len(), 2, "nothing has said that one has gone");
        gather.caller_left();
        gather.drop_left();
        assert_eq!((gather.calls.len(), gather.load()), (1, Load { items: 1, bytes: 8 }));
    }

    #[test]
    fn q17_an_item_that_the_store_does_not_reach_refuses_its_call_alone() {
        let away = || Refusal::Unavailable { applied: Applied::No, why: String::new() };
        let mut gather = Gather::default();
        let (first, mut answer) = call(0..2, 0);
        let (second, mut other) = call(2..3, 0);
        gather.push(first);
        gather.push(second);
        split(gather.take().unwrap().parts, Ok(vec![Ok(1), Err(away()), Ok(3)]), |_, _, _| unreachable!());
        let unknown = Refusal::Unavailable { applied: Applied::Unknown, why: String::new() };
        assert_eq!(answer.try_recv().unwrap(), Err(unknown));
        assert_eq!(other.try_recv().unwrap(), Ok(vec![Ok(3)]));
    }

    #[test]
    fn a_store_that_answers_too_few_items_is_an_internal_error() {
        let mut gather = Gather::default();
        let (call, mut receiver) = call(0..3, 0);
        gather.push(call);
        split(gather.take().unwrap().parts, Ok(vec![Ok(1)]), |_, _, _| unreachable!());
        assert!(matches!(receiver.try_recv().unwrap(), Err(Refusal::Internal(_))));
    }
}
