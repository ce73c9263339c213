//! Gathering the calls of many callers into one store call, and splitting its answer among them again.

use super::work::StreamId;
use std::collections::VecDeque;
use tallystone_model::Refusal;
use tallystone_model::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use tallystone_model::store::Items;
use tokio::sync::oneshot;

/// What one caller asks of one verb.
pub(crate) struct Call<I, O> {
    /// At least one, at most [`BATCH_ITEMS_MAX`].
    pub(crate) items: Vec<I>,
    /// Their encoded size, where it matters (Enqueue); else 0.
    pub(crate) bytes: usize,
    /// Who gets the answer.
    pub(crate) reply: Reply<O>,
}

/// Who gets an answer.
pub(crate) enum Reply<O> {
    /// A unary call.
    Caller(oneshot::Sender<Items<O>>),
    /// A Work stream.
    Stream(StreamId),
    /// Nobody: the server gives back leases that nobody took.
    Nobody,
}

impl<O> Reply<O> {
    /// The caller has gone: what it asked for need not be done. What a stream has sent is done though the
    /// stream has closed since.
    fn is_gone(&self) -> bool {
        matches!(self, Reply::Caller(caller) if caller.is_closed())
    }
}

/// Calls of one verb that have come and not yet gone to the store.
pub(super) struct Gather<I, O> {
    calls: VecDeque<Call<I, O>>,
    items: usize,
}

impl<I, O> Default for Gather<I, O> {
    fn default() -> Self {
        Gather { calls: VecDeque::new(), items: 0 }
    }
}

/// Calls of one verb that travel as one store call.
pub(super) struct Batch<I, O> {
    /// The items of all of them, in order.
    pub(super) items: Vec<I>,
    /// Whose they are.
    pub(super) parts: Parts<O>,
}

/// How many items of a batch belong to whom, in order.
pub(super) type Parts<O> = Vec<(usize, Reply<O>)>;

impl<I, O> Gather<I, O> {
    pub(super) fn push(&mut self, call: Call<I, O>) {
        self.items += call.items.len();
        self.calls.push_back(call);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The items of all of them.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// As many whole calls as the limits of one store call allow; at least one, if there is one whose caller still
    /// waits.
    pub(super) fn take(&mut self) -> Option<Batch<I, O>> {
        let mut batch: Option<Batch<I, O>> = None;
        let mut bytes = 0;
        while let Some(call) = self.calls.front() {
            let so_far = batch.as_ref().map_or(0, |batch| batch.items.len());
            let fits = so_far + call.items.len() <= BATCH_ITEMS_MAX && bytes + call.bytes <= BATCH_BYTES_MAX;
            if so_far > 0 && !fits {
                break;
            }
            let Some(call) = self.calls.pop_front() else { break };
            self.items -= call.items.len();
            if call.reply.is_gone() {
                continue;
            }
            bytes += call.bytes;
            let part = (call.items.len(), call.reply);
            match &mut batch {
                None => batch = Some(Batch { items: call.items, parts: vec![part] }),
                Some(batch) => {
                    batch.items.extend(call.items);
                    batch.parts.push(part);
                }
            }
        }
        batch
    }
}

/// Gives each part its share of the answer; a refusal of the whole call goes to everyone.
pub(super) fn split<O>(parts: Parts<O>, answer: Items<O>, mut to_stream: impl FnMut(StreamId, usize, Items<O>)) {
    let expected: usize = parts.iter().map(|(count, _)| count).sum();
    let answer = answer.and_then(|items| match items.len() == expected {
        true => Ok(items),
        false => Err(Refusal::Internal(format!("the store answered {} items of {expected}", items.len()))),
    });
    let alone = parts.len() == 1;
    let mut answer = answer.map(Vec::into_iter);
    for (count, reply) in parts {
        let share = match &mut answer {
            // Collecting the whole iterator reuses the vector.
            Ok(items) if alone => Ok(std::mem::take(items).collect()),
            Ok(items) => Ok(items.by_ref().take(count).collect()),
            Err(refusal) => Err(refusal.clone()),
        };
        match reply {
            // A caller that has gone does not need its answer.
            Reply::Caller(caller) => drop(caller.send(share)),
            Reply::Stream(stream) => to_stream(stream, count, share),
            Reply::Nobody => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(items: std::ops::Range<usize>, bytes: usize) -> (Call<usize, usize>, oneshot::Receiver<Items<usize>>) {
        let (sender, receiver) = oneshot::channel();
        (Call { items: items.collect(), bytes, reply: Reply::Caller(sender) }, receiver)
    }

    #[test]
    fn calls_combine_in_order_up_to_the_limits_and_never_split() {
        let mut gather = Gather::default();
        let mut receivers = Vec::new();
        for (range, bytes) in [(0..600, 0), (600..900, 0), (900..1_001, 0), (2_000..2_001, BATCH_BYTES_MAX)] {
            let (call, receiver) = call(range, bytes);
            gather.push(call);
            receivers.push(receiver);
        }
        let first = gather.take().unwrap();
        assert_eq!(first.items, (0..900).collect::<Vec<_>>(), "a third call would pass 1,000 items");
        let second = gather.take().unwrap();
        assert_eq!(second.items.len(), 102, "bytes at the bound still fit");
        split(first.parts, Ok(first.items.into_iter().map(Ok).collect()), |_, _, _| unreachable!());
        assert_eq!(receivers[1].try_recv().unwrap().unwrap()[0], Ok(600));
        split(second.parts, Err(Refusal::StoreFull), |_, _, _| unreachable!());
        assert_eq!(receivers[3].try_recv().unwrap(), Err(Refusal::StoreFull));
        assert!(gather.take().is_none());
    }

    #[test]
    fn a_caller_that_has_gone_is_left_out() {
        let mut gather = Gather::default();
        let (gone, receiver) = call(0..3, 0);
        drop(receiver);
        gather.push(gone);
        let (call, _receiver) = call(3..4, 0);
        gather.push(call);
        assert_eq!(gather.take().unwrap().items, [3]);
    }

    #[test]
    fn a_store_that_answers_too_little_is_an_internal_error() {
        let mut gather = Gather::default();
        let (call, mut receiver) = call(0..3, 0);
        gather.push(call);
        split(gather.take().unwrap().parts, Ok(vec![Ok(1)]), |_, _, _| unreachable!());
        assert!(matches!(receiver.try_recv().unwrap(), Err(Refusal::Internal(_))));
    }
}
