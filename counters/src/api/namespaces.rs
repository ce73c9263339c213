//! The namespaces (N1).

use super::status::of_call;
use super::wire::counter_type;
use crate::names::{NamespaceName, RegionName};
use crate::namespace::{Cardinality, CounterType, NamespaceConfig, PublishedTo, Threshold};
use crate::redis::Namespace;
use crate::refusal::Refusal;
use crate::service::CounterService;
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::{Access, Right};
use tonic::{Request, Status};

pub(super) async fn put(
    counters: &CounterService,
    request: wire::PutNamespaceRequest,
) -> Result<wire::PutNamespaceResponse, Status> {
    let wire::PutNamespaceRequest { name, config, persistence_configuration } = request;
    let name = self::name(name)?;
    let change = |before: NamespaceConfig| match (config, persistence_configuration.as_str()) {
        (Some(_), text) if !text.is_empty() => {
            Err(Refusal::invalid("persistence_configuration", "must not be set together with config"))
        }
        (None, text) if !text.is_empty() => {
            Ok(NamespaceConfig::of_persistence_configuration(text)?.archived_by_default(before.archived))
        }
        (config, _) => changed(before, config.unwrap_or_default()),
    };
    let namespace = counters.put_namespace(&name, change).await.map_err(of_call)?;
    Ok(wire::PutNamespaceResponse { namespace: Some(into_wire(namespace)) })
}

pub(super) async fn get(
    counters: &CounterService,
    request: wire::GetNamespaceRequest,
) -> Result<wire::GetNamespaceResponse, Status> {
    let found = counters.namespace(&self::name(request.name)?).await.map_err(of_call)?;
    Ok(wire::GetNamespaceResponse { namespace: Some(into_wire(found)) })
}

pub(super) async fn list(
    counters: &CounterService,
    request: Request<wire::ListNamespacesRequest>,
) -> Result<wire::ListNamespacesResponse, Status> {
    let visible = visible(counters, &Access::of(request.extensions())).await?;
    Ok(wire::ListNamespacesResponse { namespaces: visible.into_iter().map(into_wire).collect() })
}

/// The namespaces that a caller may read (S4).
pub(super) async fn visible(counters: &CounterService, access: &Access) -> Result<Vec<Namespace>, Status> {
    let mut all = counters.namespaces().await.map_err(of_call)?;
    all.retain(|namespace| access.allows(Right::CountRead, namespace.name.as_str()));
    Ok(all)
}

pub(super) async fn delete(
    counters: &CounterService,
    request: wire::DeleteNamespaceRequest,
) -> Result<wire::DeleteNamespaceResponse, Status> {
    let wire::DeleteNamespaceRequest { name, incarnation } = request;
    let name = self::name(name)?;
    let bad = |_| of_call(Refusal::invalid("incarnation", "must not be below 0"));
    let incarnation = incarnation.map(u64::try_from).transpose().map_err(bad)?;
    counters.delete_namespace(&name, incarnation).await.map_err(of_call)?;
    Ok(wire::DeleteNamespaceResponse {})
}

pub(super) fn name(name: String) -> Result<NamespaceName, Status> {
    NamespaceName::parse(name).map_err(|refusal| {
        of_call(match refusal {
            Refusal::Invalid { why, .. } => Refusal::invalid("name", why),
            other => other,
        })
    })
}

