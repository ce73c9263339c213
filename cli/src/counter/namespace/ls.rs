//! `tallystone counter namespace ls`

use super::text::{cardinality_text, type_text};
use crate::counter::session::{CounterSession, cli_error};
use crate::duration::format_ms;
use crate::error::CliError;
use crate::table::table;
use tallystone_client::Namespace;

pub(crate) async fn run(session: &CounterSession) -> Result<(), CliError> {
    let namespaces = session.client.list_namespaces().await.map_err(|error| cli_error(&error))?;
    session.output.many(&namespaces, |namespaces| match namespaces {
        [] => "No namespaces. `tallystone counter namespace put NAME` creates one.".to_owned(),
        namespaces => {
            let header = ["name", "type", "cardinality", "accept limit", "coalesce", "#revision"];
            table(&header, namespaces.iter().map(row))
        }
    })
}

fn row(namespace: &Namespace) -> Vec<String> {
    let config = &namespace.config;
    let duration = |ms: Option<u64>| ms.map_or_else(String::new, format_ms);
    vec![
        namespace.name.clone(),
        type_text(config.counter_type).to_owned(),
        cardinality_text(config.cardinality).to_owned(),
        duration(config.accept_limit_ms),
        duration(config.coalesce_ms),
        namespace.revision.to_string(),
    ]
}
