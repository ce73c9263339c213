//! The observation of calls: how many, how long, with which code; the same for every service.

use crate::access::{Access, AuditedCall, Guarded};
use crate::spans;
use ::metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};
use opentelemetry::Context;
use opentelemetry::trace::FutureExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_proto::code_name;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

const RPC_CALLS: &str = "tallystone_rpc_calls_total";
pub(crate) const RPC_SECONDS: &str = "tallystone_rpc_seconds";
/// The buckets of times: a fast call takes a millisecond; the longest wait is five minutes.
pub const SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The metrics of a service's RPCs. Handles are made once, so that a call looks up no metric by name.
pub struct RpcMetrics {
    rpcs: HashMap<&'static str, Handles>,
}

struct Handles {
    ok: Counter,
    seconds: Histogram,
}

impl RpcMetrics {
    /// Handles for these RPCs, of the recorder that is installed now; without a recorder they do nothing.
    pub fn new(rpcs: &[&'static str]) -> Arc<RpcMetrics> {
        describe_counter!(RPC_CALLS, "calls that have ended, by RPC and gRPC status");
        describe_histogram!(RPC_SECONDS, Unit::Seconds, "from the decoded request to the answer, waits included");
        let handles = |rpc: &&'static str| {
            let ok = counter!(RPC_CALLS, "rpc" => *rpc, "code" => code_name(Code::Ok));
            (*rpc, Handles { ok, seconds: histogram!(RPC_SECONDS, "rpc" => *rpc) })
        };
        Arc::new(RpcMetrics { rpcs: rpcs.iter().map(handles).collect() })
    }

    /// Starts to observe a call; it counts when the returned value is dropped.
    pub fn begin(self: &Arc<Self>, rpc: &'static str) -> ObservedCall {
        ObservedCall { metrics: self.clone(), rpc, begun: Instant::now(), code: Code::Cancelled }
    }

    /// Runs a unary call if its caller has the right to make it (S4), and counts, times and traces it.
    pub async fn call<R, T, F>(
        self: &Arc<Self>,
        request: Request<R>,
        call: impl FnOnce(Request<R>) -> F,
    ) -> Result<Response<T>, Status>
    where
        R: Guarded,
        F: Future<Output = Result<T, Status>>,
    {
        let access = Access::of(request.extensions());
        let span = spans::begin(&request);
        let allowed = access.check(request.get_ref()).and_then(|()| access.audit(request.get_ref()));
        let call = async {
            let record = allowed?;
            AuditedCall::around(record, call(request)).await
        };
        self.observe(R::RPC, span, call).await
    }

    /// Runs a unary call, and counts, times and traces it.
    async fn observe<T>(
        self: &Arc<Self>,
        rpc: &'static str,
        span: Option<Context>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let mut observed = self.begin(rpc);
        let call = call.instrument(tracing::debug_span!("rpc", method = rpc));
        let answer = match &span {
            Some(span) => call.with_context(span.clone()).await,
            None => call.await,
        };
        observed.code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        if let Some(span) = span {
            spans::end(&span, observed.code);
        }
        answer.map(Response::new)
    }

    /// Counts a unary call that was refused before it was read.
    pub fn note_refused(self: &Arc<Self>, rpc: &'static str, code: Code) {
        self.begin(rpc).code = code;
    }

    fn record(&self, rpc: &'static str, code: Code, took: Duration) {
        let Some(handles) = self.rpcs.get(rpc) else { return };
        handles.seconds.record(took.as_secs_f64());
        match code {
            Code::Ok => handles.ok.increment(1),
            code => counter!(RPC_CALLS, "rpc" => rpc, "code" => code_name(code)).increment(1),
        }
    }
}

/// A call that has not ended. Dropped without a code, it counts as CANCELLED: the caller has gone.
pub struct ObservedCall {
    metrics: Arc<RpcMetrics>,
    rpc: &'static str,
    begun: Instant,
    /// The code that the call will count with.
    pub code: Code,
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.metrics.record(self.rpc, self.code, took);
        tracing::debug!(rpc = self.rpc, code = ?self.code, took_us = took.as_micros() as u64, "answered");
    }
}
