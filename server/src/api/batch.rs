//! Batches: their limits, and a result for each item, so that a malformed item does not affect the others.

use super::status;
use tallystone_model::Refusal;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::Items;
use tallystone_proto::RpcStatus;
use tallystone_serving::trace_items;
use tonic::Status;

/// Refuses a list that is empty or has too many items; `list` is its field.
pub(super) fn check_count(list: &'static str, count: usize) -> Result<(), Status> {
    let why = match count {
        0 => "is empty".to_owned(),
        count if count > BATCH_ITEMS_MAX => format!("has {count} items; the maximum is {BATCH_ITEMS_MAX}"),
        _ => return Ok(()),
    };
    Err(status::of_call(Refusal::invalid(list, why)))
}

/// A parsed batch: the well-formed items, and the refusals of the malformed ones.
pub(super) struct Parsed<I> {
    list: &'static str,
    /// The well-formed items.
    good: Vec<I>,
    /// For each item of the request: why it is malformed.
    slots: Vec<Option<Refusal>>,
}

impl<I> Parsed<I> {
    /// Checks the count and parses each item; `list` is the field.
    pub(super) fn new<W>(
        list: &'static str,
        items: Vec<W>,
        parse: impl Fn(W) -> Result<I, Refusal>,
    ) -> Result<Self, Status> {
        check_count(list, items.len())?;
        trace_items(items.len());
        let mut parsed = Parsed { list, good: Vec::with_capacity(items.len()), slots: Vec::with_capacity(items.len()) };
        for item in items {
            parsed.slots.push(match parse(item) {
                Ok(item) => {
                    parsed.good.push(item);
                    None
                }
                Err(refusal) => Some(refusal),
            });
        }
        Ok(parsed)
    }

    /// Executes the well-formed items, if any, and merges the results in the order of the request.
    pub(super) async fn through<O, F>(self, send: impl FnOnce(Vec<I>) -> F) -> Result<Vec<Result<O, RpcStatus>>, Status>
    where
        F: Future<Output = Items<O>>,
    {
        let answers = match self.good.is_empty() {
            true => Vec::new(),
            false => send(self.good).await.map_err(status::of_call)?,
        };
        let mut answers = answers.into_iter();
        let fill = |(index, slot): (usize, Option<Refusal>)| {
            let answer = match slot {
                Some(refusal) => Err(refusal),
                None => answers.next().unwrap_or_else(|| Err(Refusal::Internal("an item went unanswered".to_owned()))),
            };
            answer.map_err(|refusal| status::of_item(self.list, index, &refusal))
        };
        Ok(self.slots.into_iter().enumerate().map(fill).collect())
    }
}
