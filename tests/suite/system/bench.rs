//! `tallystone bench … --against`: two builds compared pair by pair.

use super::program;
use serde_json::Value;

#[tokio::test]
async fn a_build_is_compared_with_itself_pair_by_pair() {
    let other = program::path().to_str().expect("a path in UTF-8");
    let args = ["bench", "queue", "--quick", "--only", "unary", "--against", other, "--pairs", "2", "--json"];
    let ended = program::run(program::command(&args), "").await;
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(report["pairs"], 2, "{report:#}");
    assert_eq!(report["settings"]["appendfsync"], "always", "{report:#}");
    assert!(report["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{report:#}");
    let rows = report["rows"].as_array().expect("rows");
    // The unary call and the stream; rows that differ only in their reference are compared once.
    assert_eq!(rows.len(), 2, "{report:#}");
    for row in rows {
        for side in ["ours", "other"] {
            let values = row[side].as_array().expect("values");
            assert!(
                values.len() == 2 && values.iter().all(|value| value.as_f64().is_some_and(|rate| rate > 0.0)),
                "{row:#}"
            );
        }
        let bound = |name: &str| row["interval"][name].as_f64().expect("a number");
        assert!(bound("low") <= bound("ratio") && bound("ratio") <= bound("high"), "{row:#}");
        assert_eq!(row["verdict"], "too_few_pairs", "{row:#}");
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
