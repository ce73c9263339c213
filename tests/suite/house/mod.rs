//! The house rules that a compiler does not check.
//!
//! What lives here: tests that read the repository itself, one file per rule. What may not: a test that runs the product.

mod circles;
mod crates;
mod links;
mod modules;
mod rows;
mod rust_version;
mod words;
mod workspace;

/// What each crate may depend on, of ours (ARCHITECTURE.md). Development dependencies are free.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tallystone-proto", &[]),
    ("tallystone-model", &[]),
    ("tallystone-local", &[]),
    ("tallystone-lua", &["tallystone-model"]),
    ("tallystone-link", &["tallystone-model"]),
    ("tallystone-serving", &["tallystone-proto", "tallystone-model"]),
    (
        "tallystone-server",
        &["tallystone-proto", "tallystone-model", "tallystone-lua", "tallystone-link", "tallystone-serving"],
    ),
    ("tallystone-client", &["tallystone-proto"]),
    (
        "tallystone-counters",
        &[
            "tallystone-proto",
            "tallystone-model",
            "tallystone-lua",
            "tallystone-link",
            "tallystone-serving",
            "tallystone-client",
        ],
    ),
    ("tallystone-workers", &["tallystone-client", "tallystone-counters"]),
    ("tallystone-kafka", &["tallystone-model"]),
    ("tallystone-indexer", &["tallystone-proto", "tallystone-model", "tallystone-kafka", "tallystone-serving"]),
    (
        "tallystone-assembly",
        &[
            "tallystone-model",
            "tallystone-link",
            "tallystone-kafka",
            "tallystone-serving",
            "tallystone-server",
            "tallystone-client",
            "tallystone-indexer",
            "tallystone-counters",
            "tallystone-workers",
        ],
    ),
    (
        "tallystone-bench",
        &[
            "tallystone-assembly",
            "tallystone-link",
            "tallystone-serving",
            "tallystone-proto",
            "tallystone-model",
            "tallystone-local",
            "tallystone-kafka",
            "tallystone-server",
            "tallystone-client",
            "tallystone-indexer",
            "tallystone-counters",
            "tallystone-workers",
        ],
    ),
    (
        "tallystone-demo",
        &[
            "tallystone-assembly",
            "tallystone-client",
            "tallystone-counters",
            "tallystone-indexer",
            "tallystone-local",
            "tallystone-server",
            "tallystone-workers",
        ],
    ),
];
