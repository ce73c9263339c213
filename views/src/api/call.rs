//! What every call of the view counter goes through: the right of its caller, its metrics, its line in the audit log and its
//! span (S4, S5). No protocol file has these calls.

use crate::service::ViewService;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use std::convert::Infallible;
use std::sync::Arc;
use tallystone_proto::{TRACEPARENT, TRACESTATE};
use tallystone_serving::http::FaultBody;
use tallystone_serving::{Access, Guarded, Resource, Right, RpcMetrics};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Declares calls: the name in metrics and in the audit log, method and path, and the right on the namespace.
macro_rules! calls {
    ($($call:ident: $method:literal => $right:ident;)*) => {
        $(
            #[doc = $method]
            pub(super) struct $call {
                pub(super) namespace: String,
            }

            impl Guarded for $call {
                const SERVICE: &'static str = "tallystone.views";
                const RPC: &'static str = stringify!($call);
                const METHOD: &'static str = $method;
                const RIGHT: Right = Right::$right;

                fn resource(&self) -> Resource<'_> {
                    Resource::One(&self.namespace)
                }
            }
        )*

        const CALLS: &[&str] = &[$(stringify!($call)),*];
    };
}

calls! {
    PostView: "POST /v1/views" => Count;
    PostViews: "POST /v1/views:batch" => Count;
    GetViews: "GET /v1/videos/{videoId}/views" => CountRead;
}

/// The view counter, as its paths use it.
pub(super) struct Api {
    pub(super) views: Arc<ViewService>,
    rpcs: Arc<RpcMetrics>,
}

/// Who calls, and within which trace.
pub(super) struct Caller {
    access: Access,
    /// What it has sent of its trace.
    trace: HeaderMap,
}

impl Api {
    pub(super) fn new(views: Arc<ViewService>) -> Arc<Api> {
        Arc::new(Api { views, rpcs: RpcMetrics::new(CALLS) })
    }

    /// Answers a call if its caller may make it; `answer` does nothing before that.
    pub(super) async fn run<R: Guarded, T>(
        &self,
        caller: Caller,
        call: R,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, FaultBody> {
        let mut request = Request::new(call);
        *request.metadata_mut() = MetadataMap::from_headers(caller.trace);
        request.extensions_mut().insert(caller.access);
        let answered = self.rpcs.call(request, |_| answer).await;
        answered.map(Response::into_inner).map_err(FaultBody::from)
    }
}

impl Caller {
    pub(super) fn of(headers: &HeaderMap, extensions: &Extensions) -> Caller {
        let mut trace = HeaderMap::new();
        for name in [TRACEPARENT, TRACESTATE] {
            if let Some(value) = headers.get(name) {
                trace.insert(name, value.clone());
            }
        }
        Caller { access: Access::of(extensions), trace }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Infallible> {
        Ok(Caller::of(&parts.headers, &parts.extensions))
    }
}
