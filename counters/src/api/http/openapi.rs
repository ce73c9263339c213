//! The description of the HTTP calls: OpenAPI, and a page that shows it.

use super::calls;
use axum::Json;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallystone counters",
        description = "Exact distributed counters. Every add with a token counts once, however often it is sent. \
            Numbers are 64-bit integers."
    ),
    paths(
        calls::add_count,
        calls::add_and_get_count,
        calls::add_counts,
        calls::add_and_get_counts,
        calls::get_count,
        calls::read_count,
        calls::get_counts,
        calls::clear_count,
        calls::clear_counts,
        calls::list_counters,
        calls::list_events,
        calls::list_namespaces,
        calls::get_namespace,
        calls::put_namespace,
        calls::put_persistence_configuration
    )
)]
struct Description;

/// `/openapi.json`.
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_and_every_body_is_described() {
        let document = serde_json::to_value(Description::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 14, "{:?}", paths.keys());
        let text = document.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name} is not described");
        }
    }
}
