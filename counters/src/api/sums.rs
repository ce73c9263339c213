//! GetSums (N16), page by page.

use super::sealed::{seal, unseal};
use super::status::of_call;
use super::wire::{namespace, range};
use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::service::CounterService;
use crate::sums::{KeptSums, Period, PeriodSum, SumsPage, SumsPosition};
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn page(
    counters: &CounterService,
    request: wire::GetSumsRequest,
) -> Result<wire::GetSumsResponse, Status> {
    let period = request.period();
    let wire::GetSumsRequest { namespace: name, counter, period: number, from_ms, to_ms, page_token } = request;
    let name = namespace(name)?;
    let counter = CounterName::parse(counter).map_err(of_call)?;
    let period = match period {
        wire::Period::Minute => Period::Minute,
        wire::Period::Hour => Period::Hour,
        wire::Period::Day => Period::Day,
        wire::Period::Unspecified => {
            let why = format!("is {number}; must be PERIOD_MINUTE (1), PERIOD_HOUR (2) or PERIOD_DAY (3)");
            return Err(of_call(Refusal::invalid("period", why)));
        }
    };
    let within_ms = range(from_ms, to_ms)?;
    let request = format!("{name} {counter} {period:?} {from_ms} {to_ms}");
    let from = position(&page_token, &request, period).map_err(of_call)?;
    let found = counters.sums(&name, &counter, period, within_ms, from).await.map_err(of_call)?;
    let KeptSums { page: SumsPage { sums, next, exact_to_ms }, kept_from_ms } = found;
    Ok(wire::GetSumsResponse {
        sums: sums.into_iter().map(into_wire).collect::<Result<_, _>>().map_err(of_call)?,
        next_page_token: next.map(|next| token(next, &request)).unwrap_or_default(),
        exact_to_ms: exact_to_ms as i64,
        kept_from_ms: kept_from_ms as i64,
    })
}

/// # Errors
/// [`Refusal::Overflow`]: the sum exceeds 64 bits. Clears take nothing out of a sum, so it may, though the count never did.
fn into_wire(PeriodSum { from_ms, sum, adds }: PeriodSum) -> Result<wire::PeriodSum, Refusal> {
    let sum = i64::try_from(sum).map_err(|_| Refusal::Overflow)?;
    Ok(wire::PeriodSum { from_ms: from_ms as i64, sum, adds: i64::try_from(adds).unwrap_or(i64::MAX) })
}

/// The token of a page of this request.
fn token(position: SumsPosition, request: &str) -> String {
    let SumsPosition { next_ms, end_ms, unfinished, exact_to_ms } = position;
    let exact_to_ms = exact_to_ms.unwrap_or_default();
    let numbers = match unfinished {
        Some(PeriodSum { from_ms, sum, adds }) => format!("{next_ms}.{end_ms}.{exact_to_ms}.{from_ms}.{sum}.{adds}"),
        None => format!("{next_ms}.{end_ms}.{exact_to_ms}"),
    };
    seal(&numbers, request)
}

/// Where a page begins; `None`: it is the first one.
fn position(page_token: &str, request: &str, period: Period) -> Result<Option<SumsPosition>, Refusal> {
    if page_token.is_empty() {
        return Ok(None);
    }
    let read = || {
        let parts = unseal(page_token, request)?;
        let (times, unfinished) = parts.split_at_checked(3)?;
        let unfinished = match unfinished {
            [] => None,
            [from_ms, sum, adds] => {
                Some(PeriodSum { from_ms: from_ms.parse().ok()?, sum: sum.parse().ok()?, adds: adds.parse().ok()? })
            }
            _ => return None,
        };
        let time = |number: usize| times[number].parse::<u64>().ok();
        let (next_ms, end_ms, exact_to_ms) = (time(0)?, time(1)?, time(2)?);
        let position = SumsPosition { next_ms, end_ms, unfinished, exact_to_ms: Some(exact_to_ms) };
        let is_of = |unfinished: PeriodSum| unfinished.from_ms == period.begin_ms(position.next_ms);
        unfinished.is_none_or(is_of).then_some(position)
    };
    let unknown = || Refusal::invalid("page_token", "is not a page token of these sums");
    read().map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n16_a_sum_beyond_64_bits_is_refused_and_not_given_as_another() {
        let of = |sum: i128| into_wire(PeriodSum { from_ms: 60_000, sum, adds: 2 }).map(|period| period.sum);
        assert_eq!(of(i64::MAX.into()), Ok(i64::MAX));
        assert_eq!(of(i64::MIN.into()), Ok(i64::MIN));
        assert_eq!(of(i128::from(i64::MAX) + 1), Err(Refusal::Overflow));
        assert_eq!(of(i128::from(i64::MIN) - 1), Err(Refusal::Overflow));
    }

    #[test]
    fn n16_a_page_token_reads_back_and_no_other_text_does() {
        let unfinished = PeriodSum { from_ms: 120_000, sum: i128::from(i64::MIN) * 3, adds: 7 };
        let exact_to_ms = Some(125_000);
        let position_of = |unfinished| SumsPosition { next_ms: 130_500, end_ms: 999_000, unfinished, exact_to_ms };
        let read = |token: &str, request: &str| position(token, request, Period::Minute);
        for expected in [position_of(None), position_of(Some(unfinished))] {
            assert_eq!(read(&token(expected, "one"), "one"), Ok(Some(expected)));
        }
        let one = token(position_of(Some(unfinished)), "one");
        assert!(read(&one, "another").is_err(), "of another request");
        assert!(position(&one, "one", Period::Hour).is_err(), "of another period");
        for at in 0..one.len() {
            let mut changed = one.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            assert!(read(&String::from_utf8(changed).unwrap(), "one").is_err(), "changed at {at}");
        }
        for bad in ["1", "1.2", "1.2.3", "1.2.3.4", &one[1..], &one[..one.len() - 1], &format!("{one}.")] {
            assert!(read(bad, "one").is_err(), "{bad}");
        }
        assert_eq!(position("", "one", Period::Day), Ok(None));
    }
}
