//! History: the contract of every history store (Q20, Q21), and the fold of the events of random programs.
//!
//! What lives here: the conformance suite over every store, the property test of the fold, and `embedded` and `retentions` for what
//! only the embedded store has. What may not: anything above the [`HistoryStore`](tallystone_indexer::HistoryStore) trait.

/// Makes a test on each history store of every `async fn test<S: HistoryUnderTest>(history: &HistoryFixture<S>)`.
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
            let held = <$store as tallystone_tests::HistoryUnderTest>::shared().await;
            super::$test(&tallystone_tests::HistoryFixture::new(held, stringify!($test))).await;
        })+
    };
}

mod conformance;
mod embedded;
mod folding;
mod retentions;
