//! A store call in steps: the store executes other calls between them.

use tallystone_model::store::Items;

/// Calls the store for the items after a first step, `step` at a time, and returns the results of all.
///
/// If the store does not answer a step, the whole call is refused: a part of it has taken effect. Any other refusal is the
/// result of each item that is left.
pub(super) async fn go_on<I, O, F>(
    first: Items<O>,
    later: Vec<I>,
    step: Option<usize>,
    call: impl Fn(Vec<I>) -> F,
) -> Items<O>
where
    F: Future<Output = Items<O>>,
{
    let mut results = first?;
    let mut later = later.into_iter();
    while later.len() > 0 {
        let items: Vec<I> = later.by_ref().take(step.unwrap_or(usize::MAX)).collect();
        let count = items.len() + later.len();
        match call(items).await {
            Ok(answers) => results.extend(answers),
            Err(refusal) if refusal.is_unavailable() => return Err(refusal.after_an_earlier_try()),
            Err(refusal) => {
                results.extend((0..count).map(|_| Err(refusal.clone())));
                break;
            }
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::{Applied, Refusal, Resource};

    /// The results of items 0 and 1, and then of the others in steps of two; the step with item 6 is refused.
    async fn until_six(refusal: Refusal) -> Items<usize> {
        let call = async |items: Vec<usize>| match items.contains(&6) {
            true => Err(refusal.clone()),
            false => Ok(items.into_iter().map(Ok).collect()),
        };
        go_on(call(vec![0, 1]).await, (2..9).collect(), Some(2), call).await
    }

    #[tokio::test]
    async fn a_refused_step_refuses_the_items_that_are_left() {
        let full = Refusal::StoreFull { of: Resource::Memory };
        let results = until_six(full.clone()).await.unwrap();
        let expected: Vec<_> = (0..9).map(|n| if n < 6 { Ok(n) } else { Err(full.clone()) }).collect();
        assert_eq!(results, expected);
    }

    #[tokio::test]
    async fn a_step_without_an_answer_refuses_the_call() {
        let lost = Refusal::Unavailable { applied: Applied::No, why: String::new() };
        let refused = Refusal::Unavailable { applied: Applied::Unknown, why: String::new() };
        assert_eq!(until_six(lost).await, Err(refused));
    }
}
