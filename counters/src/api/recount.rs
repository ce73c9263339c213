//! AuditCounter, RecountCounter and ListRecounts (N12).

use super::sealed::{seal, unseal};
use super::status::of_call;
use super::wire::namespace;
use crate::audit::{Audit, Group, GroupBy, Groups};
use crate::checkpoints::Epoch;
use crate::names::{CounterName, NamespaceName, Token};
use crate::recount::{REASON_BYTES_MAX, Recount, Recounted};
use crate::refusal::Refusal;
use crate::service::{Audited, CounterService};
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn audit(
    counters: &CounterService,
    request: wire::AuditCounterRequest,
) -> Result<wire::AuditCounterResponse, Status> {
    let by = grouping(request.group_by).map_err(of_call)?;
    let wire::AuditCounterRequest { namespace: name, counter, page_token, .. } = request;
    let (name, counter) = names(name, counter)?;
    let from = match page_token.as_str() {
        "" => None,
        token => Some(read("page_token", token, &name, &counter).map_err(of_call)?),
    };
    let mut groups = Groups::by(by);
    let audited = counters.audit(&name, &counter, from, &mut groups).await.map_err(of_call)?;
    let Audited { audit, kept_from_ms } = audited;
    let (token, is_finished) = (token(&audit, &name, &counter), audit.is_finished());
    let (next_page_token, audit_token) = if is_finished { (String::new(), token) } else { (token, String::new()) };
    Ok(wire::AuditCounterResponse {
        count: audit.count,
        recounted: nearest(audit.recounted()),
        adjusted: audit.epoch.adjusted,
        agrees: audit.recounted() == i128::from(audit.count),
        events: i64::try_from(audit.events).unwrap_or(i64::MAX),
        exact_to_ms: audit.exact_to_ms as i64,
        audited_to_ms: audit.next_ms as i64,
        epoch: audit.epoch.number,
        complete: audit.is_complete(kept_from_ms),
        kept_from_ms: kept_from_ms as i64,
        audit_token,
        next_page_token,
        groups_cleared: groups.is_cleared(),
        groups: groups.into_iter().map(group).collect(),
    })
}

fn grouping(wanted: i32) -> Result<Option<GroupBy>, Refusal> {
    match wire::AuditGrouping::try_from(wanted) {
        Ok(wire::AuditGrouping::Unspecified) => Ok(None),
        Ok(wire::AuditGrouping::Source) => Ok(Some(GroupBy::Source)),
        Ok(wire::AuditGrouping::EventItemKey) => Ok(Some(GroupBy::EventItemKey)),
        Err(_) => Err(Refusal::invalid("group_by", format!("is {wanted}, which is no AuditGrouping"))),
    }
}

fn group((key, Group { adds, sum }): (Box<str>, Group)) -> wire::AuditGroup {
    wire::AuditGroup { key: key.into(), adds: i64::try_from(adds).unwrap_or(i64::MAX), sum: nearest(sum) }
}

/// The nearest number that the wire can have.
fn nearest(sum: i128) -> i64 {
    sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

pub(super) async fn recount(
    counters: &CounterService,
    request: wire::RecountCounterRequest,
) -> Result<wire::RecountCounterResponse, Status> {
    let accepts_dropped_events = request.accept_dropped_events;
    let (name, counter) = names(request.namespace.clone(), request.counter.clone())?;
    let recount = of_request(request, &name, &counter).map_err(of_call)?;
    let recounted = counters.recount(&name, &counter, &recount, accepts_dropped_events).await.map_err(of_call)?;
    Ok(wire::RecountCounterResponse { recount: Some(entry(recounted)) })
}

pub(super) async fn list(
    counters: &CounterService,
    request: wire::ListRecountsRequest,
) -> Result<wire::ListRecountsResponse, Status> {
    let (name, counter) = names(request.namespace, request.counter)?;
    let found = counters.recounts(&name, &counter).await.map_err(of_call)?;
    Ok(wire::ListRecountsResponse { recounts: found.into_iter().map(entry).collect() })
}

fn names(name: String, counter: String) -> Result<(NamespaceName, CounterName), Status> {
    Ok((namespace(name)?, CounterName::parse(counter).map_err(of_call)?))
}

fn of_request(
    request: wire::RecountCounterRequest,
    name: &NamespaceName,
    counter: &CounterName,
) -> Result<Recount, Refusal> {
    let wire::RecountCounterRequest { audit_token, adjustment, reason, token, .. } = request;
    let audit = match audit_token.as_str() {
        "" => None,
        token => Some(read("audit_token", token, name, counter)?),
    };
    if audit.is_some_and(|audit| !audit.is_finished()) {
        return Err(Refusal::invalid("audit_token", "is of an audit that is not finished"));
    }
    if audit.is_none() && adjustment == 0 {
        let why = "is 0, and there is no audit_token: the count would stay as it is";
        return Err(Refusal::invalid("adjustment", why));
    }
    if reason.is_empty() || reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        let why = format!("must have 1 to {REASON_BYTES_MAX} bytes without control characters");
        return Err(Refusal::invalid("reason", why));
    }
    Ok(Recount { token: Token::parse(token)?, audit, adjustment, reason })
}

