//! The description of the HTTP calls: OpenAPI, and a page that shows it.

use super::int64::{AS_TEXT, PARAMETER, SHORT};
use super::{calls, crossings, recounts, top};
use axum::Json;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tallystone counters",
        description = "Exact distributed counters. Every add with a token counts once, however often it is sent. \
            Numbers are 64-bit integers. A request may write each as a number or as text; an answer has numbers, or \
            text if the query has int64=string."
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
        calls::delete_counter,
        calls::list_counters,
        top::list_top_counters,
        calls::list_events,
        calls::get_sums,
        recounts::audit_counter,
        recounts::recount_counter,
        recounts::list_recounts,
        crossings::list_crossings,
        calls::list_namespaces,
        calls::get_namespace,
        calls::put_namespace,
        calls::put_persistence_configuration,
        calls::delete_namespace
    )
)]
struct Description;

/// Fields that Netflix's article names otherwise.
const ALIASES: [(&str, &str); 3] =
    [("counter", "counter_name"), ("token", "idempotency_token"), ("generation_time", "generation_time_ms")];

/// `/openapi.json`.
pub(super) async fn document() -> Json<Value> {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(described);
    Json(DOCUMENT.clone())
}

/// The description as the code states it, and what the code cannot state where it declares a field or a call.
fn described() -> Value {
    let mut document = serde_json::to_value(Description::openapi()).unwrap_or_default();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.values_mut().for_each(describe);
        let why = "A 64-bit integer: a number, or its decimal digits as text.";
        let pattern = "^-?[0-9]+$";
        let int64 = json!({"type": ["integer", "string"], "format": "int64", "pattern": pattern, "description": why});
        schemas.insert("Int64".to_owned(), int64);
    }
    let why = "The answer's 64-bit integers are text.";
    let parameter = json!({"name": PARAMETER, "in": "query", "required": false, "description": why,
        "schema": {"type": "string", "enum": [AS_TEXT]}});
    let paths = document["paths"].as_object_mut();
    for (_, call) in paths.into_iter().flatten().filter_map(|(_, path)| path.as_object_mut()).flatten() {
        if let Some(call) = call.as_object_mut() {
            let parameters = call.entry("parameters").or_insert_with(|| json!([]));
            parameters.as_array_mut().into_iter().for_each(|parameters| parameters.push(parameter.clone()));
        }
    }
    document
}

fn describe(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(describe),
        Value::Object(fields) if fields.get("format").is_some_and(|format| format == "int64") => {
            let description = fields.remove("description");
            *fields = Map::from_iter([("$ref".to_owned(), json!("#/components/schemas/Int64"))]);
            fields.extend(description.map(|description| ("description".to_owned(), description)));
        }
        Value::Object(fields) => {
            // A time may be text for two reasons.
            if let Some(of) = fields.remove("oneOf") {
                fields.insert("anyOf".to_owned(), of);
            }
            let is_request = fields.get("additionalProperties") == Some(&json!(false));
            for (_, part) in fields.iter_mut().filter(|(name, _)| !SHORT.contains(&name.as_str())) {
                describe(part);
            }
            if is_request {
                ALIASES.iter().for_each(|(name, alias)| describe_alias(fields, name, alias));
            }
        }
        _ => {}
    }
}

/// A field that may have another name, but not both.
fn describe_alias(request: &mut Map<String, Value>, name: &str, alias: &str) {
    let Some(properties) = request.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let Some(of_name) = properties.get(name).cloned() else { return };
    properties.insert(alias.to_owned(), of_name);
    let required = request.get_mut("required").and_then(Value::as_array_mut);
    let at = required.as_ref().and_then(|required| required.iter().position(|field| field == name));
    if let (Some(required), Some(at)) = (required, at) {
        required.remove(at);
        let one_of = json!([{"required": [name]}, {"required": [alias]}]);
        let all_of = request.entry("allOf").or_insert_with(|| json!([]));
        all_of.as_array_mut().into_iter().for_each(|parts| parts.push(json!({"oneOf": one_of})));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_and_every_body_is_described() {
        let document = described();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), 21, "{:?}", paths.keys());
        for call in paths.values().flat_map(|path| path.as_object().unwrap().values()) {
            let has_text = |name: &str| call[name].as_str().is_some_and(|text| text.len() > 10);
            assert!(has_text("summary") && has_text("description"), "{call}");
        }
        let text = document.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name} is not described");
        }
    }
}
