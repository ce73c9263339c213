//! History: what every history store must answer (Q20, Q21), and what it makes of the events of random lives.
//!
//! What lives here: the conformance suite over every store, the property test of the folding, and `embedded` for what
//! only a file can do or be. What may not: anything above the [`HistoryStore`](tallystone_indexer::HistoryStore) trait.

/// Makes a test over each history store of every `async fn test<S: Archive>(desk: &Desk<S>)`.
macro_rules! over_history_stores {
    ($($test:ident),+ $(,)?) => {
        mod on_embedded {
            over_history_stores!(@on tallystone_indexer::Embedded: $($test),+);
        }
        mod on_elasticsearch {
            over_history_stores!(@on tallystone_indexer::Elastic: $($test),+);
        }
    };
    (@on $store:ty: $($test:ident),+) => {
        $(#[tokio::test]
        async fn $test() {
            let held = <$store as tallystone_tests::Archive>::shared().await;
            super::$test(&tallystone_tests::Desk::new(held, stringify!($test))).await;
        })+
    };
}

mod conformance;
mod embedded;
mod folding;