fn entry(recounted: Recounted) -> wire::Recount {
    wire::Recount {
        epoch: recounted.epoch,
        recounted_ms: recounted.recounted_ms as i64,
        exact_to_ms: recounted.exact_to_ms as i64,
        old_count: recounted.old_count,
        new_count: recounted.new_count,
        adjustment: recounted.adjustment,
        from_events: recounted.from_events,
        reason: recounted.reason,
        token: recounted.token,
    }
}

/// An audit of a counter, as a later call gives it back.
fn token(audit: &Audit, name: &NamespaceName, counter: &CounterName) -> String {
    let Audit { namespace, next_ms, count, exact_to_ms, epoch, undeleted_from_ms, events, sum, cleared_ms } = audit;
    let Epoch { number, adjusted } = epoch;
    let numbers = format!(
        "{namespace}.{next_ms}.{count}.{exact_to_ms}.{number}.{adjusted}.{undeleted_from_ms}.{events}.{sum}.{cleared_ms}"
    );
    seal(&numbers, &of_counter(name, counter))
}

fn of_counter(name: &NamespaceName, counter: &CounterName) -> String {
    format!("audit {name} {counter}")
}

fn read(field: &'static str, token: &str, name: &NamespaceName, counter: &CounterName) -> Result<Audit, Refusal> {
    let audit = || {
        let parts = unseal(token, &of_counter(name, counter))?;
        let [namespace, next_ms, count, exact_to_ms, number, adjusted, undeleted_from_ms, events, sum, cleared_ms] =
            <[&str; 10]>::try_from(parts).ok()?;
        Some(Audit {
            namespace: namespace.parse().ok()?,
            next_ms: next_ms.parse().ok()?,
            count: count.parse().ok()?,
            exact_to_ms: exact_to_ms.parse().ok()?,
            epoch: Epoch { number: number.parse().ok()?, adjusted: adjusted.parse().ok()? },
            undeleted_from_ms: undeleted_from_ms.parse().ok()?,
            events: events.parse().ok()?,
            sum: sum.parse().ok()?,
            cleared_ms: cleared_ms.parse().ok()?,
        })
    };
    audit().ok_or_else(|| Refusal::invalid(field, "is not a token of an audit of this counter"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_token_of_an_audit_reads_back_and_no_other_text_does() {
        let audit = Audit {
            namespace: u64::MAX,
            next_ms: 1,
            count: i64::MIN,
            exact_to_ms: 1_795_176_000_000,
            epoch: Epoch { number: u32::MAX, adjusted: -7 },
            undeleted_from_ms: 3,
            events: u64::MAX,
            sum: i128::from(i64::MIN) * 5,
            cleared_ms: 9,
        };
        let name = NamespaceName::parse("ads".to_owned()).unwrap();
        let (one, other) = (CounterName::parse("one").unwrap(), CounterName::parse("other").unwrap());
        let text = token(&audit, &name, &one);
        assert_eq!(read("audit_token", &text, &name, &one), Ok(audit));
        assert!(read("audit_token", &text, &name, &other).is_err(), "of another counter");
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            assert!(read("audit_token", &String::from_utf8(changed).unwrap(), &name, &one).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn n12_a_recount_has_a_reason_and_changes_something() {
        let name = NamespaceName::parse("ads".to_owned()).unwrap();
        let counter = CounterName::parse("one").unwrap();
        let request = |adjustment, reason: &str, token: &str| {
            let (reason, token) = (reason.to_owned(), token.to_owned());
            let request = wire::RecountCounterRequest { adjustment, reason, token, ..Default::default() };
            of_request(request, &name, &counter).map_err(|refusal| match refusal {
                Refusal::Invalid { field, .. } => field,
                other => panic!("{other}"),
            })
        };
        assert_eq!(request(-3, "a bug", "t").map(|recount| recount.adjustment), Ok(-3));
        assert_eq!(request(0, "a bug", "t"), Err("adjustment"));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        for reason in ["", "a\nbug", &long] {
            assert_eq!(request(1, reason, "t"), Err("reason"));
        }
        assert!(request(1, "a bug", "").is_err(), "no token");
    }
}