/// What is said, on top of what was.
fn changed(before: NamespaceConfig, said: wire::NamespaceConfig) -> Result<NamespaceConfig, Refusal> {
    let said_type = match said.counter_type.map(wire::CounterType::try_from) {
        None => before.counter_type,
        Some(Ok(wire::CounterType::BestEffort)) => CounterType::BestEffort,
        Some(Ok(wire::CounterType::Eventual)) => CounterType::Eventual,
        Some(Ok(wire::CounterType::Accurate)) => CounterType::Accurate,
        Some(_) => return Err(Refusal::invalid("config.counter_type", "must be BEST_EFFORT, EVENTUAL or ACCURATE")),
    };
    let said_cardinality = match said.cardinality.map(wire::Cardinality::try_from) {
        None => before.cardinality,
        Some(Ok(wire::Cardinality::Low)) => Cardinality::Low,
        Some(Ok(wire::Cardinality::Medium)) => Cardinality::Medium,
        Some(Ok(wire::Cardinality::High)) => Cardinality::High,
        Some(_) => return Err(Refusal::invalid("config.cardinality", "must be LOW, MEDIUM or HIGH")),
    };
    let archived_before = before.archived;
    let config = NamespaceConfig {
        counter_type: said_type,
        cardinality: said_cardinality,
        ttl_ms: number("config.ttl_ms", said.ttl_ms, before.ttl_ms)?,
        coalesce_ms: number("config.coalesce_ms", said.coalesce_ms, before.coalesce_ms)?,
        rollup_batch_count: number("config.rollup_batch_count", said.rollup_batch_count, before.rollup_batch_count)?,
        num_queues: number("config.num_queues", said.num_queues, before.num_queues)?,
        capacity_bytes: number("config.capacity_bytes", said.capacity_bytes, before.capacity_bytes)?,
        buckets_per_id: number("config.buckets_per_id", said.buckets_per_id, before.buckets_per_id)?,
        seconds_per_bucket: number("config.seconds_per_bucket", said.seconds_per_bucket, before.seconds_per_bucket)?,
        seconds_per_slice: number("config.seconds_per_slice", said.seconds_per_slice, before.seconds_per_slice)?,
        accept_limit_ms: number("config.accept_limit_ms", said.accept_limit_ms, before.accept_limit_ms)?,
        close_after_ms: number("config.close_after_ms", said.close_after_ms, before.close_after_ms)?,
        delete_after_ms: number("config.delete_after_ms", said.delete_after_ms, before.delete_after_ms)?,
        expire_after_ms: number("config.expire_after_ms", said.expire_after_ms, before.expire_after_ms)?,
        published_to: match said.published_to {
            None => before.published_to,
            Some(said) if said == wire::PublishedTo::default() => None,
            Some(wire::PublishedTo { key, field }) => Some(PublishedTo { key, field }),
        },
        archived: false,
        thresholds: match said.thresholds {
            None => before.thresholds,
            Some(wire::Thresholds { thresholds }) => {
                let threshold = |wire::Threshold { prefix, count }| Threshold { prefix, count };
                thresholds.into_iter().map(threshold).collect()
            }
        },
        regions: match said.regions {
            None => before.regions,
            Some(wire::Regions { names }) => names.into_iter().map(region).collect::<Result<_, _>>()?,
        },
    };
    Ok(match said.archived {
        Some(archived) => NamespaceConfig { archived, ..config },
        None => config.archived_by_default(archived_before),
    })
}

fn region(name: String) -> Result<RegionName, Refusal> {
    RegionName::parse(name).map_err(|refusal| match refusal {
        Refusal::Invalid { why, .. } => Refusal::invalid("config.regions", why),
        other => other,
    })
}

/// A number of the wire, or the previous one. Its bounds are the configuration's to check.
fn number<W, N>(field: &'static str, said: Option<W>, before: N) -> Result<N, Refusal>
where
    W: Into<i64>,
    N: TryFrom<i64>,
{
    let Some(said) = said.map(W::into) else { return Ok(before) };
    N::try_from(said).map_err(|_| Refusal::invalid(field, format!("is {said}, which is out of range")))
}

fn thresholds(thresholds: Vec<Threshold>) -> wire::Thresholds {
    let threshold = |Threshold { prefix, count }| wire::Threshold { prefix, count };
    wire::Thresholds { thresholds: thresholds.into_iter().map(threshold).collect() }
}

fn into_wire(Namespace { name, config, revision, incarnation, .. }: Namespace) -> wire::Namespace {
    let cardinality = match config.cardinality {
        Cardinality::Low => wire::Cardinality::Low,
        Cardinality::Medium => wire::Cardinality::Medium,
        Cardinality::High => wire::Cardinality::High,
    };
    let config = wire::NamespaceConfig {
        counter_type: Some(counter_type(config.counter_type).into()),
        cardinality: Some(cardinality.into()),
        ttl_ms: Some(config.ttl_ms as i64),
        coalesce_ms: Some(config.coalesce_ms as i64),
        rollup_batch_count: Some(config.rollup_batch_count as i32),
        num_queues: Some(config.num_queues.into()),
        capacity_bytes: Some(config.capacity_bytes as i64),
        buckets_per_id: Some(config.buckets_per_id.into()),
        seconds_per_bucket: Some(config.seconds_per_bucket as i32),
        seconds_per_slice: Some(config.seconds_per_slice as i32),
        accept_limit_ms: Some(config.accept_limit_ms as i64),
        close_after_ms: Some(config.close_after_ms as i64),
        delete_after_ms: Some(config.delete_after_ms as i64),
        expire_after_ms: Some(config.expire_after_ms as i64),
        published_to: config.published_to.map(|PublishedTo { key, field }| wire::PublishedTo { key, field }),
        archived: Some(config.archived),
        thresholds: Some(thresholds(config.thresholds)),
        regions: Some(wire::Regions { names: config.regions.into_iter().map(String::from).collect() }),
    };
    wire::Namespace {
        name: name.to_string(),
        config: Some(config),
        revision: revision as i64,
        incarnation: incarnation as i64,
    }
}
